"""Answers where a lane can be entered: beside every full node that reads the whole log.

What it tells is checked by who asked, so an answer is not signed. A question costs a few look-ups
in the replica.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.bus.subjects import ENTRY
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.lane_entry import LaneEntry, can_enter
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, EngineDenied, Rejected, Unavailable
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.node.full_node import SEAL_LANE

if TYPE_CHECKING:
    from antiphon.core.record.branches import LaneKey
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.replica.replica import Replica, StoredRecord

MOST_WAITING: Final = 64
LOOKED_AT: Final = 64
"""Accepted records that are looked at, from the seal backwards."""
MAX_SUBJECT_BYTES: Final = 256
_encode: Final = msgspec.json.Encoder().encode


class EntryService:
    """Answers for one full node until cancelled."""

    def __init__(self, node: FullNode) -> None:
        """It answers from the node's replica."""
        self._node = node

    async def run(self) -> None:
        """Listen for questions, where this node may: a member hears nobody else's."""
        with suppress(EngineDenied):
            await self._answer()

    async def _answer(self) -> None:
        session, replica = self._node.session, self._node.replica
        async with session.engine.bus.subscribe(ENTRY.at(), max_pending=MOST_WAITING) as calls:
            async for call in calls:
                if not call.reply or len(call.payload) > MAX_SUBJECT_BYTES:
                    continue
                try:
                    key = session.protocol.lane_of(call.payload.decode())
                    entry = entry_of(replica, key) if key is not None else None
                    if entry is not None:
                        await session.engine.bus.publish(call.reply, _encode(entry))
                except EngineDenied:
                    raise
                except (UnicodeError, Unavailable, Rejected, Corrupt):
                    continue  # not a subject, no engine, not an inbox: the asker reads the lane


def entry_of(replica: Replica, key: LaneKey) -> LaneEntry | None:
    """The newest sealed record at which a lane can be entered; None if there is none."""
    if not replica.tree.is_kept or not can_enter(replica.protocol, key):
        return None
    sealed = replica.newest_of(SEAL_LANE, verdict=Verdict.OK)
    seal = open_stored(replica.protocol, replica.mesh, sealed.record).op if sealed else None
    if sealed is None or not isinstance(seal, MeshSeal):
        return None
    seq = _entry_before(replica, key, seal.body.upto)
    if not seq:
        return None
    return LaneEntry(
        seq=seq,
        leaf=replica.tree.size_at(seq) - 1,
        path=tuple(replica.tree.inclusion(seq, seal.body.size)),
        seal=sealed.record.seq,
    )


def _entry_before(replica: Replica, key: LaneKey, upto: int) -> int:
    """Where the present state follows from, if that is sealed; else the newest that is."""
    family, state = replica.protocol.family(key.family), replica.lane(key).state
    newest = family.entry(state) if state is not None else 0
    if 0 < newest <= upto:
        return newest
    for stored in replica.accepted_before(key, upto + 1, limit=LOOKED_AT):
        if _is_entry(replica, stored):
            return stored.record.seq
    return 0


def _is_entry(replica: Replica, stored: StoredRecord) -> bool:
    opened = open_stored(replica.protocol, replica.mesh, stored.record)
    enter = opened.family.enter if opened.family is not None else None
    return enter is not None and enter(opened.op, opened.seq, opened.op_id) is not None
