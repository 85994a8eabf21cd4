"""What a reader of some kinds makes sure of after it was away: purges that it did not see.

Whoever reads the whole log sees by the sequences that records are missing. Who reads some kinds
cannot. But a record is purged only if it is older than an archive's time, so who has read up to
that time has missed nothing; who has not begins anew. And a lane may go while it is being read,
after its beginning and before its end: afterwards the first record of such a lane is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.lane_archive import behind
from antiphon.core.record.branches import LaneKey
from antiphon.runtime.replica.replica_archive import ReplicaArchive

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica

AT_ONCE: Final = 256
"""How many lanes are looked for with one read."""


async def missed_some(session: Session, replica: Replica) -> bool:
    """Whether records may have been purged that this reader of some kinds has not read yet."""
    cursor = replica.cursor.seq
    if not cursor or session.log.reads == WHOLE:
        return False
    newest = replica.record(cursor)
    if newest is None or not session.may_be_purged(newest.record.commit_ms):
        return False
    if session.confirmed == 0:
        await session.feed_control(replica.control_records(), cursor)
    archive = (await session.sync_control()).archive
    if archive.seq < cursor:
        return False
    return newest.record.commit_ms - 2 * archive.drift_ms <= archive.before_ms


async def read_again(session: Session, replica: Replica) -> None:
    """Read the lanes again that were purged while their records were being read."""
    if session.log.reads == WHOLE or not (control := await session.sync_control()).archive.seq:
        return
    replica.flush()
    for family in session.protocol.families:
        if family.is_asked_again is None:
            continue
        after, is_full = 0, True
        while is_full:
            found = replica.ask(ReplicaArchive).old(
                replica.tables[family.name], control.archive.seq, limit=AT_ONCE, after=after
            )
            is_full = len(found) == AT_ONCE
            after = found[-1].first if found else after
            asked = {
                one.first: LaneKey(family.name, one.kind, one.name)
                for one in found
                if behind(control, one.lane).state is not None
            }
            there = {one.seq for one in await session.log.fetch_many(list(asked))} if asked else ()
            for seq, key in asked.items():
                if seq not in there:
                    replica.put_lane(key, (await session.read(key)).lane)
