"""Time in addresses: `JOB;beats=^^4;phase=work` (spec §11).

`^^N` is N beats from now, `~~N` was N beats ago; `;seconds=` takes the same in seconds. The older
suffix `;bar=…#beat=…` named a place by counters that nobody has; it is read as now, with a warning.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import PHASES, Phase, Phases
from antiphon.errors import Malformed

_DISTANCE: Final = re.compile(r"(\^\^|~~)(\d{1,7})", re.ASCII)
_OLD: Final = re.compile(r";bar=\d+(?:#beat=(\d+))?", re.ASCII)


class Address(Struct, frozen=True):
    """What is meant, and when."""

    what: str
    beats: int = 0
    """From now; negative: ago."""
    seconds: int = 0
    """Likewise, and not together with beats."""
    phase: Phase | None = None
    warning: str = ""

    def at_ms(self, meter: Meter, now_ms: int) -> int:
        """The moment that is meant, or the beginning of the beat."""
        if self.seconds:
            return now_ms + self.seconds * 1000
        return meter.beat_at(now_ms).epoch_ms + self.beats * meter.beat_ms

    @property
    def is_timed(self) -> bool:
        """Whether it says when."""
        return self.ahead != 0 or self.phase is not None

    @property
    def ahead(self) -> int:
        """How far from now, in beats or in seconds; negative: ago."""
        return self.beats or self.seconds

    def begins_ms(self, meter: Meter, phases: Phases, now_ms: int) -> int:
        """When something that is addressed begins: not before that beat, and in that phase."""
        if self.ahead < 0:
            raise _fault("what is yet to begin cannot lie in the past")
        at_ms = self.at_ms(meter, now_ms) if self.ahead else now_ms
        beat = meter.beat_at(at_ms)
        if self.phase in {None, phases.at(beat.index)}:
            return at_ms
        for _ in range(meter.bar_len):
            beat = meter.next_beat(beat.epoch_ms)
            if phases.at(beat.index) == self.phase:
                break
        return beat.epoch_ms

    def includes(self, at_ms: int, phase: Phase, meter: Meter, now_ms: int) -> bool:
        """Whether something that happened in a phase belongs to it; the meter is that of now."""
        if self.ahead > 0:
            raise _fault("what has happened cannot lie in the future")
        last_ms = self.at_ms(meter, now_ms) + (meter.beat_ms - 1 if self.beats else 0)
        if self.ahead < 0 and at_ms > last_ms:
            return False
        return self.phase in {None, phase}


def parse_address(text: str) -> Address:
    """The parts of an address; a text without a suffix is all `what`, and now."""
    old = _OLD.search(text)
    warning = ""
    if old is not None:
        text = text[: old.start()] + text[old.end() :]
        warning = f"{old[0]} is deprecated and read as now: write ;beats=^^N or ;beats=~~N"
    what, *suffixes = text.split(";")
    ahead, phase = {"beats": 0, "seconds": 0}, None
    seen: set[str] = set()
    for suffix in suffixes:
        name, _, value = suffix.partition("=")
        found = _DISTANCE.fullmatch(value)
        if name in seen:
            raise _fault(f"{name} is given twice")
        seen.add(name)
        if name in ahead and found is not None:
            ahead[name] = int(found[2]) if found[1] == "^^" else -int(found[2])
        elif name == "phase" and value in PHASES:
            phase = next(one for one in PHASES if one == value)
        else:
            raise _fault(f";{suffix} is no time")
    if all(ahead.values()):
        raise _fault("beats and seconds are both given")
    return Address(what, phase=phase, warning=warning, **ahead)


def _fault(why: str) -> Malformed:
    return Malformed(
        f"the address cannot be read: {why}",
        reason="address",
        hint="write ;beats=^^4 (in four beats), ;beats=~~4 (four beats ago), ;phase=work; or in"
        " seconds, ;seconds=~~30",
    )
