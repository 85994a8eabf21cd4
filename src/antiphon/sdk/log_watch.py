"""The log as it grows, judged and in words.

A watcher needs no replica: it follows the log from now on and reads a lane once, when something
first happens on it. What it keeps is bounded, so it can run for weeks.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.jobs.state import HELD, Job
from antiphon.core.family import Lane
from antiphon.core.history.story import tell
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.log.session import open_stored

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.branches import LaneKey
    from antiphon.ports import Record
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.node.full_node import Applied

LANES_KEPT: Final = 10_000


class Event(Struct, frozen=True, kw_only=True):
    """One record of the log, with its verdict and the new state of its job."""

    seq: int
    at_ms: int
    """The engine's commit stamp."""
    op: str
    author: str
    verdict: Verdict
    words: str
    family: str = ""
    kind: str = ""
    job_id: str = ""
    """What it is about: a family, and the job's id or its name there; empty where the record is
    about the mesh."""
    state: str = ""
    """The job's state afterwards."""
    hlc: str = ""
    """Its author's timestamp as text."""

    @property
    def is_held(self) -> bool:
        """Whether a worker holds the job now."""
        return self.state in HELD


def event_of(applied: Applied) -> Event:
    """A full node's applied record as an event, in words."""
    return _event(applied.opened, applied.verdict, applied.after)


def _event(opened: OpenedRecord, verdict: Verdict, state: object) -> Event:
    line = tell([(opened, verdict)])[0]
    key = opened.place.key if opened.place is not None and not opened.is_control else None
    return Event(
        seq=opened.seq,
        at_ms=opened.commit_ms,
        op=line.op,
        author=line.author,
        verdict=verdict,
        words=line.words,
        family=key.family if key is not None else "",
        kind=key.kind if key is not None else "",
        job_id=key.name if key is not None else "",
        state=state.state.value if isinstance(state, Job) else "",
        hlc=line.hlc,
    )


class Events(list[Event]):
    """Events in the order of the log."""

    left_out: int = 0
    """Records of the last second beyond the limit: neither judged nor here."""


class _Pace:
    """How many records may still be judged in this second."""

    def __init__(self, per_s: int | None) -> None:
        self._per_s = per_s
        self._taken = 0
        self._ends_s = 0.0
        self.left_out = 0

    def take(self, count: int) -> int:
        """How many of so many may be judged; the others count as left out."""
        if self._per_s is None:
            return count
        taken = min(count, self._per_s - self._taken)
        self._taken += taken
        self.left_out += count - taken
        return taken

    def rest_s(self) -> float | None:
        """Until the count is due; None while there is nothing to count."""
        return max(self._ends_s - _now_s(), 0.0) if self.left_out else None

    def turn(self) -> Events:
        """A new second, if the last is over; what it left out."""
        found = Events()
        now_s = _now_s()
        if now_s >= self._ends_s:
            found.left_out, self.left_out = self.left_out, 0
            self._taken, self._ends_s = 0, now_s + 1
        return found


def _now_s() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def watching(
    session: Session, *, per_s: int | None = None
) -> AsyncIterator[AsyncIterator[Events]]:
    """Batches of events from now on, in the order of the log.

    With `per_s`, at most so many are judged in a second; the others are counted, which costs next
    to nothing.
    """
    newest = await session.log.last()
    after = newest.seq if newest else 0
    await session.confirm(after)
    async with aclosing(_events(session, after, _Pace(per_s))) as events:
        yield events


async def _events(session: Session, after: int, pace: _Pace) -> AsyncGenerator[Events]:
    while True:  # a follower ends when other kinds can be read: lanes may have changed unseen
        kept: dict[LaneKey, Lane] = {}
        async with session.log.follow(after) as follower, aclosing(_paced(follower, pace)) as paced:
            async for batch in paced:
                events = pace.turn()
                if batch:
                    after = batch[-1].seq
                    taken = pace.take(len(batch))
                    events += await _judged_all(session, batch[:taken], kept)
                    _forget(session, batch[taken:], kept)
                if events or events.left_out:
                    yield events


async def _paced(
    follower: AsyncIterator[list[Record]], pace: _Pace
) -> AsyncGenerator[list[Record]]:
    """Its batches, and an empty one when a second's count is due."""
    coming: asyncio.Future[list[Record] | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(follower, None))
            done, _ = await asyncio.wait({coming}, timeout=pace.rest_s())
            if not done:
                yield []
                continue
            batch, coming = coming.result(), None
            if batch is None:
                return
            yield batch
    finally:
        if coming is not None:
            coming.cancel()


async def _judged_all(
    session: Session, records: list[Record], kept: dict[LaneKey, Lane]
) -> list[Event]:
    if not records:
        return []
    await session.confirm(records[-1].seq)
    events = [await _judged(session, record, kept) for record in records]
    while len(kept) > LANES_KEPT:
        del kept[next(iter(kept))]
    return events


def _forget(session: Session, records: list[Record], kept: dict[LaneKey, Lane]) -> None:
    """Lanes that have changed unseen are read again when they are next needed."""
    for record in records:
        place = session.protocol.place_of(record.subject)
        if place is not None:
            kept.pop(place.key, None)


async def _judged(session: Session, record: Record, kept: dict[LaneKey, Lane]) -> Event:
    opened = open_stored(session.protocol, session.mesh, record)
    if opened.is_control:
        return _event(opened, session.control_verdicts.get(record.seq, Verdict.MALFORMED), None)
    if opened.place is None:
        return _event(opened, (await session.judge(opened, Lane())).verdict, None)
    key = opened.place.key
    lane = kept.pop(key, None)
    if lane is None and opened.op is not None and opened.family is not None:
        before = opened.family.lane_before
        lane = before(opened.op) if before is not None else None
    if lane is None:
        lane = await session.lanes.before(key, record.seq)
    outcome = await session.judge(opened, lane)
    kept[key] = outcome.lane
    return _event(opened, outcome.verdict, outcome.lane.state)
