"""Whether a run has exceeded its budget, and when to look next (spec §11).

Pure: the runtime says what time it is, which meter is in force and what was used, as often as this
asks for it. Beats are counted in thousandths by the machine's own clock; bars by the meter, on
whose downbeats alone the tempo changes.

A ceiling holds for each beat of the meter. If a look comes late, what was used since the beat began
is compared with as many times the ceiling as beats have passed.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from antiphon.core.cost.job_cost import NANO, Spent, price
from antiphon.core.cost.rates import Rates
from antiphon.core.cost.usage import MICRO, MILLI, Resources, of_class, primitives
from antiphon.core.cost.words import amount_text, beats_words, decimal_text
from antiphon.core.tempo.budget import BeatCeilings, Budget
from antiphon.core.tempo.meter import Meter

OVER_BUDGET: Final = "OverBudget"
"""The name of the error with which such a job ends."""
LOOKS_PER_BEAT: Final = 8
"""How often resources are compared with their caps within a beat."""
SHORTEST_MS: Final = 50
LONGEST_MS: Final = 60_000
_MICRO_BEAT: Final = 1_000_000


class BeatCount:
    """Counts the beats of a run, also while the tempo changes."""

    def __init__(self) -> None:
        """None yet."""
        self._micro = 0
        self._counted_ms = 0

    def count(self, elapsed_ms: int, beat_ms: int) -> None:
        """So much time has passed since the start; the last of it with beats of this length."""
        ahead_ms = max(elapsed_ms - self._counted_ms, 0)
        self._micro += ahead_ms * _MICRO_BEAT // beat_ms
        self._counted_ms += ahead_ms

    @property
    def milli(self) -> int:
        """Beats in thousandths."""
        return self._micro * MILLI // _MICRO_BEAT


class Exceeded(Struct, frozen=True, kw_only=True):
    """A cap that was exceeded."""

    cap: str
    """Its key in the budget, such as `per_bu.cpu_sec`."""
    words: str

    @property
    def message(self) -> str:
        """For the job's error: what happened, and what to do."""
        return (
            f"{self.words} ({self.cap}). Submit it again with a larger {self.cap} in its budget,"
            " or let it do less"
        )


class BudgetWatch:
    """One run under its budget."""

    def __init__(
        self,
        budget: Budget,
        *,
        kind: str,
        earlier: Spent,
        rates: Rates | None,
        start_ms: int,
        meter: Meter,
    ) -> None:
        """`earlier` is what previous tenures of the job used; `start_ms` a wall time."""
        self._budget = budget
        self._kind = kind
        self._earlier = earlier
        self._rates = rates
        self._ceilings = dict(ceilings(budget.per_bu))
        self._bars_left = budget.bars
        self._downbeat_ms = meter.downbeat_after(start_ms)
        self._beat_ms = meter.beat_at(start_ms).epoch_ms
        self._at_beat: dict[str, int] = {}

    @property
    def needs_usage(self) -> bool:
        """Whether it has to know what was used, and not only what time it is."""
        return bool(self._ceilings) or self._budget.max_cost is not None

    def look(
        self, now_ms: int, meter: Meter, *, beats_milli: int, used: Resources
    ) -> Exceeded | None:
        """The cap that is exceeded now, if one is. `beats_milli` are this tenure's."""
        return (
            self._beats(beats_milli)
            or self._bars(now_ms, meter)
            or self._in_this_beat(now_ms, meter, used)
            or self._cost(beats_milli, used)
        )

    def next_look_ms(self, now_ms: int, meter: Meter, *, beats_milli: int) -> int:
        """How long it may take until the next look."""
        waits = [LONGEST_MS]
        if self._budget.max_bu is not None:
            left = self._budget.max_bu * MILLI - self._earlier.beats_milli - beats_milli
            waits.append(-(-left * meter.beat_ms // MILLI))
        if self._bars_left is not None:
            waits.append(self._downbeat_ms - now_ms)
        if self.needs_usage:
            beat_ends_ms = meter.beat_at(now_ms).epoch_ms + meter.beat_ms
            waits += [meter.beat_ms // LOOKS_PER_BEAT, beat_ends_ms - now_ms]
        return max(min(waits), SHORTEST_MS if self.needs_usage else 1)

    def _beats(self, beats_milli: int) -> Exceeded | None:
        most = self._budget.max_bu
        total = self._earlier.beats_milli + beats_milli
        if most is None or total < most * MILLI:
            return None
        tried = " in all its attempts" if self._earlier.beats_milli else ""
        used = beats_words(total)
        return Exceeded(cap="max_bu", words=f"it used {used}{tried}, and may use {most}")

    def _bars(self, now_ms: int, meter: Meter) -> Exceeded | None:
        if self._bars_left is None:
            return None
        while now_ms >= self._downbeat_ms and self._bars_left > 0:
            self._bars_left -= 1
            self._downbeat_ms = meter.downbeat_after(self._downbeat_ms)
        if self._bars_left > 0:
            return None
        end = self._budget.hard_end
        return Exceeded(cap="hard_end", words=f"it was still running at {end}, its end")

    def _in_this_beat(self, now_ms: int, meter: Meter, used: Resources) -> Exceeded | None:
        if not self._ceilings:
            return None
        known = dict(primitives(used))
        beat_ms = meter.beat_at(now_ms).epoch_ms
        # A look that comes late covers more than a beat, and as much more may be used.
        covered_ms = max(now_ms - self._beat_ms, meter.beat_ms)
        found = None
        for name, most in self._ceilings.items():
            spent = known.get(name, 0) - self._at_beat.get(name, 0)
            if spent * meter.beat_ms > most * covered_ms:
                much, may = decimal_text(spent, 6), decimal_text(most, 6)
                beats = decimal_text(covered_ms * 10 // meter.beat_ms, 1)
                within = "one beat" if beats == "1" else f"{beats} beats"
                words = f"it used {much} {name} within {within}, and may use {may} in each"
                found = Exceeded(cap=f"per_bu.{name}", words=words)
                break
        if beat_ms > self._beat_ms:
            self._beat_ms, self._at_beat = beat_ms, known
        return found

    def _cost(self, beats_milli: int, used: Resources) -> Exceeded | None:
        most, rates = self._budget.max_cost, self._rates
        if most is None or rates is None:
            return None
        earlier = self._earlier.amount_nano if self._earlier.currency == rates.currency else 0
        nano = earlier + price(rates, self._kind, beats_milli=beats_milli, used=used).nano
        if nano <= most * (NANO // MILLI):
            return None
        words = (
            f"it cost {amount_text(nano)} {rates.currency}, and may cost {decimal_text(most, 3)}"
        )
        return Exceeded(cap="max_cost", words=words)


def ceilings(given: BeatCeilings) -> list[tuple[str, int]]:
    """The ceilings by the names of their primitives, in millionths."""
    single = {
        "cpu_sec": given.cpu_sec,
        "mem_gbs": given.mem_gbs,
        "disk_io_mb": given.disk_io_mb,
        "net_egress_mb": given.net_egress_mb,
    }
    found = [(name, milli) for name, milli in single.items() if milli is not None]
    for primitive, by_class in (("gpu_sec", given.gpu_sec), ("accel_sec", given.accel_sec)):
        found += [(of_class(primitive, device), milli) for device, milli in by_class]
    return [(name, milli * (MICRO // MILLI)) for name, milli in found]
