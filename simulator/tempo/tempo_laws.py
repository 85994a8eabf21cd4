"""What must hold of beats, whatever happens to those who send them (spec §11).

    one_leader     no leader sends after a newer one has sent. (A new leader that did not hear the
                   last beat of the old one may send that beat again; nobody follows it twice.)
    followed_once  a listener follows at most one leader's frame in each beat, and never goes back
                   to an older term while it hears a newer one
    on_downbeats   the tempo, the phases and the policy change on downbeats, by one bpm a minute
    takeover       two beats after a leader died, another one is heard
    equal_reports  two readers report a bar alike once both have heard all (`report_readers.py`)
    goes_on        every listener counts beats all the time, at the tempo: 1 % off at most

Everything is derived from frames as they were sent and followed, by the world's own clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from antiphon.core.tempo.messages import BeatFrame
from antiphon.core.tempo.meter import Beat
from antiphon.core.tempo.time_text import parse_time
from simulator.checks.laws import Violation

TAKEOVER_BEATS: Final = 2.0
DRIFT: Final = 0.01
LONGEST_BEATS: Final = 2.2
"""Between two beats of one listener; joining a pulse that counts elsewhere costs one."""
MINUTE_MS: Final = 60_000


class Sent(Struct, frozen=True):
    """A frame, and when it was sent or followed."""

    at_s: float
    frame: BeatFrame

    @property
    def epoch_ms(self) -> int:
        """When its beat began, in the time of the pulse."""
        return parse_time(self.frame.beat_epoch)


class Counted(Struct):
    """What one listener counted."""

    name: str
    began_s: float
    first_ms: int
    last_s: float = 0.0
    last_ms: int = 0
    longest_s: float = 0.0
    beats: int = 0

    def count(self, at_s: float, beat: Beat) -> None:
        """One more beat began."""
        self.longest_s = max(self.longest_s, at_s - (self.last_s or self.began_s))
        self.last_s, self.last_ms = at_s, beat.epoch_ms
        self.beats += 1


def one_leader(sent: list[Sent]) -> Iterator[Violation]:
    """In the order in which frames were sent."""
    newest = 0
    for one in sent:
        term = one.frame.revision
        if 0 < term < newest:
            yield Violation("one_leader", f"term {term} at {one.at_s:.1f} s, after term {newest}")
        newest = max(newest, term)


def followed_once(name: str, followed: list[Sent]) -> Iterator[Violation]:
    """One listener's."""
    beats, last = dict[int, int](), None
    for one in followed:
        term = one.frame.revision
        if not term:
            continue
        if beats.setdefault(one.epoch_ms, term) != term:
            yield Violation("followed_once", f"{name} followed two leaders at {one.at_s:.1f} s")
        is_soon = last is not None and one.at_s - last.at_s < last.frame.meter.bar_ms / 1000
        if last is not None and is_soon and term < last.frame.revision:
            yield Violation("followed_once", f"{name} went back to term {term}")
        last = one


def on_downbeats(sent: list[Sent]) -> Iterator[Violation]:
    """All leaders' frames, in the order in which they were sent."""
    last, changed_ms = None, None
    for one in sent:
        if not one.frame.revision:
            continue
        if last is not None and _law_of(last) != _law_of(one):
            meter = last.frame.meter
            downbeat_ms = meter.downbeat_after(last.epoch_ms)
            is_gap = one.epoch_ms - last.epoch_ms >= meter.bar_ms
            begun_ms = one.frame.meter.anchor_ms
            if not is_gap and begun_ms != downbeat_ms:
                yield Violation("on_downbeats", f"a change within a bar at {one.at_s:.1f} s")
            step = abs(one.frame.tempo_bpm - last.frame.tempo_bpm)
            if step > 1 and one.frame.policy_hash == last.frame.policy_hash:
                yield Violation("on_downbeats", f"a step of {step} bpm at {one.at_s:.1f} s")
            if step:
                if changed_ms is not None and downbeat_ms - changed_ms < MINUTE_MS:
                    yield Violation("on_downbeats", f"two steps in a minute at {one.at_s:.1f} s")
                changed_ms = downbeat_ms  # at the earliest: the frames of that bar may be missing
        last = one


def _law_of(one: Sent) -> tuple[object, ...]:
    return one.frame.tempo_bpm, one.frame.phases, one.frame.policy_hash


def takeover(died_s: list[float], sent: list[Sent]) -> Iterator[tuple[float, Violation | None]]:
    """How many beats each takeover took, and whether that was too long."""
    for at_s in died_s:
        before = next(
            (one for one in reversed(sent) if one.at_s <= at_s and one.frame.revision), None
        )
        if before is None:
            continue
        beat_s = before.frame.beat_ms / 1000
        term = before.frame.revision
        after = next((one for one in sent if one.frame.revision > term), None)
        beats = (after.at_s - at_s) / beat_s if after is not None else float("inf")
        late = Violation("takeover", f"{beats:.2f} beats after {at_s:.1f} s")
        yield beats, late if beats > TAKEOVER_BEATS else None


def goes_on(one: Counted, ended_s: float, beat_ms: int) -> Iterator[Violation]:
    """One listener's counting."""
    if one.longest_s > LONGEST_BEATS * beat_ms / 1000:
        yield Violation("goes_on", f"{one.name} waited {one.longest_s:.1f} s for a beat")
    if drift(one) > DRIFT or ended_s - one.last_s > LONGEST_BEATS * beat_ms / 1000:
        yield Violation("goes_on", f"{one.name} is {drift(one):.2%} off")


def drift(one: Counted) -> float:
    """How far the counted time is from the time that passed, as a part of it."""
    passed_s = one.last_s - one.began_s
    return abs((one.last_ms - one.first_ms) / 1000 - passed_s) / passed_s if passed_s else 0.0
