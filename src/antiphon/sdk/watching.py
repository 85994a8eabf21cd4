"""The log as it grows, judged and told in words.

A watcher needs no replica: it follows the log from now on and reads a lane once, when something
first happens on it. What it keeps is bounded, so it can run for weeks.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import seals, subjects
from antiphon.core.lanes import Lane
from antiphon.core.reasons import Reason
from antiphon.core.story import tell
from antiphon.runtime.peer import open_entry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from antiphon.core.jobs import Job
    from antiphon.core.records import Entry
    from antiphon.ports import Record
    from antiphon.runtime.node import Applied
    from antiphon.runtime.peer import Peer

LANES_KEPT: Final = 10_000


class Event(Struct, frozen=True, kw_only=True):
    """One record of the log, with what the rules said to it and what became of its job."""

    seq: int
    at_ms: int
    """The engine's commit stamp."""
    op: str
    author: str
    verdict: Reason
    words: str
    kind: str = ""
    job: str = ""
    """Empty where the record is about the mesh and not about a job."""
    state: str = ""
    """The job's state afterwards."""


def event_of(applied: Applied) -> Event:
    """What a full node's watcher is told, in words."""
    return _event(applied.entry, applied.verdict, applied.after)


def _event(entry: Entry, verdict: Reason, job: Job | None) -> Event:
    line = tell([(entry, verdict)])[0]
    kind, name = subjects.lane_of(entry.subject) or ("", "")
    return Event(
        seq=entry.seq,
        at_ms=entry.commit_ms,
        op=line.op,
        author=line.author,
        verdict=verdict,
        words=line.words,
        kind=kind,
        job=name,
        state=job.state.value if job is not None else "",
    )


@asynccontextmanager
async def watching(peer: Peer) -> AsyncIterator[AsyncIterator[list[Event]]]:
    """Batches of events from now on, in the order of the log."""
    newest = await peer.log.last()
    after = newest.seq if newest else 0
    await peer.confirm(after)
    async with aclosing(_events(peer, after)) as events:
        yield events


async def _events(peer: Peer, after: int) -> AsyncGenerator[list[Event]]:
    while True:  # a follower ends when other kinds can be read: lanes may have gone on unseen
        kept: dict[tuple[str, str], Lane] = {}
        async with peer.log.follow(after) as batches:
            async for batch in batches:
                after = batch[-1].seq
                await peer.confirm(after)
                yield [await _judged(peer, record, kept) for record in batch]
                while len(kept) > LANES_KEPT:
                    del kept[next(iter(kept))]


async def _judged(peer: Peer, record: Record, kept: dict[tuple[str, str], Lane]) -> Event:
    entry = open_entry(peer.mesh, record)
    key = subjects.lane_of(record.subject)
    if record.subject == subjects.seal(peer.mesh):
        return _event(entry, _seal_verdict(peer, entry), None)
    if key is None:
        return _event(entry, peer.control_verdicts.get(record.seq, Reason.MALFORMED), None)
    lane = kept.pop(key, None)
    if lane is None:
        lane = await peer.lanes.before(*key, record.seq)
    outcome = await peer.judge(entry, lane)
    kept[key] = outcome.lane
    return _event(entry, outcome.verdict, outcome.lane.job)


def _seal_verdict(peer: Peer, entry: Entry) -> Reason:
    """Who watches holds no log to compare a seal with: only its author's office is judged."""
    before = seals.Seals(tail=entry.op.prev if entry.op is not None else 0)
    return seals.judge(peer.history.at(entry.seq, entry.commit_ms), before, entry, None).verdict
