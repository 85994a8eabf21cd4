"""One phrase of a job as it runs: which phase it is in, where it is cut, how long it may wait.

    began                                                    a phase has its beats, and no more
      │ plan ─ ─ │ work ─ ─ ─ ─ │ review ─ ─ │
                                             └ the end: a handler that names no phases is cut here

A phrase begins with the first whole beat at or after the tenure's start. It keeps the meter with
which it began: a change of tempo is for the next one. A handler that moves on to the next phase is
held to the beats of each phase from then on; one that never does has those of all three.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.tempo.budget import PhaseCaps, WaitCaps
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import PHASES, Phase, Phases
from antiphon.core.tempo.score import Score, WaitBudget, Waited, phrase_beats

_NEXT: Final[dict[Phase, Phase]] = {"plan": "work", "work": "review", "review": "review"}


class PhraseRun(Struct, frozen=True, kw_only=True):
    """A phrase that runs. Times are by the clock that the meter counts."""

    meter: Meter
    phases: Phases
    began_ms: int
    phase: Phase | None = None
    """The phase that the handler moved on to; None: it has not moved on itself."""
    phase_began_ms: int = 0

    @classmethod
    def begin(cls, meter: Meter, phases: Phases, now_ms: int) -> PhraseRun:
        """A phrase of a tenure that starts now."""
        return cls(meter=meter, phases=phases, began_ms=whole_beat(meter, now_ms))

    def phase_at(self, now_ms: int) -> Phase:
        """The phase it is in: where the handler moved on to, or else by the time."""
        if self.phase is not None:
            return self.phase
        return self.phases.at(1 + self.meter.beats_since(self.began_ms, now_ms))

    @property
    def ends_ms(self) -> int:
        """Where it is cut."""
        if self.phase is None:
            return self.began_ms + self.phases.beats * self.meter.beat_ms
        return self.phase_began_ms + dict(self.phases)[self.phase] * self.meter.beat_ms

    def is_over(self, now_ms: int) -> bool:
        """Whether the phase, or the whole phrase, has used up its beats."""
        return now_ms >= self.ends_ms

    def beats_left(self, now_ms: int) -> int:
        """Beats until it is cut; the one that runs is counted."""
        return max(-(-(self.ends_ms - now_ms) // self.meter.beat_ms), 0)

    def moved_on(self, now_ms: int) -> PhraseRun:
        """In the next phase, which begins with the next whole beat; not after an overrun."""
        named = self
        if self.phase is None:
            named = replace(self, phase=PHASES[0], phase_began_ms=self.began_ms)
        phase = named.phase or PHASES[0]
        if named.is_over(now_ms) or phase == PHASES[-1]:
            return named
        return replace(named, phase=_NEXT[phase], phase_began_ms=whole_beat(self.meter, now_ms))

    @property
    def overran(self) -> str:
        """What is over, in words."""
        if self.phase is None:
            return f"its phrase of {beats_text(self.phases.beats)}"
        return f"its {beats_text(dict(self.phases)[self.phase])} of {self.phase}"

    def next_phrase_ms(self, now_ms: int) -> int:
        """The downbeat with which another phrase can begin: a phrase fills whole bars."""
        bars_ms = phrase_beats(self.phases, self.meter.bar_len) * self.meter.beat_ms
        after_ms = max(self.began_ms + bars_ms, now_ms)
        return self.meter.downbeat_after(after_ms - 1)

    def boundary(self, at_least_ms: int) -> int:
        """The first end of a phase at or after a time; beyond the phrase, the first downbeat."""
        beat_ms, ends_ms = self.meter.beat_ms, self.began_ms
        for beats in (self.phases.plan, self.phases.work, self.phases.review):
            ends_ms += beats * beat_ms
            if ends_ms >= at_least_ms:
                return ends_ms
        return self.meter.downbeat_after(at_least_ms - 1)

    def lease_ms(self, now_ms: int, *, wanted_ms: int, least_ms: int, most_ms: int) -> int:
        """A lease that ends with a phase or a bar: the first that is as long as wanted.

        If that is longer than allowed, with the last beat that is not; else wherever it ends.
        """
        lease_ms = self.boundary(now_ms + wanted_ms) - now_ms
        if lease_ms > most_ms:
            lease_ms = self.meter.beat_at(now_ms + most_ms).epoch_ms - now_ms
        return lease_ms if lease_ms >= least_ms else wanted_ms


class RunTime(Struct, frozen=True, kw_only=True):
    """What a job can tell from the time: by its phrase if it has a score, or else by the bar."""

    meter: Meter
    phases: Phases
    """Of a bar."""
    phrase: PhraseRun | None = None

    def beat(self, now_ms: int) -> int:
        """The beat of the bar, from 1."""
        return self.meter.beat_at(now_ms).index

    def phase(self, now_ms: int) -> Phase:
        """The phase of the phrase, or of the bar."""
        if self.phrase is not None:
            return self.phrase.phase_at(now_ms)
        return self.phases.at(self.beat(now_ms))

    def beats_left(self, now_ms: int) -> int:
        """Beats until it is cut; without a score, until the bar ends."""
        if self.phrase is not None:
            return self.phrase.beats_left(now_ms)
        return self.meter.bar_len - self.beat(now_ms) + 1


class WaitUse(Struct, frozen=True, kw_only=True):
    """How long a phrase has waited. Help has one budget for all of it, each other wait its own."""

    budget: WaitBudget
    beat_ms: int
    help_ms: int = 0

    def left_ms(self, what: Waited) -> int:
        """How long a wait that begins now may take."""
        if what == "io":
            return self.budget.io * self.beat_ms
        return max(self.budget.help * self.beat_ms - self.help_ms, 0)

    def waited(self, what: Waited, ms: int) -> WaitUse:
        """After a wait."""
        return self if what == "io" else replace(self, help_ms=self.help_ms + max(ms, 0))


def beats_text(count: int) -> str:
    """A number of beats, for people."""
    return "1 beat" if count == 1 else f"{count} beats"


def whole_beat(meter: Meter, now_ms: int) -> int:
    """When the first whole beat at or after a time begins."""
    beat_ms = meter.beat_ms
    return now_ms + (meter.anchor_ms - now_ms) % beat_ms


def capped_phases(score: Score, attempts: int, caps: PhaseCaps | None) -> Phases:
    """The beats of the phases after that many attempts; a budget's caps only lower them."""
    phases = score.phrase(attempts) if attempts else score.phases
    if caps is None:
        return phases
    caps_by_phase = {"plan": caps.plan, "work": caps.work, "review": caps.review}
    beats = {name: min(has, caps_by_phase[name] or has) for name, has in phases}
    return Phases(**beats)


def capped_waits(budget: WaitBudget, caps: WaitCaps) -> WaitBudget:
    """The beats that it may wait; a budget's caps only lower them."""

    def lower(has: int, cap: int | None) -> int:
        return has if cap is None else min(has, cap)

    return WaitBudget(help=lower(budget.help, caps.help), io=lower(budget.io, caps.io))
