"""Answers members' reads of a log over HTTP, within their scope.

Over any engine's log: it uses the port alone. Every record passes `VisibleSubjects.sees` on its way
out, whatever was asked. Answers are bounded in records and bytes, and so are the requests of one
party that wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.visible_subjects import VisibleSubjects, is_filter, is_literal
from antiphon.decoding import UNREADABLE
from antiphon.engines.http.log_protocol import (
    Confirm,
    End,
    Fetch,
    Found,
    Lane,
    Lanes,
    Newest,
    Question,
    Reaches,
    Read,
    questions,
)
from antiphon.errors import Corrupt, Malformed, NotPermitted, RateLimited, Unavailable
from antiphon.guard import spend

if TYPE_CHECKING:
    from antiphon.core.authority.scope import Scope
    from antiphon.ports import OpLog, Page, Record

ANSWER_BYTES: Final = 1024 * 1024
PAGES_LOOKED_AT: Final = 8
"""Of the log, where the asker may see little of it."""
WAITS_EACH: Final = 8
"""Reads of one party that wait."""
LONG_S: Final = 0.02
"""A read that takes longer keeps the engine busy: it counts as its asker's work."""
AT_ONCE: Final = 32
"""Records that are read before their sizes are looked at."""
CONFIRMED_AT_ONCE: Final = 16_384
"""Sequences that one confirmation covers."""
PAGES_CONFIRMED: Final = 16
"""Of `AT_ONCE` records each, for one answer."""
_LANE_RECORDS: Final = 512


