"""Which beat it was at any time: by the tempo and the policy that held then (spec §11).

Two sources. The owner's policies are on the log, each with its commit time. The changes that a
leader made (a downbeat, its meter, the hash of the policy that it followed) are what nodes have
heard and kept. A leader goes on by a replaced policy until its next downbeat; without a leader a
policy holds at once, counted from the Unix epoch. So a leader's meter holds

- while it follows the policy of that time,
- and after that policy was replaced, until the downbeat on which a leader began to follow the next
  one, if that came within two bars.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from antiphon.core.record.op import Body
from antiphon.core.tempo.messages import BeatFrame
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phase, Phases, phases_of_bar
from antiphon.core.tempo.policy import BarLen, Bpm, TempoPolicy, policy_hash

BARS_TO_FOLLOW: Final = 2
"""How many bars a leader may take to follow a new policy."""


class TempoSpan(Body, frozen=True):
    """A leader's meter from one of its downbeats on, until the next span."""

    from_ms: int
    bpm: Bpm
    bar_len: BarLen
    anchor_ms: int
    policy: str
    """The hash of the policy that it followed."""
    phases: Phases | None = None
    """The beats of each phase, if they were not the policy's."""

    @property
    def meter(self) -> Meter:
        """Tempo, length of a bar, and a downbeat."""
        return Meter(bpm=self.bpm, bar_len=self.bar_len, anchor_ms=self.anchor_ms)

    def continues(self, before: TempoSpan | None) -> bool:
        """Whether it counts the same beats as the span before it."""
        if before is None:
            return False
        shift_ms = self.anchor_ms - before.anchor_ms
        is_same = (self.bpm, self.bar_len, self.policy, self.phases) == (
            before.bpm,
            before.bar_len,
            before.policy,
            before.phases,
        )
        return is_same and shift_ms % before.meter.bar_ms == 0


def span_of(frame: BeatFrame) -> TempoSpan:
    """What a frame says about its bar, from the bar's downbeat on."""
    meter = frame.meter
    return TempoSpan(
        from_ms=meter.anchor_ms,
        bpm=meter.bpm,
        bar_len=meter.bar_len,
        anchor_ms=meter.anchor_ms,
        policy=frame.policy_hash,
        phases=frame.phases,
    )


class BeatStamp(Struct, frozen=True):
    """A beat, as it was counted at the time."""

    beat: int
    """Of its bar, from 1."""
    phase: Phase


class DatedPolicy(Struct, frozen=True):
    """A tempo policy, and when it was committed; 0 for the one that nobody set."""

    since_ms: int
    policy: TempoPolicy


class TempoHistory:
    """The beats of one mesh, as far back as there are any."""

    def __init__(self, policies: Sequence[DatedPolicy], led: Iterable[TempoSpan] = ()) -> None:
        """All policies, oldest first and at least one; and what is known of leaders' changes."""
        self._policies = tuple(policies)
        self._hashes = [policy_hash(one.policy) for one in self._policies]
        self._led = sorted(led, key=lambda span: span.from_ms)

    def at(self, at_ms: int) -> BeatStamp:
        """The beat at a time."""
        meter, phases = self.in_force(at_ms)
        beat = meter.beat_at(at_ms)
        return BeatStamp(beat.index, phases.at(beat.index))

    def in_force(self, at_ms: int) -> tuple[Meter, Phases]:
        """The meter and the beats of each phase at a time."""
        place = max(bisect_right(self._policies, at_ms, key=lambda one: one.since_ms) - 1, 0)
        dated = self._policies[place]
        index = bisect_right(self._led, at_ms, key=lambda one: one.from_ms) - 1
        if index >= 0:
            span = self._led[index]
            if self._follows(span, place) or self._is_awaited(index, place):
                return span.meter, self._phases(span)
        return dated.policy.meter, dated.policy.beats

    def _follows(self, span: TempoSpan, place: int) -> bool:
        """Whether a span follows that policy; its downbeat may lie a little before the commit."""
        since_ms = self._policies[place].since_ms
        return span.policy == self._hashes[place] and span.from_ms + span.meter.bar_ms >= since_ms

    def _is_awaited(self, index: int, place: int) -> bool:
        """Whether the leader followed the policy before, and soon began to follow this one."""
        if index + 1 >= len(self._led) or not place:
            return False
        span, after = self._led[index : index + 2]
        late_ms = after.from_ms - self._policies[place].since_ms
        return (
            self._follows(span, place - 1)
            and self._follows(after, place)
            and late_ms <= BARS_TO_FOLLOW * span.meter.bar_ms
        )

    def _phases(self, span: TempoSpan) -> Phases:
        if span.phases is not None:
            return span.phases
        for dated, known in zip(self._policies, self._hashes, strict=True):
            if known == span.policy:
                return dated.policy.beats
        return phases_of_bar(span.bar_len)
