"""Following the log without a consumer.

The stream republishes every committed record on core pub/sub, which may lose any of them. What
arrives is used as it is only while it continues the last record by exactly one sequence, and came
where the server republishes that record: members can make the server send other things there.
Everything else is a hint to read. For a filter the republished records are hints only, since
gaps are normal there: order and completeness come from the reads.

Owns the cursor: each matching record is yielded once and in order, over lost notifications,
reconnects and restarts of the engine. Purged ranges are skipped. A log that is shorter than the
cursor, or that shows another record at it, is `Corrupt` (spec §3).
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import TYPE_CHECKING, Protocol, Self

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection, Subscription
from antiphon.engines.nats.log.hints import live
from antiphon.errors import AntiphonError, EngineDenied, LogReplaced, Unavailable
from antiphon.ports import Page, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_BUFFERED = 8192
MAX_BUFFERED_BYTES = 32 * 1024 * 1024
CATCH_UP_BATCH = 2048
POLL_S = 5.0
"""How long a lost notification of the whole log can go unnoticed; of a filter at first."""
LONGEST_POLL_S = 60.0
"""The same of a filter that shows nothing for long: thousands follow what hardly changes."""
RETRY_S = 0.25
SILENT_S = 30.0
"""How long a connected engine may fail every read before the follower raises."""
_SHORTER_CHECKS = 8
"""Lagging copies of a replicated log look shorter for a while: ask this often."""


class Readable(Protocol):
    """What a follower needs of the log."""

    @property
    def mesh(self) -> str:
        """The mesh's id."""

    @property
    def reads(self) -> tuple[str, ...]:
        """See `ports.OpLog.reads`."""

    @property
    def is_replicated(self) -> bool:
        """Whether a read may be answered by a lagging copy."""

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """See `ports.OpLog.read`."""

    async def newest_seq(self) -> int:
        """The newest sequence given out."""

    async def fetch(self, seq: int) -> Record | None:
        """See `ports.OpLog.fetch`."""

    async def next_certain(self, after: int, subject: str) -> Record | None:
        """The first matching record above `after`, from a copy that does not lag."""

    async def reaches(self, seq: int) -> bool:
        """Whether a copy that does not lag holds that sequence or a later one."""


