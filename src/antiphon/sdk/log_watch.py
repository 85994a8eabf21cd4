"""The log as it grows, judged and in words.

A watcher needs no replica: it follows the log from now on and reads a lane once, when something
first happens on it. What it keeps is bounded, so it can run for weeks.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.jobs.state import HELD, Job
from antiphon.core.family import Lane
from antiphon.core.record.verdict import Verdict
from antiphon.core.story import tell
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
    )


@asynccontextmanager
async def watching(session: Session) -> AsyncIterator[AsyncIterator[list[Event]]]:
    """Batches of events from now on, in the order of the log."""
    newest = await session.log.last()
    after = newest.seq if newest else 0
    await session.confirm(after)
    async with aclosing(_events(session, after)) as events:
        yield events


async def _events(session: Session, after: int) -> AsyncGenerator[list[Event]]:
    while True:  # a follower ends when other kinds can be read: lanes may have changed unseen
        kept: dict[LaneKey, Lane] = {}
        async with session.log.follow(after) as batches:
            async for batch in batches:
                after = batch[-1].seq
                await session.confirm(after)
                yield [await _judged(session, record, kept) for record in batch]
                while len(kept) > LANES_KEPT:
                    del kept[next(iter(kept))]


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
