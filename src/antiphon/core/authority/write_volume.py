"""How much was written to the log lately: on which kinds, and by whom.

No server limits what a user writes, and a verdict comes after the writing: whoever may call or work
on a kind can fill the log with records that everybody refuses. So full nodes count, and say who
writes too much before the disk is full; the owner decides (docs/decisions/0023).

Bounds: an hour in six slots; in each the heaviest kinds and authors by space-saving, which finds
every key that has more than its share of the whole, however many others there are.
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
"""Kinds, and authors, that are told apart in one slot."""
REFUSED_BYTES: Final = 64 << 20
"""Refused records in an hour that are no accident: honest members lose races, and little else."""
AUTHOR_BYTES: Final = 1 << 30
"""Accepted records of one author in an hour that an owner should know of."""
CONTROL: Final = "ctl"
"""Stands for the kind of records that are about no job."""
WRITING: Final = ("/job/schedule", "/job/claim", "/job/complete")

What = Literal["kind", "author"]


class Volume(Struct):
    """What was written."""

    records: int = 0
    bytes: int = 0
    refused_bytes: int = 0

    def add(self, other: Volume) -> None:
        """Count the other as well."""
        self.records += other.records
        self.bytes += other.bytes
        self.refused_bytes += other.refused_bytes


class Excess(Struct, frozen=True, kw_only=True):
    """Somebody, or something, that is written more than it should be."""

    what: What
    name: str
    """The first word of a kind, or an author's id."""
    volume: Volume


class Volumes:
    """The last hour of one log, by the engine's stamps."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[tuple[What, str], Volume]] = {}
        self._kept: dict[int, dict[What, int]] = {}
        self._newest = 0

    def note(self, at_ms: int, kind: str, author: str, size: int, *, is_accepted: bool) -> None:
        """One record.

        `kind` is empty where it is about the mesh, `author` where nobody's signature is on it.
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
            # The lightest makes room, and whoever comes takes its count over.
            alike = (key for key in counted if key[0] == what)
            one.add(counted.pop(min(alike, key=lambda key: counted[key].bytes)))
            kept[what] -= 1
        counted[what, name] = one
        kept[what] += 1

    def within(self, now_ms: int) -> dict[tuple[What, str], Volume]:
        """The hour before a moment, by kind and by author."""
        oldest = (now_ms - WINDOW_MS) // SLOT_MS
        found: dict[tuple[What, str], Volume] = {}
        for slot, counted in self._slots.items():
            if slot > oldest:
                for key, volume in counted.items():
                    found.setdefault(key, Volume()).add(volume)
        return found

    def excesses(self, now_ms: int) -> list[Excess]:
        """What an owner should look at, the heaviest first."""
        found = [
            Excess(what=what, name=name, volume=volume)
            for (what, name), volume in self.within(now_ms).items()
            if volume.refused_bytes > REFUSED_BYTES
            or (what == "author" and volume.bytes > AUTHOR_BYTES)
        ]
        return sorted(found, key=lambda one: (-one.volume.bytes, one.what, one.name))


def writers(control: Control, name: str, now_s: int) -> dict[str, str]:
    """Who may write on the kinds that begin with a word, by id: what they are called."""
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