class Follower:
    """The context manager and the iterator of one `follow`."""

    def __init__(
        self,
        log: Readable,
        connection: Connection,
        *,
        after: int,
        subject: str,
        max_batch: int,
        hints: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`hints` are the filters to listen on, where `subject` itself may not be listened on.

        They are asked for again when the connection changes: another login may admit others.
        With none at all, it polls for records every `POLL_S`.
        """
        self._log = log
        self._connection = connection
        self._subject = subject
        self._reads = log.reads if subject in {"", f"ap.{log.mesh}.>"} else None
        """What the whole log is for this follower; it ends when that changes."""
        self._hints = hints
        self._max_batch = max(1, max_batch)
        self._cursor = after
        self._floor = after
        """Up to here every matching record was yielded."""
        self._last: Record | None = None
        self._rest: list[Record] = []
        self._buffer: deque[Record] = deque()
        self._buffered_bytes = 0
        self._wake = asyncio.Event()
        self._wake.set()
        self._must_verify = True
        self._poll_s = POLL_S
        self._failure: AntiphonError | None = None
        self._listener: Subscription | None = None
        self._further: list[Subscription] = []
        self._unwatch: Callable[[], None] = lambda: None
        self._left = False

    async def __aenter__(self) -> Self:
        self._unwatch = self._connection.watch_state(self._on_state)
        if self._hints is None:
            self._listener = self._listen(self._whole_hint())
        else:
            self._listen_to(self._hints())
        return self

    def _listen_to(self, hints: Sequence[str]) -> None:
        """Listen on these filters, and on no others."""
        wanted = {live(one): one for one in hints}
        for listener in self._further:
            if listener.subject not in wanted:
                self._connection.unlisten(listener)
        kept = [listener for listener in self._further if listener.subject in wanted]
        known = {listener.subject for listener in kept}
        self._further = kept + [
            self._listen(one) for where, one in wanted.items() if where not in known
        ]

    def _whole_hint(self) -> str:
        hint = self._subject or f"ap.{self._log.mesh}.>"
        # A filter across the root: every record is a hint.
        return hint if hint.startswith("ap.") else f"ap.{self._log.mesh}.>"

    def _listen(self, hint: str) -> Subscription:
        return self._connection.listen(
            live(hint),
            self._on_hint if self._subject else self._on_record,
            denied=lambda error: self._denied(live(hint), error),
        )

    async def __aexit__(self, *_: object) -> None:
        self._left = True
        self._unwatch()
        for listener in (self._listener, *self._further):
            if listener is not None:
                self._connection.unlisten(listener)
        self._clear_buffer()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Record]:
        silent_since: float | None = None
        while True:
            if self._failure is not None:
                raise self._failure
            if self._left or self._shows_other_records():
                raise StopAsyncIteration
            if self._connection.closed:
                raise Unavailable("the connection is closed")
            if self._rest:
                return self._yield(self._rest)
            try:
                batch = await (self._next_filtered() if self._subject else self._next_whole())
            except EngineDenied:
                raise
            except Unavailable as error:
                # Unreachable or restarting: coming up wakes us; a stream without a leader does not.
                now = asyncio.get_running_loop().time()
                if not self._connection.up:
                    silent_since = None
                elif silent_since is None:
                    silent_since = now
                elif now - silent_since > SILENT_S:
                    raise Unavailable(
                        f"the engine answers, but the log cannot be read: {error.message}"
                    ) from error
                self._wake.clear()
                await self._wait(RETRY_S)
                self._wake.set()
                continue
            silent_since = None
            if batch and not self._shows_other_records():
                return self._yield(batch)

    def _shows_other_records(self) -> bool:
        return self._reads is not None and self._reads != self._log.reads

    def _yield(self, records: list[Record]) -> list[Record]:
        """The part of `records` to return now; the rest waits for the next call."""
        batch, self._rest = records[: self._max_batch], records[self._max_batch :]
        self._last = batch[-1]
        self._cursor = self._last.seq
        self._floor = max(self._floor, self._cursor)
        return batch

    # --- the whole log ----------------------------------------------------------------------

    async def _next_whole(self) -> list[Record]:
        if self._must_verify:
            await self._verify()
        self._drop_seen()
        if self._buffer:
            if self._buffer[0].seq == self._cursor + 1:
                return self._take()
            return await self._fill_gap()
        if self._wake.is_set():
            self._wake.clear()
            page = await self._log.read(self._cursor, limit=CATCH_UP_BATCH)
            if page.more:
                self._wake.set()
            return page.records
        if await self._wait(POLL_S):
            self._wake.clear()
            if self._must_verify or self._buffer:
                return []
        newest = await self._log.newest_seq()
        if newest < self._cursor:
            await self._verify()
        elif newest > self._cursor and not self._buffer:
            self._wake.set()
        return []

    async def _fill_gap(self) -> list[Record]:
        first = self._buffer[0].seq
        page = await self._log.read(self._cursor, limit=CATCH_UP_BATCH)
        if page.records:
            return page.records
        certain = await self._log.next_certain(self._cursor, f"ap.{self._log.mesh}.>")
        if certain is not None and certain.seq < first:
            return [certain]  # the copy that answered the read lags
        # Between the cursor and the buffer everything was purged.
        self._drop_seen()
        if self._buffer and self._buffer[0].seq > self._cursor:
            self._cursor = self._buffer[0].seq - 1
        return []

    def _on_record(self, subject: bytes, reply: bytes, payload: bytes, header: bytes) -> None:
        record = wire.read_republished(subject, reply, header, payload)
        if record is None:
            return
        buffer = self._buffer
        if buffer:
            last = buffer[-1].seq
            if record.seq <= last:
                return
            if record.seq > last + 1:
                self._clear_buffer()  # a run with a hole is of no use: keep the newer part
        elif record.seq <= self._cursor:
            return
        if len(buffer) >= MAX_BUFFERED or self._buffered_bytes >= MAX_BUFFERED_BYTES:
            self._clear_buffer()  # too slow: back to catching up by reads
        buffer.append(record)
        self._buffered_bytes += len(payload)
        self._wake.set()

    def _take(self) -> list[Record]:
        buffer = self._buffer
        batch = [buffer.popleft() for _ in range(min(self._max_batch, len(buffer)))]
        self._buffered_bytes -= sum(len(record.payload) for record in batch)
        if not buffer:
            self._wake.clear()
        return batch

    def _drop_seen(self) -> None:
        buffer = self._buffer
        while buffer and buffer[0].seq <= self._cursor:
            self._buffered_bytes -= len(buffer.popleft().payload)

    def _clear_buffer(self) -> None:
        self._buffer.clear()
        self._buffered_bytes = 0

    # --- a filter ---------------------------------------------------------------------------

    async def _next_filtered(self) -> list[Record]:
        if self._must_verify:
            await self._verify()
        is_poll = not self._wake.is_set() and not await self._wait(self._poll_s)
        # Whatever is committed from here on sends a new hint.
        self._wake.clear()
        top = await self._log.newest_seq()
        if top < self._floor:
            await self._verify()
        batch = await self._scan()
        if batch:
            self._wake.set()  # perhaps there is more
            self._poll_s = POLL_S
        else:
            self._floor = max(self._floor, top)
            if is_poll and self._is_notified:
                self._poll_s = min(2 * self._poll_s, LONGEST_POLL_S)
        return batch

    @property
    def _is_notified(self) -> bool:
        return self._listener is not None or bool(self._further)

    async def _scan(self) -> list[Record]:
        if not self._log.is_replicated:
            limit = CATCH_UP_BATCH
            return (await self._log.read(self._floor, limit=limit, subject=self._subject)).records
        page = await self._log.read(self._floor, limit=self._max_batch, subject=self._subject)
        if page.records:
            return page.records
        certain = await self._log.next_certain(self._floor, self._subject)
        return [] if certain is None else [certain]

    def _on_hint(self, _subject: bytes, _reply: bytes, _payload: bytes, _header: bytes) -> None:
        self._wake.set()

    # --- trust ------------------------------------------------------------------------------

    async def _verify(self) -> None:
        """`LogReplaced` if this is not the log that was read before."""
        self._must_verify = False
        self._wake.set()
        known = max(self._cursor, self._floor)
        if known == 0:
            return
        try:
            await self._compare(known)
        except Unavailable:
            self._must_verify = True
            raise

    async def _compare(self, known: int) -> None:
        newest = await self._log.newest_seq()
        for _ in range(_SHORTER_CHECKS if self._log.is_replicated else 0):
            if newest >= known:
                break
            await asyncio.sleep(RETRY_S)
            newest = max(newest, await self._log.newest_seq())
        # A server that was cut off lags for as long as that lasts: only the leader is believed.
        is_shorter = newest < known
        if is_shorter and self._log.is_replicated:
            is_shorter = not await self._log.reaches(known)
        if is_shorter:
            raise LogReplaced(
                f"the log ends at {newest}, but {known} was read from it before: "
                "it was restored from an older copy",
            )
        if self._last is not None:
            now = await self._log.fetch(self._last.seq)
            if now is not None and now != self._last:
                raise LogReplaced(
                    f"the log shows another record at {now.seq} than was read there before",
                )

    def _on_state(self, up: bool) -> None:  # noqa: FBT001 - a watcher's one argument
        if up:
            self._must_verify = True
            self._poll_s = POLL_S
        if self._hints is not None:
            self._listen_to(self._hints())
        self._clear_buffer()
        self._wake.set()

    def _denied(self, where: str, error: AntiphonError) -> None:
        if self._hints is not None:
            self._listen_to(self._hints())
            if all(listener.subject != where for listener in self._further):
                return  # a login that was issued meanwhile no longer permits it
        self._fail(error)

    def _fail(self, error: AntiphonError) -> None:
        self._failure = error
        self._wake.set()

    async def _wait(self, bound_s: float) -> bool:
        """Whether something woke us within about `bound_s`."""
        try:
            async with asyncio.timeout(bound_s * (0.8 + secrets.randbelow(400) / 1000)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True
