"""Every record on a few subjects, at a cost that does not depend on the log's length.

The subject index knows the first record and the number of matches of a filter, and the newest
record of each subject. What lies between is walked backwards: each record's compare-and-set
header names the record before it on its subject, and a get by sequence costs the same
everywhere. Those headers are the publishers' words, so they are only hints: the result counts
only if it has as many records as the engine counted for every filter. If it has not, the server
is made to scan.
"""

from __future__ import annotations

from antiphon.core import subjects
from antiphon.errors import Rejected, Unavailable
from antiphon.ports import Record

from . import wire
from .records import MAX_BATCH, Records

MAX_HOPS = 32
"""Beyond this many missing records one scan is cheaper than that many round trips."""
_ATTEMPTS = 4


async def read_lane(records: Records, filters: tuple[str, ...], *, limit: int) -> list[Record]:
    """All records that match any of `filters`, oldest first."""
    for _ in range(_ATTEMPTS):
        found, counts, heads = await _survey(records, filters)
        if sum(counts.values()) > limit:
            raise Rejected(
                f"{sum(counts.values())} records lie on {', '.join(filters)}, more than {limit}",
                reason="too_large",
            )
        if not _is_complete(found, counts) and sum(counts.values()) - len(found) <= MAX_HOPS:
            await _walk_back(records, found, heads)
        if _is_complete(found, counts):
            return [found[seq] for seq in sorted(found)]
        if not _has_more(found, counts):
            found = await _scan(records, counts)
            if _is_complete(found, counts):
                return [found[seq] for seq in sorted(found)]
        # A record was committed between two of the answers: look again.
    raise Unavailable(f"{', '.join(filters)} changes faster than it can be read")


async def _survey(
    records: Records, filters: tuple[str, ...]
) -> tuple[dict[int, Record], dict[str, int], list[bytes]]:
    """The first and the newest records, how many there are, and the headers seen."""
    *firsts, newest = await records.survey(filters)
    found: dict[int, Record] = {}
    counts: dict[str, int] = {}
    heads: list[bytes] = []
    for pattern, batch in zip(filters, firsts, strict=True):
        counts[pattern] = len(batch.records) + batch.pending
    for batch in (*firsts, newest):
        for record in batch.records:
            found[record.seq] = record
        heads.extend(batch.headers)
    return found, counts, heads


async def _walk_back(records: Records, found: dict[int, Record], heads: list[bytes]) -> None:
    hops = 0
    while heads and hops <= MAX_HOPS:
        before = wire.expected_last(heads.pop())
        if not before or before in found:
            continue
        hops += 1
        held = await records.held_at(before)
        if held is not None:
            found[before] = held.record
            heads.append(held.header)


async def _scan(records: Records, counts: dict[str, int]) -> dict[int, Record]:
    found: dict[int, Record] = {}
    for pattern, count in counts.items():
        first, left = 1, count
        while left > 0:
            batch = await records.batch(first, limit=min(left, MAX_BATCH), subject=pattern)
            if not batch.records:
                break
            for record in batch.records:
                found[record.seq] = record
            left -= len(batch.records)
            first = batch.records[-1].seq + 1
    return found


def _matching(found: dict[int, Record], pattern: str) -> int:
    return sum(subjects.matches(pattern, record.subject) for record in found.values())


def _is_complete(found: dict[int, Record], counts: dict[str, int]) -> bool:
    return all(_matching(found, pattern) == count for pattern, count in counts.items())


def _has_more(found: dict[int, Record], counts: dict[str, int]) -> bool:
    return any(_matching(found, pattern) > count for pattern, count in counts.items())
