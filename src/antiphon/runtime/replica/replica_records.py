"""What a replica knows about records and stored bytes of all families."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.core.family import Evicted
from antiphon.core.record.verdict import Verdict
from antiphon.ports import NANOSECONDS_PER_MS, Record
from antiphon.runtime.replica.replica import Queries

_HEAD_BYTES: Final = 2048


class ReplicaRecords(Queries):
    """The newest records, whichever lanes they are on."""

    def newest(
        self, since_ns: int, *, limit: int
    ) -> Iterator[tuple[int, str, Verdict, int, bytes]]:
        """Of the newest records, newest first: stamp in ms, subject, verdict, size, first bytes."""
        rows = self._db.execute(
            "select stamp_ns, subject, verdict, length(payload), substr(payload, 1, ?)"
            " from records order by seq desc limit ?",
            (_HEAD_BYTES, limit),
        )
        for stamp_ns, subject, verdict, size, head in rows:
            if stamp_ns < since_ns:
                return
            yield stamp_ns // NANOSECONDS_PER_MS, subject, Verdict(verdict), size, head

    def refused(self, before: int, *, limit: int) -> list[tuple[int, int, str, Verdict]]:
        """Records before a sequence that took no effect, newest first: where, when, about what."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, verdict from records"
            " where verdict != 'ok' and seq < ? order by seq desc limit ?",
            (before, limit),
        )
        return [
            (seq, stamp_ns // NANOSECONDS_PER_MS, subject, Verdict(verdict))
            for seq, stamp_ns, subject, verdict in rows
        ]

    def sizes(self, since_ns: int, *, limit: int) -> Iterator[tuple[int, str, Verdict, int]]:
        """Of the newest records, newest first: stamp in ms, subject, verdict, bytes."""
        rows = self._db.execute(
            "select stamp_ns, subject, verdict, length(payload) from records"
            " order by seq desc limit ?",
            (limit,),
        )
        for stamp_ns, subject, verdict, size in rows:
            if stamp_ns < since_ns:
                return
            yield stamp_ns // NANOSECONDS_PER_MS, subject, Verdict(verdict), size

    def latest(self, since_ns: int, *, limit: int) -> list[tuple[Record, Verdict]]:
        """The newest records whole, oldest first."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, payload, verdict from records"
            " order by seq desc limit ?",
            (limit,),
        )
        found = [(Record(*row[:4]), Verdict(row[4])) for row in rows if row[1] >= since_ns]
        return found[::-1]

    def newest_beside(self, subject: str) -> int:
        """The newest sequence that is not on this subject; 0 if there is none."""
        row = self._db.execute(
            "select seq from records where subject != ? order by seq desc limit 1", (subject,)
        ).fetchone()
        return int(row[0]) if row else 0


class ReplicaBlobs(Queries):
    """The bytes that lanes still need, and those that they gave up."""

    def settle_eviction(self, digest_: str) -> None:
        """Delete an eviction whose bytes are removed, or needed after all."""
        self._db.execute("delete from evicted where digest = ?", (digest_,))

    def is_needed(self, digest: str) -> bool:
        """Whether an unfinished job reads it, or a finished job still keeps it."""
        row = self._db.execute("select 1 from named where digest = ? limit 1", (digest,)).fetchone()
        return row is not None

    def evicted_before(self, at_ms: int, *, limit: int) -> list[Evicted]:
        """What was evicted before this and is not settled yet."""
        rows = self._db.execute(
            "select digest, named_as from evicted where at_ms < ? order by at_ms limit ?",
            (at_ms, limit),
        )
        return [Evicted(*row) for row in rows]
