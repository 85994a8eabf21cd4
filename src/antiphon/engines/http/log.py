"""A mesh's log over HTTP: the reads that a node answers, and records that it stores."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn, Self
from urllib.parse import urlencode

import msgspec

from antiphon.core.record import subjects
from antiphon.decoding import UNREADABLE
from antiphon.engines.http.log_protocol import (
    LOG_PATH,
    MOST_RECORDS,
    RECORDS_PATH,
    SEQUENCES_AT_ONCE,
    WAIT_S,
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
    answers,
)
from antiphon.errors import (
    AntiphonError,
    LogReplaced,
    Misconfigured,
    NotPermitted,
    OutcomeUnknown,
    Unavailable,
)
from antiphon.ports import Append, Page, Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from antiphon.engines.http.signed_client import SignedClient
    from antiphon.ports import Hints, Told

READ_S: Final = 15.0
AGAIN_S: Final = 0.5
"""How soon a follower asks again when the node did not answer."""
_WHOLE: Final = ">"


class _Stored(msgspec.Struct, frozen=True):
    seq: int


class HttpLog:
    """`ports.OpLog` for a member that asks a node."""

    def __init__(self, client: SignedClient, mesh: str) -> None:
        self._client = client
        self._everything = (_WHOLE, f"{subjects.root(mesh)}.>")
        self._reads: tuple[str, ...] = ()
        self.seen = 0
        """The newest sequence that an answer had."""

    @property
    def reads(self) -> tuple[str, ...]:
        """See `ports.OpLog.reads`: what the newest answer said."""
        return self._reads

    async def ask(self, question: Question, *, wait_s: float = 0.0) -> Found:
        """One question."""
        body = msgspec.json.encode(question)
        timeout_s = READ_S + wait_s
        raw = await self._client.ask("POST", LOG_PATH, body, timeout_s=timeout_s, waits=wait_s > 0)
        try:
            found = answers.decode(raw)
        except UNREADABLE as problem:
            raise Unavailable(f"the node's answer cannot be read: {problem}") from problem
        self._reads = found.reads
        self.seen = max(self.seen, found.records[-1].seq if found.records else 0)
        return found

    # --- writing ------------------------------------------------------------------------------

    async def append(
        self,
        subject: str,
        payload: bytes,
        *,
        message_id: str,
        expected_last: int,
        timeout_s: float = 5.0,
    ) -> int:
        """See `ports.OpLog.append`."""
        place = urlencode({"subject": subject, "id": message_id, "prev": expected_last})
        target = f"{RECORDS_PATH}?{place}"
        raw = await self._client.ask("POST", target, payload, timeout_s=timeout_s, is_write=True)
        try:
            return msgspec.json.decode(raw, type=_Stored).seq
        except UNREADABLE as problem:  # a portal or a proxy may have answered, or half a node
            told = f"the node's answer cannot be read: {problem}"
            raise OutcomeUnknown(told) from problem

    async def append_many(
        self, records: Sequence[Append], *, timeout_s: float = 5.0
    ) -> list[int | AntiphonError]:
        """See `ports.OpLog.append_many`: a request for each."""
        return list(await asyncio.gather(*(self._appended(one, timeout_s) for one in records)))

    async def _appended(self, one: Append, timeout_s: float) -> int | AntiphonError:
        try:
            return await self.append(
                one.subject,
                one.payload,
                message_id=one.message_id,
                expected_last=one.expected_last,
                timeout_s=timeout_s,
            )
        except AntiphonError as problem:
            return problem

    # --- reading ------------------------------------------------------------------------------

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """See `ports.OpLog.read`."""
        limit = min(limit, MOST_RECORDS)
        if limit <= 0:
            return Page([], more=False)
        while True:
            found = await self.ask(Read(after=after, limit=limit, subject=subject))
            if found.records or not found.more:
                return Page(found.records, more=found.more)
            after = _further(found, after)

    async def read_lane(
        self, filters: Sequence[str], *, after: int = 0
    ) -> AsyncIterator[list[Record]]:
        """See `ports.OpLog.read_lane`."""
        wanted, end = tuple(filters), None
        while True:
            found = await self.ask(Lane(subjects=wanted, after=after))
            if found.more and end is None:
                end = await self._end()  # later records belong to a later moment
            records = [one for one in found.records if end is None or one.seq <= end]
            if records:
                yield records
            if not found.more or len(records) < len(found.records):
                return
            after = _further(found, after)

    async def _end(self) -> int:
        newest = await self.last()
        return 0 if newest is None else newest.seq

    async def read_lanes(self, lanes: Sequence[Sequence[str]]) -> list[list[Record] | None]:
        """See `ports.OpLog.read_lanes`."""
        if not lanes:
            return []
        return (await self.ask(Lanes(lanes=tuple(map(tuple, lanes))))).lanes

    async def newest(self, subjects: Sequence[str]) -> list[Record]:
        """See `ports.OpLog.newest`."""
        left, records = tuple(subjects), list[Record]()
        while left:
            found = await self.ask(Newest(subjects=left))
            records += found.records
            left = left[_further(found, 0) :] if found.more else ()
        return records

    def hints(self, told: Told) -> HttpHints:
        """See `ports.OpLog.hints`."""
        return HttpHints(self, self._client, told)

    async def confirm(self, subject: str, *, after: int, upto: int) -> list[Record]:
        """See `ports.OpLog.confirm`."""
        records: list[Record] = []
        while True:
            found = await self.ask(Confirm(subject=subject, after=after, upto=upto))
            records += found.records
            if not found.more:
                return records
            after = _further(found, after)

    async def fetch(self, seq: int, *, newest_on: str = "") -> Record | None:  # noqa: ARG002 - a hint for engines with a cache
        """See `ports.OpLog.fetch`."""
        found = await self.ask(Fetch(seqs=(seq,), is_certain=False))
        return found.records[0] if found.records else None

    async def fetch_many(self, seqs: Sequence[int]) -> list[Record]:
        """See `ports.OpLog.fetch_many`."""
        records: list[Record] = []
        left = sorted(set(seqs))
        while left:
            some = tuple(left[:SEQUENCES_AT_ONCE])
            found = await self.ask(Fetch(seqs=some))
            records += found.records
            upto = _further(found, some[0] - 1) if found.more else some[-1]
            left = [one for one in left if one > upto]
        return records

    async def last(self) -> Record | None:
        """See `ports.OpLog.last`."""
        found = await self.ask(End())
        return found.records[0] if found.records else None

    async def reaches(self, seq: int) -> bool:
        """See `ports.OpLog.reaches`."""
        return (await self.ask(Reaches(seq=seq))).is_reached

    def follow(self, after: int, *, subject: str = ">", max_batch: int = 512) -> HttpFollower:
        """See `ports.OpLog.follow`."""
        is_whole = subject in self._everything
        limit = max(1, min(max_batch, MOST_RECORDS))
        return HttpFollower(
            self, self._client, Read(after=after, limit=limit, subject=subject), is_whole=is_whole
        )

    # --- what there is not --------------------------------------------------------------------

    def work(self, subject: str, *, name: str) -> NoReturn:  # noqa: ARG002 - of the port
        """There are no queues."""
        raise Misconfigured(
            "a mesh that is reached over HTTP has no work queues, so no worker can run here",
            hint="run it on a machine of the mesh: antiphon join TICKET, then antiphon worker",
        )

    async def purge(self, subject: str, *, upto: int) -> NoReturn:  # noqa: ARG002 - of the port
        """Only the owner's archiver does this."""
        raise NotPermitted("over HTTP nothing can be removed from the log")


