"""Reads a lane page by page, and judges the records as the pages arrive.

Every node with permission to work on a kind may write on its lanes, as much as it likes. So a
reader holds one page at a time, keeps the records that took effect and the newest of the rest,
and remembers how far it has judged long lanes: hostile records cost each reader one read.

What was judged stays judged until an archive comes (spec §7.5): behind it a lane may have ended,
been emptied and been purged, unseen by who knew it before. So a reader goes on from what it knows
only if the last record that it knows is still there and no archive has come since.
A purge takes all records of a lane that are below an archive at once, but a read takes several
requests. So a read of a lane that is old enough to be purged counts only if its first record is
still there afterwards. If the log lost anything else, `Judge.confirm` raises. It is asked after
every read, also if there was nothing.
"""

from __future__ import annotations

import asyncio
import math
import typing
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Any, Final

from msgspec import Struct

from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.families.jobs.state import JobLane
from antiphon.core.family import Lane
from antiphon.core.lane_entry import can_enter
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.protocol import Protocol
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.core.reducer import Outcome
from antiphon.errors import Unavailable
from antiphon.ports import LANES_AT_ONCE, OpLog, Record
from antiphon.runtime.log.entry_search import Entered

TRIES: Final = 6
"""How often a lane is read while the copy that answers lacks a record known to be on it."""
REFUSED_KEPT: Final = 64
"""Of a lane's records that took no effect, how many of the newest are kept."""
LONG: Final = 64
"""Lanes longer than this are continued from where reading stopped, not read from the start."""
PLACES_KEPT: Final = 64
ENTERED_FROM: Final = 128
"""Records of a lane from which on it is worth asking where it can be entered."""
LANES_PER_TURN: Final = 8
"""Lanes that are judged before the loop's other tasks get their turn."""


class Judged(Struct, frozen=True, gc=False):
    """A record of a lane, opened, with its verdict."""

    opened: OpenedRecord
    verdict: Verdict


class LaneView(Struct, frozen=True):
    """A lane as it was read: its records with their verdicts, and the state they lead to."""

    history: list[Judged]
    """Every record that took effect, and the newest of the others, oldest first."""
    lane: Lane
    first: Record | None = None
    """The first record that took effect: for a job, its schedule."""
    own_refused: dict[str, Verdict] = {}
    """The verdicts on the reader's own rejected ops, the newest of them."""

    def verdict_of(self, op_id: str) -> Verdict | None:
        """The verdict on an op of this lane, or None if it is not on it.

        Anyone can write a copy of a record. The copy is rejected, which says nothing about the
        original.
        """
        found = self.own_refused.get(op_id)
        for judged in self.history:
            if judged.opened.op_id == op_id:
                if judged.verdict.is_accepted:
                    return judged.verdict
                found = found or judged.verdict
        return found

    def opened_at(self, seq: int) -> OpenedRecord | None:
        """The record with that sequence, or None."""
        for judged in self.history:
            if judged.opened.seq == seq:
                return judged.opened
        return None


class JobView(LaneView, frozen=True):
    """The lane of a job."""

    lane: JobLane

    @property
    def submitted_with(self) -> ScheduleBody | None:
        """What the job was submitted with; None where no schedule was accepted."""
        opened = self.opened_at(self.first.seq) if self.first is not None else None
        op = opened.op if opened is not None else None
        return op.body if isinstance(op, JobSchedule) else None