class LogService:
    """The log of one mesh, for members that ask over HTTP."""

    def __init__(self, log: OpLog, sight_of: Callable[[Scope], VisibleSubjects]) -> None:
        """`sight_of` says what a scope shows. `log` must show everything."""
        self._log = log
        self._sight_of = sight_of
        self._waits: Counter[str] = Counter()

    async def answer(self, party: str, scope: Scope, body: bytes) -> Found:
        """The answer to one question; `Rejected` if it is none."""
        try:
            asked = questions.decode(body)
        except UNREADABLE as problem:
            raise Malformed(f"this is not a question about the log: {problem}") from None
        sight = self._sight_of(scope)
        begun_s = asyncio.get_running_loop().time()
        found = await self._answer(party, sight, asked)
        took_s = asyncio.get_running_loop().time() - begun_s
        if took_s > LONG_S and not (isinstance(asked, Read) and asked.wait_s):
            spend(took_s)
        return msgspec.structs.replace(found, reads=sight.shown)

    async def _answer(self, party: str, sight: VisibleSubjects, asked: Question) -> Found:
        match asked:
            case Read():
                return await self._read(party, sight, asked)
            case Lane():
                return await self._lane(sight, asked)
            case Lanes():
                for lane in asked.lanes:
                    _require_any(sight, lane)
                    _require_literal(lane)
                return await self._lanes(sight, asked)
            case Newest():
                _require_all(sight, asked.subjects)
                return await self._newest(asked)
            case Fetch():
                return await self._fetch(sight, asked)
            case Confirm():
                return await self._confirm(sight, asked)
            case End():
                return Found(records=await self._newest_shown(sight))
            case Reaches():
                return Found(is_reached=await self._log.reaches(asked.seq))

    async def _read(self, party: str, sight: VisibleSubjects, asked: Read) -> Found:
        subject = _part(sight, asked.subject)
        found = Found(upto=asked.after, more=True)
        for _ in range(PAGES_LOOKED_AT):
            page = await self._log.read(found.upto, limit=asked.limit, subject=subject)
            found = _page(sight, page, found.upto)
            if found.records or not found.more:
                break
        if found.records or found.more:
            return found
        if asked.wait_s:
            return await self._wait(party, sight, asked, found.upto)
        is_reached = not asked.after or await self._log.reaches(asked.after)
        return msgspec.structs.replace(found, is_reached=is_reached)

    async def _wait(self, party: str, sight: VisibleSubjects, asked: Read, upto: int) -> Found:
        subject = _part(sight, asked.subject)
        with _counted(self._waits, party, WAITS_EACH, "wait for records"):
            try:
                async with (
                    asyncio.timeout(asked.wait_s),
                    self._log.follow(upto, subject=subject, max_batch=asked.limit) as batches,
                ):
                    async for batch in batches:
                        upto = batch[-1].seq
                        if shown := _seen(sight, batch):
                            found = _cut(shown)
                            if found.more:
                                return found
                            return msgspec.structs.replace(found, upto=upto)
            except TimeoutError:
                pass
            except Corrupt:
                return Found(upto=upto, is_reached=False)
        return Found(upto=upto)

    async def _lane(self, sight: VisibleSubjects, asked: Lane) -> Found:
        _require_any(sight, asked.subjects)
        wanted = [part for one in asked.subjects for part in sight.parts(one)]
        parts = list(dict.fromkeys(wanted))
        kept: list[Record] = []
        async with aclosing(self._log.read_lane(parts, after=asked.after)) as pages:  # type: ignore[type-var]
            async for page in pages:
                kept += _seen(sight, page)
                found = _cut(kept)
                if found.more or len(kept) > _LANE_RECORDS:
                    return msgspec.structs.replace(found, more=True)
        return _cut(kept)

    async def _newest(self, asked: Newest) -> Found:
        """Here `upto` is how many of the subjects were asked for."""
        records: list[Record] = []
        for begin in range(0, len(asked.subjects), AT_ONCE):
            records += await self._log.newest(asked.subjects[begin : begin + AT_ONCE])
            upto = begin + AT_ONCE
            if _weight(records) > ANSWER_BYTES and upto < len(asked.subjects):
                return Found(records=records, upto=upto, more=True)
        return Found(records=records)

    async def _fetch(self, sight: VisibleSubjects, asked: Fetch) -> Found:
        wanted = sorted(set(asked.seqs))
        records: list[Record] = []
        some: list[int] = []
        for begin in range(0, len(wanted), AT_ONCE):
            some = wanted[begin : begin + AT_ONCE]
            if asked.is_certain:
                records += _seen(sight, await self._log.fetch_many(some))
            else:
                each = [await self._log.fetch(seq) for seq in some]
                records += _seen(sight, [one for one in each if one is not None])
            if _weight(records) > ANSWER_BYTES:
                break
        records.sort(key=lambda one: one.seq)
        upto = some[-1] if some else 0
        return Found(records=records, upto=upto, more=bool(wanted) and upto < wanted[-1])

    async def _confirm(self, sight: VisibleSubjects, asked: Confirm) -> Found:
        """A part of the log at a time: the rest is asked for with the next request."""
        subject = _part(sight, asked.subject)
        end = min(asked.upto, asked.after + CONFIRMED_AT_ONCE)
        if end < asked.upto and not await self._log.reaches(asked.upto):
            raise Unavailable(f"the log does not show sequence {asked.upto} yet")
        kept: list[Record] = []
        at = asked.after
        for _ in range(PAGES_CONFIRMED):
            upto = end
            if end - at > AT_ONCE:
                # Sequences say nothing about size: an answer that is full after four records must
                # not take thousands of them into memory first.
                page = await self._log.read(at, limit=AT_ONCE, subject=subject)
                if page.more and page.records:
                    upto = min(end, page.records[-1].seq)
            kept += _seen(sight, await self._log.confirm(subject, after=at, upto=upto))
            found = _cut(kept)
            if found.more:
                return found
            at = upto
            if at >= end:
                break
        return Found(records=kept, upto=at, more=at < asked.upto)

    async def _lanes(self, sight: VisibleSubjects, asked: Lanes) -> Found:
        found = await self._log.read_lanes(asked.lanes)
        left = ANSWER_BYTES
        lanes: list[list[Record] | None] = []
        for lane in found:
            shown = None if lane is None else _seen(sight, lane)
            left -= _weight(shown or ())
            lanes.append(shown if left > 0 else None)  # too long for this answer: read it alone
        return Found(lanes=lanes)

    async def _newest_shown(self, sight: VisibleSubjects) -> list[Record]:
        """The newest record that may be read."""
        newest = await self._log.last()
        if newest is None or sight.sees(newest.subject):
            return [] if newest is None else [newest]
        shown = [await self._last_of(part, newest.seq) for part in sight.filters]
        found = [one for one in shown if one is not None]
        return [max(found, key=lambda one: one.seq)] if found else []

    async def _last_of(self, subject: str, end: int) -> Record | None:
        """The newest record of a filter, in as many reads as the log's length has bits."""
        found: Record | None = None
        low, high = 0, end
        while low < high or found is None:
            page = await self._log.read((low + high) // 2 if found else 0, limit=1, subject=subject)
            if page.records:
                found = page.records[0]
                low = found.seq
            elif found is None:
                return None
            else:
                high = (low + high) // 2
        return found


@contextmanager
def _counted(taken: Counter[str], party: str, most: int, what: str) -> Iterator[None]:
    if taken[party] >= most:
        raise RateLimited(f"{most} of your reads {what} already", retry_s=1.0)
    taken[party] += 1
    try:
        yield
    finally:
        taken[party] -= 1
        if not taken[party]:
            del taken[party]


def _seen(sight: VisibleSubjects, records: Iterable[Record]) -> list[Record]:
    return [one for one in records if sight.sees(one.subject)]


def _page(sight: VisibleSubjects, page: Page, after: int) -> Found:
    shown = _cut(_seen(sight, page.records))
    if shown.more:
        return shown
    upto = page.records[-1].seq if page.records else after
    return Found(records=shown.records, upto=upto, more=page.more)


def _weight(records: Iterable[Record]) -> int:
    return sum(len(one.payload) for one in records)


def _cut(records: list[Record]) -> Found:
    """As many as fit into an answer, and at least one."""
    left = ANSWER_BYTES
    for count, one in enumerate(records):
        left -= len(one.payload)
        if left < 0 and count:
            return Found(records=records[:count], upto=records[count - 1].seq, more=True)
    return Found(records=records, upto=records[-1].seq if records else 0)


def _part(sight: VisibleSubjects, subject: str) -> str:
    """The filter to read with; `NotPermitted` if nothing of it may be seen."""
    parts = sight.parts(_checked(subject))
    if not parts:
        raise _outside(subject)
    return parts[0] if len(parts) == 1 else subject


def _require_any(sight: VisibleSubjects, subjects: Iterable[str]) -> None:
    given = [_checked(one) for one in subjects]
    if given and not any(map(sight.parts, given)):
        raise _outside(given[0])


def _require_all(sight: VisibleSubjects, subjects: Iterable[str]) -> None:
    for one in subjects:
        if not is_literal(_checked(one)) or not sight.sees(one):
            raise _outside(one)


def _require_literal(subjects: Iterable[str]) -> None:
    if not all(map(is_literal, subjects)):
        raise Malformed("several lanes are read by their subjects, without wildcards")


def _checked(subject: str) -> str:
    if not is_filter(subject):
        raise Malformed(f"{subject!r} is no subject and no filter")
    return subject


def _outside(subject: str) -> NotPermitted:
    return NotPermitted(
        f"this key may not read {subject}", hint="'antiphon who' shows who may do what"
    )


__all__ = ["LogService"]
