"""Every record on a few subjects, at a cost that does not depend on the log's length.

The subject index knows the newest record of each subject. From there it goes backwards: a
record's compare-and-set header, which the engine enforced when it committed the record, names
the one before it on its subject, and a get by sequence costs the same everywhere. One request
therefore reads a lane in which each subject has one record, and each further record takes one
more. The heads are one snapshot and what lies behind them never changes, so the result is one
snapshot too.

A publisher chooses its own headers. A record whose headers do not prove what came before it,
because the compare-and-set is missing, written twice, or about another subject, makes the whole
lane be counted and scanned by the server instead.
"""

from __future__ import annotations

from antiphon.core import subjects
from antiphon.engines.nats import wire
from antiphon.engines.nats.heads import Held
from antiphon.engines.nats.records import MAX_BATCH, Records
from antiphon.errors import Rejected, Unavailable
from antiphon.ports import Record

MAX_HOPS = 8
"""Beyond this many single steps, counting and one scan take fewer round trips."""
_ATTEMPTS = 4


async def read_lane(
    records: Records, filters: tuple[str, ...], *, limit: int, is_replicated: bool
) -> list[Record]:
    """All records that match any of `filters`, oldest first."""
    found = await _walk_back(records, filters, is_replicated=is_replicated)
    if found is None:
        return await _count_and_scan(records, filters, limit=limit)
    if len(found) > limit:
        raise _too_large(filters, len(found), limit)
    return [found[seq] for seq in sorted(found)]


async def _walk_back(
    records: Records, filters: tuple[str, ...], *, is_replicated: bool
) -> dict[int, Record] | None:
    """The lane by its own links, or None if they are too many or prove nothing."""
    heads = await records.newest_of_each(filters)
    if heads is None:
        return None
    found: dict[int, Record] = {}
    hops = 0
    for head in heads:
        held: Held | None = head
        while held is not None:
            found[held.record.seq] = held.record
            before = wire.expected_last(held.header)
            if before is None:
                return None
            if before == 0:
                break
            hops += 1
            if hops > MAX_HOPS:
                return None
            previous = await records.held_at(before)
            if previous is None:
                if is_replicated:
                    return None  # purged, or the copy that answered lags behind
                break  # purged, and with it whatever came before
            if previous.record.subject != held.record.subject:
                return None
            held = previous
    return found


async def _count_and_scan(
    records: Records, filters: tuple[str, ...], *, limit: int
) -> list[Record]:
    """The lane as the server finds it, complete by its own count."""
    for _ in range(_ATTEMPTS):
        counts = dict(zip(filters, await records.count(filters), strict=True))
        total = sum(counts.values())
        if total > limit:
            raise _too_large(filters, total, limit)
        found: dict[int, Record] = {}
        for pattern, count in counts.items():
            await _scan(records, pattern, count, found)
        if all(_matching(found, pattern) >= count for pattern, count in counts.items()):
            return [found[seq] for seq in sorted(found)]
        # Purged under our hands, or another copy answered: look again.
    raise Unavailable(f"{', '.join(filters)} changes faster than it can be read")


async def _scan(records: Records, pattern: str, count: int, found: dict[int, Record]) -> None:
    first, left = 1, count
    while left > 0:
        batch = await records.batch(first, limit=min(left, MAX_BATCH), subject=pattern)
        if not batch.records:
            return
        for record in batch.records:
            found[record.seq] = record
        left -= len(batch.records)
        first = batch.records[-1].seq + 1


def _matching(found: dict[int, Record], pattern: str) -> int:
    return sum(subjects.matches(pattern, record.subject) for record in found.values())


def _too_large(filters: tuple[str, ...], count: int, limit: int) -> Rejected:
    return Rejected(
        f"{count} records lie on {', '.join(filters)}, more than {limit}", reason="too_large"
    )