class _Place(Struct):
    """How far a lane was judged."""

    begin: int = 0
    """The sequence of the first record that was read."""
    reach: int = 0
    """The sequence of the last record that was judged."""
    length: int = 0
    """How many records that took, in all."""
    lane: Lane = Lane()
    effective: list[Judged] = []
    refused: list[Judged] = []
    own_refused: dict[str, Verdict] = {}
    first: Record | None = None
    is_continued: bool = True
    """Whether the record at `reach` was found again, where reading goes on from there."""
    stamped_ms: int = 0
    """The stamp of the last record."""

    def continued(self) -> _Place:
        """A copy to continue from: several readers may do so at the same time."""
        return _Place(
            begin=self.begin,
            reach=self.reach,
            length=self.length,
            lane=self.lane,
            effective=list(self.effective),
            refused=list(self.refused),
            own_refused=dict(self.own_refused),
            first=self.first,
            is_continued=False,
            stamped_ms=self.stamped_ms,
        )

    def take(self, record: Record, opened: OpenedRecord, outcome: Outcome, reader: str) -> None:
        """Add one judged record."""
        self.begin = self.begin or record.seq
        self.reach = record.seq
        self.length += 1
        self.stamped_ms = record.commit_ms
        if self.first is not None and self.is_another(outcome.lane):
            self.effective.clear()
            self.first = None
        self.lane = outcome.lane
        judged = Judged(opened, outcome.verdict)
        if outcome.changed:
            self.effective.append(judged)
            self.first = self.first or record
            return
        self.refused.append(judged)
        if len(self.refused) > 2 * REFUSED_KEPT:
            del self.refused[:-REFUSED_KEPT]
        if opened.op is not None and opened.op.author == reader:
            self.own_refused.setdefault(opened.op_id, outcome.verdict)
            if len(self.own_refused) > REFUSED_KEPT:
                del self.own_refused[next(iter(self.own_refused))]

    def is_another(self, lane: Lane) -> bool:
        """Whether what the lane is about was archived, and perhaps began again."""
        return lane.state is None or lane.floor != self.lane.floor

    def view(self, by: Judge) -> LaneView:
        """What the reader returns: the records, and the state that they lead to by now."""
        lane, history = by.behind(self.lane), self.effective
        if self.refused:
            kept = self.refused[-REFUSED_KEPT:]
            history = sorted([*self.effective, *kept], key=lambda judged: judged.opened.seq)
        if isinstance(lane, JobLane):
            return JobView(history, lane, self.first, self.own_refused)
        return LaneView(history, lane, self.first, self.own_refused)


class Judge(typing.Protocol):
    """What knows the control state: a `Session`."""

    mesh: str
    protocol: Protocol
    log: OpLog

    def open(self, record: Record) -> OpenedRecord:
        """A record of the log, opened."""

    async def confirm(self, upto: int) -> None:
        """Make sure that every control op up to `upto` was read."""

    async def judge(self, opened: OpenedRecord, lane: Lane, *, is_named: bool = False) -> Outcome:
        """The verdict on one record."""

    def behind(self, lane: Lane) -> Lane:
        """A lane behind every archive that is known."""

    def is_archived_since(self, seq: int) -> bool:
        """Whether an archive is known that came after this sequence."""

    def may_be_purged(self, commit_ms: int) -> bool:
        """Whether a lane whose newest record has this stamp may be purged by now."""

    async def pause(self, attempt: int) -> None:
        """Wait before trying again."""

    async def find_entry(self, key: LaneKey) -> Entered | None:
        """The newest sealed record at which a lane can be entered."""


