"""Time in addresses: `JOB;beats=^^4;phase=work` (spec §11).

`^^N` is N beats from now, `~~N` was N beats ago. The older suffix `;bar=…#beat=…` named a place by
counters that nobody has; it is read as now, with a warning.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import PHASES, Phase, Phases
from antiphon.errors import Malformed

_BEATS: Final = re.compile(r"(\^\^|~~)(\d{1,7})", re.ASCII)
_OLD: Final = re.compile(r";bar=\d+(?:#beat=(\d+))?", re.ASCII)


class Address(Struct, frozen=True):
    """What is meant, and when."""

    what: str
    beats: int = 0
    """From now; negative: ago."""
    phase: Phase | None = None
    warning: str = ""

    def at_ms(self, meter: Meter, now_ms: int) -> int:
        """The beginning of the beat that is meant."""
        return meter.beat_at(now_ms).epoch_ms + self.beats * meter.beat_ms

    @property
    def is_timed(self) -> bool:
        """Whether it says when."""
        return self.beats != 0 or self.phase is not None

    def begins_ms(self, meter: Meter, phases: Phases, now_ms: int) -> int:
        """When something that is addressed begins: not before that beat, and in that phase."""
        if self.beats < 0:
            raise _fault("what is yet to begin cannot lie in the past")
        at_ms = self.at_ms(meter, now_ms) if self.beats else now_ms
        beat = meter.beat_at(at_ms)
        if self.phase in {None, phases.at(beat.index)}:
            return at_ms
        for _ in range(meter.bar_len):
            beat = meter.next_beat(beat.epoch_ms)
            if phases.at(beat.index) == self.phase:
                break
        return beat.epoch_ms

    def includes(self, at_ms: int, meter: Meter, phases: Phases, now_ms: int) -> bool:
        """Whether something that happened belongs to it: up to that beat, and in that phase."""
        if self.beats > 0:
            raise _fault("what has happened cannot lie in the future")
        if self.beats < 0 and at_ms >= self.at_ms(meter, now_ms) + meter.beat_ms:
            return False
        return self.phase in {None, phases.at(meter.beat_at(at_ms).index)}


def parse_address(text: str) -> Address:
    """The parts of an address; a text without a suffix is all `what`, and now."""
    old = _OLD.search(text)
    warning = ""
    if old is not None:
        text = text[: old.start()] + text[old.end() :]
        warning = f"{old[0]} is deprecated and read as now: write ;beats=^^N or ;beats=~~N"
    what, *suffixes = text.split(";")
    beats, phase = 0, None
    seen: set[str] = set()
    for suffix in suffixes:
        name, _, value = suffix.partition("=")
        found = _BEATS.fullmatch(value)
        if name in seen:
            raise _fault(f"{name} is given twice")
        seen.add(name)
        if name == "beats" and found is not None:
            beats = int(found[2]) if found[1] == "^^" else -int(found[2])
        elif name == "phase" and value in PHASES:
            phase = next(one for one in PHASES if one == value)
        else:
            raise _fault(f";{suffix} is no time")
    return Address(what, beats, phase, warning)


def _fault(why: str) -> Malformed:
    return Malformed(
        f"the address cannot be read: {why}",
        reason="address",
        hint="write ;beats=^^4 (in four beats), ;beats=~~4 (four beats ago), ;phase=work",
    )
