"""Pages that stay current: server-sent events with the parts of a page that changed.

A stream begins with the page's parts as they are now, and sends them again when they have changed:
at most once in `FRAME_S`, however much is written to the log. Each ends after `STREAM_S` or with
its session; the browser connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.interfaces.http.pages.rendering import HEADERS
from antiphon.interfaces.http.route import EVENTS, Streamed

if TYPE_CHECKING:
    from antiphon.sdk.dashboard.source import Source

FRAME_S: Final = 1.0
QUIET_S: Final = 15.0
"""After so long the parts are made again: they say how long ago things were."""
STREAM_S: Final = 3600.0
AGAIN_MS: Final = 3_000
"""When a browser connects again."""
END: Final = b"event: end\ndata:\n\n"


class Frame(Struct, frozen=True):
    """The parts of a page."""

    html: str
    is_last: bool = False
    """Whether nothing of it will change any more."""


Make = Callable[[], Awaitable[Frame | None]]
"""The parts now; None if they are as before."""


class Streams:
    """The streams of one dashboard."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: set[asyncio.Event] = set()

    def close(self) -> None:
        """End all of them, so that the server need not wait."""
        for ended in self._open:
            ended.set()

    def answer(
        self, make: Make, is_allowed: Callable[[], bool], *, quiet_s: float = QUIET_S
    ) -> Streamed:
        """A stream of what `make` makes: when something was written, and every `quiet_s`."""
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        pieces = self._frames(make, is_allowed, quiet_s)
        return Streamed(pieces, headers=headers, media_type=EVENTS)

    async def _frames(
        self, make: Make, is_allowed: Callable[[], bool], quiet_s: float
    ) -> AsyncIterator[bytes]:
        ended = asyncio.Event()
        self._open.add(ended)
        try:
            async for piece in self._made(make, is_allowed, ended, quiet_s):
                yield piece
        finally:
            self._open.discard(ended)

    async def _made(
        self, make: Make, is_allowed: Callable[[], bool], ended: asyncio.Event, quiet_s: float
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        until_s, applied, sent = loop.time() + STREAM_S, 0, ""
        yield f"retry: {AGAIN_MS}\n\n".encode()
        while is_allowed() and loop.time() < until_s and not ended.is_set():
            begun_s = loop.time()
            try:
                frame = await make()
            except (AntiphonError, TimeoutError):
                return  # the browser connects again, and is told then
            if frame is not None and frame.html != sent:
                sent = frame.html
                yield _event(frame.html)
            else:
                yield b":\n\n"  # so that a connection that is gone is noticed
            if frame is not None and frame.is_last:
                yield END
                return
            applied = await self._news(applied, ended, quiet_s)
            await _first(ended.wait(), begun_s + FRAME_S - loop.time())

    async def _news(self, applied: int, ended: asyncio.Event, quiet_s: float) -> int:
        """Wait for a record, for the end, or for `quiet_s`."""
        coming = asyncio.ensure_future(self._source.news(applied))
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait(
                {coming, ending}, timeout=quiet_s, return_when=asyncio.FIRST_COMPLETED
            )
            is_news = coming.done() and coming.exception() is None
            return coming.result() if is_news else applied
        finally:
            coming.cancel()
            ending.cancel()


async def _first(waiting: Awaitable[object], within_s: float) -> None:
    try:
        async with asyncio.timeout(max(within_s, 0)):
            await waiting
    except TimeoutError:
        return


def _event(html: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in html.splitlines())
    return f"{lines}\n".encode()
