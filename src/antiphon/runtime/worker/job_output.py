"""A job's live output and progress: on the bus, signed by its worker, stored nowhere.

Every chunk carries its position in its stream, so that a listener knows what was lost on the way
and never shows anything twice. Output that comes faster than it may be sent is dropped, oldest
first: all that a command prints is stored as an output at the end, and what a handler prints if
its task says so. Only the holder of the present tenure is believed.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct

from antiphon.core.bus.signed_message import MessageType, Refused
from antiphon.core.bus.subjects import LIVE
from antiphon.core.families.jobs.ops import MAX_PROGRESS_NOTE
from antiphon.core.families.jobs.state import HELD
from antiphon.errors import AntiphonError, EngineDenied
from antiphon.telemetry import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antiphon.ports import BusMessage
    from antiphon.runtime.executors.printed_output import Stream
    from antiphon.runtime.log.session import Session

PACE_S: Final = 0.05
"""Between two sends of one job."""
CHUNK_BYTES: Final = 32 * 1024
MAX_BYTES: Final = 64 * 1024
"""The size of one message: a chunk in base64, and a little."""
BURST: Final = 2
"""Chunks in one send: with the pace, about 1.3 MB per second."""
HELD_BYTES: Final = 256 * 1024
"""Output that waits to be sent; the oldest beyond that is dropped."""
LAST_S: Final = 2.0
"""For sending what is held when a tenure ends."""
PENDING: Final = 1024
LOOK_EVERY_S: Final = 0.1
"""How often a listener reads the lane when a message names a tenure that it does not know."""


class OutputMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message: a piece of output, or the job's progress."""

    fence: str
    number: int
    """Counts the messages of a tenure."""
    stream: Literal["stdout", "stderr", ""] = ""
    at: Annotated[int, Meta(ge=0)] = 0
    """Where the data begins in its stream."""
    data: bytes = b""
    done: float | None = None
    """From 0 to 1."""
    note: str = ""


_LAST: Final[set[asyncio.Task[None]]] = set()
"""Tenures that have ended, and still send."""

OUTPUT_MESSAGES: Final = MessageType("live", OutputMessage, max_bytes=MAX_BYTES)


