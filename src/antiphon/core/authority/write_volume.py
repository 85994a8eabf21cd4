"""How much was written to the log in the last hour, by kind and by author.

No server limits how much a user writes, and a verdict comes after the write: a node that may submit
or work on a kind can fill the log with records that are rejected. So full nodes count and report
who writes too much before the disk is full; the owner decides (docs/decisions/0023).

Bounds: an hour in six slots; each keeps the heaviest kinds and authors by the space-saving
algorithm, which finds every key with more than its share, however many others there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from antiphon.core.authority.grant_reach import State, appraise
from antiphon.core.ucan import covers

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control

WINDOW_MS: Final = 3_600_000
SLOT_MS: Final = WINDOW_MS // 6
KEYS_KEPT: Final = 512
"""How many kinds, and authors, one slot keeps."""
REFUSED_BYTES: Final = 64 << 20
"""More bytes of rejected records in an hour than honest members cause by losing races."""
AUTHOR_BYTES: Final = 1 << 30
"""Bytes of accepted records by one author in an hour that the owner should know about."""
CONTROL: Final = "ctl"
"""The kind of records that are not about a job."""
WRITING: Final = ("/job/schedule", "/job/claim", "/job/complete", "/job/answer")

What = Literal["kind", "author"]


class Volume(Struct):
    """What was written."""

    records: int = 0
    bytes: int = 0
    refused_bytes: int = 0

    def add(self, other: Volume) -> None:
        """Add the other volume."""
        self.records += other.records
        self.bytes += other.bytes
        self.refused_bytes += other.refused_bytes


class Excess(Struct, frozen=True, kw_only=True):
    """An author that writes too much, or a kind that too much is written on."""

    what: What
    name: str
    """The first token of a kind, or an author's id."""
    volume: Volume


class Volumes:
    """The last hour of one log, by commit time."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[tuple[What, str], Volume]] = {}
        self._kept: dict[int, dict[What, int]] = {}
        self._newest = 0

    def note(self, at_ms: int, kind: str, author: str, size: int, *, is_accepted: bool) -> None:
        """Count one record.

        `kind` is empty if it is about the mesh, `author` if it has no valid signature.
        """
        slot = at_ms // SLOT_MS
        if slot > self._newest:
            self._newest = slot
            oldest = slot - WINDOW_MS // SLOT_MS
            self._slots = {at: kept for at, kept in self._slots.items() if at > oldest}
            self._kept = {at: kept for at, kept in self._kept.items() if at > oldest}
        elif slot <= self._newest - WINDOW_MS // SLOT_MS:
            return
        refused = 0 if is_accepted else size
        self._add(slot, "kind", kind.partition(".")[0] or CONTROL, Volume(1, size, refused))
        if author:
            self._add(slot, "author", author, Volume(1, size, refused))

    def _add(self, slot: int, what: What, name: str, one: Volume) -> None:
        counted = self._slots.setdefault(slot, {})
        kept = self._kept.setdefault(slot, {"kind": 0, "author": 0})
        known = counted.get((what, name))
        if known is not None:
            known.add(one)
            return
        if kept[what] >= KEYS_KEPT:
            # Space-saving: the lightest is replaced, and the new one takes over its count.
            alike = (key for key in counted if key[0] == what)
            one.add(counted.pop(min(alike, key=lambda key: counted[key].bytes)))
            kept[what] -= 1
        counted[what, name] = one
        kept[what] += 1

    def within(self, now_ms: int) -> dict[tuple[What, str], Volume]:
        """The volumes of the hour before a moment, by kind and by author."""
        oldest = (now_ms - WINDOW_MS) // SLOT_MS
        found: dict[tuple[What, str], Volume] = {}
        for slot, counted in self._slots.items():
            if slot > oldest:
                for key, volume in counted.items():
                    found.setdefault(key, Volume()).add(volume)
        return found

    def excesses(self, now_ms: int) -> list[Excess]:
        """What the owner should look at, heaviest first."""
        found = [
            Excess(what=what, name=name, volume=volume)
            for (what, name), volume in self.within(now_ms).items()
            if volume.refused_bytes > REFUSED_BYTES
            or (what == "author" and volume.bytes > AUTHOR_BYTES)
        ]
        return sorted(found, key=lambda one: (-one.volume.bytes, one.what, one.name))


def writers(control: Control, name: str, now_s: int) -> dict[str, str]:
    """The members that may write on kinds with this first token: id to name."""
    return {
        grant.audience: grant.alias
        for grant in appraise(control, now_s)
        if grant.state is State.LIVE
        and not grant.is_powerline
        and any(covers(grant.command, command) for command in WRITING)
        and (name == CONTROL or _reaches(grant.kinds, name))
    }


def _reaches(globs: Iterable[str], name: str) -> bool:
    return any(glob == "*" or glob.partition(".")[0] == name for glob in globs)
