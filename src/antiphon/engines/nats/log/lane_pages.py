"""Every record on a few subjects, at a cost that does not depend on the log's length.

The subject index knows the newest record of each subject. From there it goes backwards: a
record's compare-and-set header, which the engine enforced when it committed the record, names
the one before it on its subject, and a get by sequence costs the same everywhere. One request
therefore reads a lane in which each subject has one record, and each further record takes one
more. The heads are one snapshot and what is behind them never changes, so the result is one
snapshot too.

A publisher chooses its own headers, and may write as much as it likes. A lane that is long, or
that holds a record whose headers do not prove what came before it (the compare-and-set is missing,
written twice, or about another subject), is read forwards instead, a page of each subject at a
time, up to what was the newest record of the log when the reading began.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.log.direct_get import DirectGet
from antiphon.engines.nats.log.newest_records import Held
from antiphon.ports import Page, Record

MAX_HOPS: Final = 8
"""Beyond this many single steps, reading forwards takes fewer round trips."""
PAGE_RECORDS: Final = 1024


class Readable(Protocol):
    """What a lane is read from."""

    @property
    def records(self) -> DirectGet:
        """Single records."""

    @property
    def is_replicated(self) -> bool:
        """Whether a copy that answers may lag behind."""

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """See `ports.OpLog.read`."""

    async def newest_seq(self) -> int:
        """The newest sequence of all."""

    async def next_certain(self, after: int, subject: str) -> Record | None:
        """The first matching record above `after`, from a copy that does not lag."""


async def lane_pages(
    log: Readable, filters: tuple[str, ...], *, after: int
) -> AsyncIterator[list[Record]]:
    """All records above `after` that match any of `filters`, oldest first, page by page."""
    if not filters:
        return
    found = await _walk_back(log.records, filters, after=after)
    if found is None:
        async for page in _forwards(log, filters, after):
            yield page
    elif found:
        yield [found[seq] for seq in sorted(found)]


async def _walk_back(
    records: DirectGet, filters: tuple[str, ...], *, after: int
) -> dict[int, Record] | None:
    """The lane by its own links, or None if they are too many or prove nothing."""
    heads = await records.newest_of_each(filters)
    if heads is None:
        return None
    found: dict[int, Record] = {}
    hops = 0
    for head in heads:
        held: Held | None = head
        while held is not None and held.record.seq > after:
            found[held.record.seq] = held.record
            before = wire.expected_last(held.header)
            if before is None:
                return None
            if before <= after:
                break
            hops += 1
            if hops > MAX_HOPS:
                return None
            previous = await records.held_at(before)
            if previous is None or previous.record.subject != held.record.subject:
                return None  # purged, perhaps just now, or the copy that answered lags behind
            held = previous
    return found


async def short_lanes(
    records: DirectGet, lanes: Sequence[Sequence[str]]
) -> list[list[Record] | None]:
    """Several lanes by their links, one step of all of them at a time; None for the others.

    The heads of all of them are one read, and what is behind them one round of reads for each
    record that the longest of their subjects has.
    """
    lane_of = {subject: at for at, lane in enumerate(lanes) for subject in lane}
    heads = await records.newest_of_each(tuple(lane_of)) if lane_of else []
    if heads is None:
        return [None] * len(lanes)
    found: list[dict[int, Record] | None] = [{} for _ in lanes]
    steps = heads
    for _ in range(MAX_HOPS + 1):
        behind: dict[int, str] = {}
        for held in steps:
            at = lane_of[held.record.subject]
            known, before = found[at], wire.expected_last(held.header)
            if known is None or before is None:
                found[at] = None
                continue
            known[held.record.seq] = held.record
            if before:
                behind[before] = held.record.subject
        if not behind:
            break
        earlier = await records.held_at_each(tuple(behind))
        steps = []
        for seq, subject in behind.items():
            one = earlier.get(seq)
            if one is not None and one.record.subject == subject:
                steps.append(one)
            else:
                found[lane_of[subject]] = None
    else:
        for held in steps:
            found[lane_of[held.record.subject]] = None
    return [None if known is None else [known[seq] for seq in sorted(known)] for known in found]


class _Part(Struct):
    """What was read of one subject filter and not handed out yet."""

    pattern: str
    at: int
    waiting: list[Record]
    is_whole: bool = False
    """Nothing more of the moment that is being read will come."""


async def _forwards(
    log: Readable, filters: tuple[str, ...], after: int
) -> AsyncIterator[list[Record]]:
    """The parts of a lane side by side, merged as far as all of them are known."""
    moment = await log.newest_seq()
    parts = [_Part(pattern, after, []) for pattern in filters]
    while not all(part.is_whole and not part.waiting for part in parts):
        hungry = [part for part in parts if not part.waiting and not part.is_whole]
        await asyncio.gather(*(_read_on(log, part, moment) for part in hungry))
        known = min((part.at for part in parts if not part.is_whole), default=moment)
        page: dict[int, Record] = {}
        for part in parts:
            for record in part.waiting:
                if record.seq <= known:
                    page[record.seq] = record
            part.waiting = [record for record in part.waiting if record.seq > known]
        if page:
            yield [page[seq] for seq in sorted(page)]


async def _read_on(log: Readable, part: _Part, moment: int) -> None:
    """One more page of a part. Its end is believed of a copy that is known to hold the moment."""
    page = await log.read(part.at, limit=PAGE_RECORDS, subject=part.pattern)
    part.waiting = page.records
    is_last = not page.more
    if is_last and log.is_replicated:
        reached = page.records[-1].seq if page.records else part.at
        missing = await log.next_certain(reached, part.pattern) if reached < moment else None
        if missing is not None:
            part.waiting = [*page.records, missing]
            is_last = False
    if part.waiting:
        part.at = part.waiting[-1].seq
    part.is_whole = is_last or part.at >= moment
    part.waiting = [record for record in part.waiting if record.seq <= moment]