class LiveOutputSender:
    """Sends what one tenure writes, and how far it is. Close it at the tenure's end."""

    def __init__(
        self,
        session: Session,
        kind: str,
        job_id: str,
        fence: str,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Made in its event loop, or in any thread and told which loop."""
        self._session = session
        self._job = (kind, job_id)
        self._fence = fence
        self._number = 0
        self._at: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._held: deque[tuple[Stream, int, bytes]] = deque()
        self._held_bytes = 0
        self._progress: tuple[float, str] | None = None
        self._loop = loop or asyncio.get_running_loop()
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._has_rung = False
        self.on_progress: Callable[[float, str], None] | None = None
        """Told in the event loop, too."""

    def output(self, stream: Stream, data: bytes) -> None:
        """Send what the job wrote; from any thread."""
        with self._lock:
            self._held.append((stream, self._at[stream], data))
            self._at[stream] += len(data)
            self._held_bytes += len(data)
            while self._held_bytes > HELD_BYTES:
                self._held_bytes -= len(self._held.popleft()[2])
            has_rung, self._has_rung = self._has_rung, True
        if not has_rung:
            with suppress(RuntimeError):  # a thread that outlived the worker's loop
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._has_rung = False
        self._wake()

    def progress(self, done: float, note: str = "") -> None:
        """Send the progress; from any thread. Only the newest is sent."""
        share = min(max(float(done), 0.0), 1.0) if math.isfinite(done) else 0.0
        # Escaped: a message or a renewal with a lone surrogate could not be encoded.
        words = printable(note[:MAX_PROGRESS_NOTE])[:MAX_PROGRESS_NOTE]
        with suppress(RuntimeError):  # a thread that outlived the worker's loop
            self._loop.call_soon_threadsafe(self._note_progress, share, words)

    def _note_progress(self, done: float, note: str) -> None:
        self._progress = (done, note)
        if self.on_progress is not None:
            self.on_progress(done, note)
        self._wake()

    def close(self) -> None:
        """Take nothing more; what is held is sent at once, without waiting for it."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()
        if self._held:
            last = self._loop.create_task(self._send_last())
            _LAST.add(last)
            last.add_done_callback(_LAST.discard)

    def _wake(self) -> None:
        if self._sending is None and not self._is_closed:
            self._sending = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send what is held, at the pace, until nothing is left."""
        try:
            while self._held or self._progress is not None:
                with suppress(AntiphonError):
                    await self._send_some()
                await asyncio.sleep(PACE_S)
        finally:
            self._sending = None

    async def _send_last(self) -> None:
        with suppress(AntiphonError):
            async with asyncio.timeout(LAST_S):
                while self._held:
                    await self._send_some()

    async def _send_some(self) -> None:
        if self._progress is not None:
            (done, note), self._progress = self._progress, None
            await self._say(done=done, note=note)
        for _ in range(BURST):
            if not self._held:
                return
            stream, at, data = self._chunk()
            await self._say(stream=stream, at=at, data=data)

    def _chunk(self) -> tuple[Stream, int, bytes]:
        """The next bytes of one stream, as long as they follow one another."""
        with self._lock:
            return self._cut_chunk()

    def _cut_chunk(self) -> tuple[Stream, int, bytes]:
        stream, at, data = self._held.popleft()
        found = bytearray(data)
        while self._held and len(found) < CHUNK_BYTES:
            next_stream, next_at, more = self._held[0]
            if next_stream != stream or next_at != at + len(found):
                break
            found += more
            self._held.popleft()
        self._held_bytes -= len(found)
        if len(found) > CHUNK_BYTES:
            rest = bytes(found[CHUNK_BYTES:])
            self._held.appendleft((stream, at + CHUNK_BYTES, rest))
            self._held_bytes += len(rest)
        return stream, at, bytes(found[:CHUNK_BYTES])

    async def _say(self, **fields: object) -> None:
        self._number += 1
        words = OutputMessage(number=self._number, fence=self._fence, **fields)  # type: ignore[arg-type]
        kind, job_id = self._job
        author, where = self._session.author, LIVE.at(kind=kind, job=job_id)
        payload = OUTPUT_MESSAGES.sign(
            words, (author.did, author.vouch), mesh=self._session.mesh, subject=where
        )
        await self._session.engine.bus.publish(where, payload)


@asynccontextmanager
async def listening(
    session: Session, kind: str, job_id: str
) -> AsyncIterator[AsyncIterator[OutputMessage]]:
    """A job's messages from now on, verified; none where this node may not subscribe to them."""
    bus = session.engine.bus
    where = LIVE.at(kind=kind, job=job_id)
    async with bus.subscribe(where, max_pending=PENDING) as messages:
        yield _Listener(session, kind, job_id).heard(messages)


class _Listener:
    """Accepts messages of the tenure's holder only."""

    def __init__(self, session: Session, kind: str, job_id: str) -> None:
        self._session = session
        self._kind, self._job = kind, job_id
        self._fence = ""
        self._claimer = ""
        self._looked_s = -math.inf

    async def heard(self, messages: AsyncIterator[BusMessage]) -> AsyncIterator[OutputMessage]:
        with suppress(EngineDenied):
            async for message in messages:
                words = await self._verified(message)
                if words is not None:
                    yield words

    async def _verified(self, heard: BusMessage) -> OutputMessage | None:
        message = OUTPUT_MESSAGES.open(
            heard.payload, mesh=self._session.mesh, subject=heard.subject
        )
        if isinstance(message, Refused):
            return None
        if message.body.fence != self._fence:
            with suppress(AntiphonError):
                await self._look()
        is_holder = (message.body.fence, message.author) == (self._fence, self._claimer)
        return message.body if is_holder else None

    async def _look(self) -> None:
        """Who holds the job now, or held it when it ended: its last output may come later."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        found = (await self._session.read_lane(self._kind, self._job)).lane.job
        if found is not None and (found.state in HELD or found.is_terminal):
            self._fence, self._claimer = found.fence, found.claimer
