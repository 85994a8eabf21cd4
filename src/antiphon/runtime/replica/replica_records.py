"""What a replica knows about records and stored bytes of all families."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from antiphon.core.authority.parties import whose
from antiphon.core.family import Evicted
from antiphon.core.record.verdict import Verdict
from antiphon.ports import NANOSECONDS_PER_MS, Record
from antiphon.runtime.replica.replica import Queries

_HEAD_BYTES: Final = 2048
# Keys are sorted, and only ids of delegations come before the author's.
AUTHOR: Final = re.compile(
    rb'\A\{(?:"auth":\[(?:"(?P<auth>[a-z0-9]*)")?[a-z0-9",]*\],)?'
    rb'"author":"(?P<author>did:key:z[0-9A-Za-z]+)"'
)


class Authored(NamedTuple):
    """A record, and for whom it says that it was written."""

    seq: int
    subject: str
    is_ok: bool
    """Whether it took effect, so that it was."""
    whose: str


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

    def authored(self, since_ns: int, *, limit: int) -> list[Authored]:
        """The newest records without their content, newest first."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, verdict, substr(payload, 1, ?) from records"
            " order by seq desc limit ?",
            (_HEAD_BYTES, limit),
        )
        return [
            Authored(seq, subject, verdict == Verdict.OK, _whose(head))
            for seq, stamp_ns, subject, verdict, head in rows
            if stamp_ns >= since_ns
        ]

    def at(self, seqs: Iterable[int]) -> list[tuple[Record, Verdict]]:
        """Records at these sequences, with their verdicts."""
        sql = "select seq, stamp_ns, subject, payload, verdict from records where seq = ?"
        found = (self._db.execute(sql, (seq,)).fetchone() for seq in seqs)
        return [(Record(*row[:4]), Verdict(row[4])) for row in found if row is not None]

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


def _whose(head: bytes) -> str:
    """For whom a record says that it was written, by its first bytes; empty if it does not."""
    found = AUTHOR.match(head)
    if found is None:
        return ""
    auth = found["auth"]
    return whose((auth.decode(),) if auth else (), found["author"].decode())