def _further(found: Found, after: int) -> int:
    """Where to go on; `Unavailable` if that is where the node was asked to begin."""
    if found.upto <= after:
        raise Unavailable("the node says that there is more, and goes no further")
    return found.upto


class HttpFollower:
    """The context and the iterator of `OpLog.follow`: a read that waits, again and again."""

    def __init__(self, log: HttpLog, client: SignedClient, first: Read, *, is_whole: bool) -> None:
        self._log = log
        self._client = client
        self._next = first
        self._is_whole = is_whole
        self._reads = log.reads
        self._last: Record | None = None
        self._is_unsure = False
        """Whether the log may be another one than before."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Record]:
        while True:
            asked_s = asyncio.get_running_loop().time()
            found = await self._found()
            if found is None:
                await asyncio.sleep(AGAIN_S)
                continue
            if not found.is_reached:
                raise LogReplaced(f"the log ends before the cursor {self._next.after}")
            if self._is_whole and self._reads and found.reads != self._reads:
                raise StopAsyncIteration
            self._reads = found.reads
            after = max(self._next.after, found.upto)
            has_waited = asyncio.get_running_loop().time() >= asked_s + AGAIN_S
            is_idle = not found.records and after == self._next.after
            if is_idle and self._next.wait_s and not has_waited:
                await asyncio.sleep(AGAIN_S)  # the node was asked to wait, and did not
            self._next = msgspec.structs.replace(self._next, after=after, wait_s=WAIT_S)
            if found.records:
                self._last = found.records[-1]
                return found.records

    async def _found(self) -> Found | None:
        """The next answer; None if there was none."""
        try:
            if self._is_unsure:
                await self._check()
            return await self._log.ask(self._next, wait_s=self._next.wait_s)
        except NotPermitted:
            raise
        except Unavailable:
            if self._client.is_closed:
                raise
            self._is_unsure = True
            return None

    async def _check(self) -> None:
        """`LogReplaced` if the log has another record where the last one was."""
        if self._last is not None:
            now = await self._log.fetch(self._last.seq)
            if now is not None and now != self._last:
                raise LogReplaced(f"the log shows another record at {now.seq} than before")
        self._is_unsure = False


class HttpHints:
    """`ports.Hints`, and its own context manager: one follower for all patterns."""

    def __init__(self, log: HttpLog, client: SignedClient, told: Told) -> None:
        self._log = log
        self._client = client
        self._told = told
        self._patterns: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def add(self, pattern: str) -> bool:
        """See `ports.Hints.add`."""
        self._patterns.add(pattern)
        if self._task is None:
            self._task = asyncio.ensure_future(self._listen(self._log.seen))
        return True

    def remove(self, pattern: str) -> None:
        """See `ports.Hints.remove`."""
        self._patterns.discard(pattern)

    def check(self) -> None:
        """See `ports.Hints.check`."""
        if self._client.is_closed:
            raise Unavailable("the connection is closed")

    async def _listen(self, after: int) -> None:
        while not self._client.is_closed:
            with suppress(AntiphonError):
                async with self._log.follow(after) as batches:
                    async for batch in batches:
                        after = batch[-1].seq
                        for one in batch:
                            if any(subjects.matches(each, one.subject) for each in self._patterns):
                                self._told(one.subject, one.payload)
            self._told("", b"")  # some may have been missed
            await asyncio.sleep(AGAIN_S)


if TYPE_CHECKING:

    def _as_hints(hints: HttpHints) -> Hints:
        return hints