class LaneReader:
    """Reads lanes for one session, whose own ops are by `reader`."""

    def __init__(self, judge: Judge, reader: str) -> None:
        """Nothing is read yet."""
        self._by = judge
        self._reader = reader
        self._places: dict[LaneKey, _Place] = {}

    async def read(self, key: LaneKey, *, at_least: int = 0) -> LaneView:
        """A whole lane, judged; see `Session.read`."""
        for attempt in range(TRIES):
            if attempt:
                await self._by.pause(attempt - 1)
            place = await self._judged(key)
            if place is not None and place.reach >= at_least:
                return place.view(self._by)
        raise Unavailable(f"this copy of the log does not have record {at_least} yet")

    async def enter(self, key: LaneKey) -> LaneView:
        """A lane as it is now; a long one from a sealed record on, where its family allows that.

        The view shows only what was read. What is known of the lane from earlier is used, and
        nothing is remembered that does not begin at its beginning.
        """
        if key not in self._places and can_enter(self._by.protocol, key):
            place = await self._entered(key)
            if place is not None:
                return place.view(self._by)
        return await self.read(key)

    async def _entered(self, key: LaneKey) -> _Place | None:
        """The same; None if it has to be read again, since it was purged meanwhile."""
        place = _Place(lane=self._by.protocol.empty(key))
        wanted = self._by.protocol.subjects_of(self._by.mesh, key)
        found: Entered | None = None
        async for page in self._by.log.read_lane(wanted):
            if not place.length and len(page) >= ENTERED_FROM:
                found = await self._by.find_entry(key)
                if found is not None:
                    break
            await self._judge(place, page)
        if found is None:
            is_whole = await self._is_whole(place)
            if is_whole and place.length > LONG:
                self._remember(key, place)
            return place if is_whole else None
        place.take(found.record, found.opened, Outcome(Verdict.OK, found.lane), self._reader)
        async for page in self._by.log.read_lane(wanted, after=place.reach):
            await self._judge(place, page)
        return place if await self._is_whole(place) else None

    async def read_many(
        self, wanted: Mapping[LaneKey, int], *, no_further: bool = False
    ) -> dict[LaneKey, LaneView]:
        """Several lanes, judged; with each the sequence that is known to be on it, or 0.

        With `no_further`, records behind that one are left out: who asks for the verdict on it
        need not verify what came later.
        """
        views: dict[LaneKey, LaneView] = {}
        async with aclosing(self.read_each(wanted, no_further=no_further)) as lanes:
            async for key, view in lanes:
                views[key] = view or await self.read(key, at_least=wanted[key])
        return views

    async def read_each(
        self, wanted: Mapping[LaneKey, int], *, no_further: bool = False
    ) -> AsyncGenerator[tuple[LaneKey, LaneView | None]]:
        """The same one after the other; None for a lane that has to be read alone.

        It is long, or the copy of the log that answered lacks the record.
        """
        async with aclosing(self._records_of(wanted)) as lanes:
            async for key, records in lanes:
                upto, place = wanted[key], _Place(lane=self._by.protocol.empty(key))
                until = upto if no_further else math.inf
                await self._judge(place, [one for one in records or () if one.seq <= until])
                is_whole = records is not None and place.reach >= upto
                is_whole = is_whole and await self._is_whole(place)
                yield key, place.view(self._by) if is_whole else None

    async def read_on(self, known: Mapping[LaneKey, Lane]) -> dict[LaneKey, LaneView]:
        """Several lanes from where each was judged before; the views show only what is new.

        Nothing of what was judged is verified again, unless it may have been archived since.
        """
        if len(known) == 1:
            return {key: await self._behind(key, lane) for key, lane in known.items()}
        views: dict[LaneKey, LaneView] = {}
        async with aclosing(self._records_of(known)) as lanes:
            async for key, records in lanes:
                if records is None or self._by.is_archived_since(max(known[key].tails)):
                    views[key] = await self._behind(key, known[key])
                    continue
                place = self._known(known[key])
                fresh = [one for one in records if one.seq >= place.reach]
                await self._judge(place, fresh)
                is_whole = place.is_continued and await self._is_whole(place)
                views[key] = place.view(self._by) if is_whole else await self.read(key)
        return views

    def _known(self, lane: Lane) -> _Place:
        """A place to go on from, at the last record of a lane."""
        return _Place(lane=lane, reach=max(lane.tails), is_continued=not max(lane.tails))

    async def _behind(self, key: LaneKey, lane: Lane) -> LaneView:
        """What is on a lane behind what is known; however long it is, only that is read."""
        place = self._known(lane)
        if not self._by.is_archived_since(place.reach):
            wanted = self._by.protocol.subjects_of(self._by.mesh, key)
            async for page in self._by.log.read_lane(wanted, after=max(place.reach - 1, 0)):
                await self._judge(place, page)
                if not place.is_continued:
                    break
            if not place.length:
                await self._by.confirm(0)
            if place.is_continued and await self._is_whole(place):
                return place.view(self._by)
        return await self.read(key)

    async def _records_of(
        self, keys: Collection[LaneKey]
    ) -> AsyncGenerator[tuple[LaneKey, list[Record] | None]]:
        """The records of several lanes, many at a time; None for one that is long.

        The next are read while the last are judged. The loop gets its turn between lanes: judging
        hundreds takes longer than others can wait.
        """
        left = list(keys)
        coming: asyncio.Future[list[list[Record] | None]] | None = None
        try:
            while left:
                now, left = left[:LANES_AT_ONCE], left[LANES_AT_ONCE:]
                found = await (coming or self._fetch(now))
                coming = asyncio.ensure_future(self._fetch(left[:LANES_AT_ONCE])) if left else None
                await self._by.confirm(max((one[-1].seq for one in found if one), default=0))
                for number, pair in enumerate(zip(now, found, strict=True), start=1):
                    yield pair
                    if not number % LANES_PER_TURN:
                        await asyncio.sleep(0)
        finally:
            if coming is not None:
                coming.add_done_callback(_drop)
                coming.cancel()

    async def _fetch(self, keys: list[LaneKey]) -> list[list[Record] | None]:
        wanted = [self._by.protocol.subjects_of(self._by.mesh, key) for key in keys]
        return await self._by.log.read_lanes(wanted)

    async def before(self, key: LaneKey, seq: int, *, at_least: int | None = None) -> Lane:
        """The lane as it was before the record with that sequence.

        With `at_least`, the lane is one that the record names, and has a record there; 0: it need
        not have any.
        """
        for attempt in range(TRIES):
            if attempt:
                await self._by.pause(attempt - 1)
            place = await self._judged(key, before=seq, is_named=at_least is not None)
            if place is not None and place.reach >= (at_least or 0):
                return place.lane
        raise Unavailable(f"this copy of the log does not have record {at_least} yet")

    async def _judged(
        self, key: LaneKey, *, before: int | None = None, is_named: bool = False
    ) -> _Place | None:
        """A lane, judged up to its end or to a place; None: it was purged, read it again."""
        known, protocol = self._places.get(key), self._by.protocol
        if known is not None and self._by.is_archived_since(known.reach):
            del self._places[key]
            known = None
        if known is None or (before is not None and known.reach >= before):
            place = _Place(lane=protocol.empty(key))
        else:
            place = known.continued()
        wanted, known_length = protocol.subjects_of(self._by.mesh, key), place.length
        async for page in self._by.log.read_lane(wanted, after=max(place.reach - 1, 0)):
            if before is not None and page[-1].seq >= before:
                earlier = [one for one in page if one.seq < before]
                await self._judge(place, earlier, is_named=is_named)
                break
            await self._judge(place, page, is_named=is_named)
            if not place.is_continued:
                break
        if place.length == known_length:
            await self._by.confirm(0)
        if not place.is_continued or not await self._is_whole(place):
            self._places.pop(key, None)
            return None
        if place.length > LONG and not is_named:
            self._remember(key, place)
        return place

    async def _is_whole(self, place: _Place) -> bool:
        """Whether nothing of a lane was purged while it was read."""
        return not self._may_be_purged(place) or bool(await self._by.log.fetch_many([place.begin]))

    def _may_be_purged(self, place: _Place) -> bool:
        return place.begin > 0 and self._by.may_be_purged(place.stamped_ms)

    async def _judge(self, place: _Place, page: list[Record], *, is_named: bool = False) -> None:
        if page:
            await self._by.confirm(page[-1].seq)
        if page and not place.is_continued:
            place.is_continued = page[0].seq == place.reach
            page = page[1:] if place.is_continued else []
        for record in page:
            opened = self._by.open(record)
            outcome = await self._by.judge(opened, place.lane, is_named=is_named)
            place.take(record, opened, outcome, self._reader)

    def _remember(self, key: LaneKey, place: _Place) -> None:
        """Without the rejected records: a hostile writer decides how large they are."""
        kept = place.continued()
        kept.refused.clear()
        self._places.pop(key, None)
        self._places[key] = kept
        if len(self._places) > PLACES_KEPT:
            del self._places[next(iter(self._places))]


def _drop(read: asyncio.Future[Any]) -> None:
    """Nobody waits for this read any more, whatever became of it."""
    if not read.cancelled():
        read.exception()
