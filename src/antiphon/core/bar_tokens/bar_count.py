"""How many bars have passed, also across changes of tempo (spec §11).

There is no counter of bars, so "two bars later" is counted in downbeats. A tempo holds from the
downbeat of its change until that of the next one; the oldest one that is known also counts for the
time before it. Where a leader is followed, or the median of pulses, downbeats may shift a little at
the same tempo: the newest ones count, as if they had always been there.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.tempo.meter import Meter

KEPT: Final = 8
"""Tempi that are remembered; what is counted is a few bars old at most."""


class _Stretch(Struct, frozen=True):
    """A tempo, and from when on it was in force."""

    from_ms: int
    meter: Meter


class BarCount(Struct, frozen=True):
    """The tempi that were in force lately, oldest first."""

    stretches: tuple[_Stretch, ...]

    @classmethod
    def of(cls, meter: Meter) -> BarCount:
        """Begin with the meter that is in force."""
        return cls((_Stretch(meter.anchor_ms, meter),))

    @property
    def meter(self) -> Meter:
        """The newest one."""
        return self.stretches[-1].meter

    def noted(self, meter: Meter) -> BarCount:
        """The same with the meter that is in force now.

        One that begins earlier than others replaces them: they were learnt from a pulse that did
        not last.
        """
        if meter == self.meter:
            return self
        *before, last = self.stretches
        if (meter.bpm, meter.bar_len) == (last.meter.bpm, last.meter.bar_len):
            return BarCount((*before, replace(last, meter=meter)))
        earlier = [one for one in self.stretches if one.from_ms < meter.anchor_ms]
        return BarCount((*earlier[1 - KEPT :], _Stretch(meter.anchor_ms, meter)))

    def since(self, start_ms: int, now_ms: int) -> int:
        """How many downbeats there were after a time, up to now; 0 if that time is to come."""
        ends = [one.from_ms - 1 for one in self.stretches[1:]]
        begins = [start_ms, *(max(start_ms, end) for end in ends)]
        count = 0
        for stretch, begin, end in zip(self.stretches, begins, [*ends, now_ms], strict=True):
            until = min(end, now_ms)
            if begin < until:
                meter = stretch.meter
                passed = meter.downbeat_before(until) - meter.downbeat_before(begin)
                count += passed // meter.bar_ms
        return count
