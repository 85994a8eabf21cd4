"""What a replica knows about locks (spec §10)."""

from __future__ import annotations

import msgspec

from antiphon.core.families.locks.state import Lock, LockLane
from antiphon.runtime.replica.replica import Queries

_decode = msgspec.msgpack.Decoder(LockLane).decode


class ReplicaLocks(Queries):
    """Queries for people who list locks."""

    def held(self, *, limit: int) -> list[Lock]:
        """Locks that were not released, the oldest first; the time of a hold may be over."""
        rows = self._db.execute(
            "select body from lanes_locks where holder is not null order by id limit ?", (limit,)
        )
        found = (_decode(row[0]).state for row in rows)
        return [lock for lock in found if lock is not None]
