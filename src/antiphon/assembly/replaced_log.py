"""What a machine has seen of a log that was restored from an older copy since.

A full node stops where the log lacks what its replica has. A person decides: if the restored log
is the right one, what only this replica has is named, the replica is set aside, and the node
begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.assembly.mesh_connection import join
from antiphon.errors import Held
from antiphon.runtime.replica.replica import Replica

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.ports import OpLog
    from antiphon.runtime.identity.state_directory import StateDirectory
    from antiphon.runtime.log.session import Session

BESIDE: Final = ("", "-wal", "-shm")
"""What the files of a replica end with."""


class LostRecord(Struct, frozen=True, kw_only=True):
    """A record that this machine saw and the log no longer has."""

    seq: int
    commit_ms: int
    op: str
    author: str
    kind: str
    name: str
    """What it is about: a job's id, a lock's key, a document's path."""
    verdict: str


class Accepted(Struct, frozen=True, kw_only=True):
    """What is lost, and where this machine's copy of it is."""

    agreed: int
    """Up to this record the log is the one that this machine saw."""
    lost: tuple[LostRecord, ...]
    kept: Path | None
    """The replica that was set aside; None if the log has all that this machine saw."""


async def accept_replaced(home: StateDirectory) -> Accepted:
    """Compare the log with this machine's replica; set that aside if the log lacks some of it."""
    described = home.mesh()
    if not home.replica.exists():
        return Accepted(agreed=0, lost=(), kept=None)
    try:
        lock = home.lock_replica()
    except Held as held:
        raise Held(held.message, hint="stop the full node of this machine first") from held
    try:
        replica = Replica(home.replica, mesh=described.mesh)
        try:
            async with join(home, "client") as connection:
                session = connection.session
                agreed = await _agreed(session.log, replica)
                lost = _lost(session, replica, agreed)
            newest = replica.cursor.seq
        finally:
            replica.close()
        kept = _set_aside(home.replica, newest) if lost else None
    finally:
        lock.release()
    return Accepted(agreed=agreed, lost=lost, kept=kept)


async def _agreed(log: OpLog, replica: Replica) -> int:
    """The newest record of the replica that the log has, too: up to there they are the same."""
    low, high = 0, replica.cursor.seq
    while low < high:
        middle = (low + high + 1) // 2
        stored = replica.record(middle)
        found = await log.fetch(middle)
        if found is None:
            is_same = await log.reaches(middle)  # purged, or outside of what this machine reads
        else:
            is_same = stored is None or stored.is_of(found)
        low, high = (middle, high) if is_same else (low, middle - 1)
    return low


def _lost(session: Session, replica: Replica, agreed: int) -> tuple[LostRecord, ...]:
    found: list[LostRecord] = []
    for seq in range(agreed + 1, replica.cursor.seq + 1):
        stored = replica.record(seq)
        if stored is None:
            continue
        opened = session.open(stored.record)
        key = opened.place.key if opened.place is not None else None
        found.append(
            LostRecord(
                seq=seq,
                commit_ms=stored.record.commit_ms,
                op=opened.op.type_name() if opened.op is not None else "",
                author=opened.op.author if opened.op is not None else "",
                kind=key.kind if key is not None else "",
                name=key.name if key is not None else "",
                verdict=stored.verdict.value,
            )
        )
    return tuple(found)


def _set_aside(replica: Path, newest: int) -> Path:
    kept = replica.with_name(f"replica-lost-{newest}.db")
    for end in BESIDE:
        path = replica.with_name(replica.name + end)
        if path.exists():
            path.replace(kept.with_name(kept.name + end))
    return kept
