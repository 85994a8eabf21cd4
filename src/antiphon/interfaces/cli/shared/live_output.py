"""What a job prints, shown as it comes: `antiphon show --follow`.

It is not stored on its way, so what was printed before is not shown, and a gap is named.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from antiphon.errors import AntiphonError
from antiphon.interfaces.cli.screen.terminal import err
from antiphon.interfaces.cli.screen.text_output import JobStream
from antiphon.interfaces.cli.shared.wait import narrate, progress_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.sdk.handle import JobHandle, OutputMessage
    from antiphon.sdk.mesh import Mesh

LAST_WORDS_S: Final = 0.2
"""How long a job's end waits for output that was sent before it."""


class LiveOutput:
    """Prints a job's messages."""

    def __init__(self) -> None:
        self.has_printed = False
        self.progress = ""
        self._fence = ""
        self._at: dict[str, int] = {}
        self._streams = {name: JobStream(name) for name in ("stdout", "stderr")}

    def hear(self, words: OutputMessage) -> None:
        """Print one message."""
        self.progress = progress_words(words) or self.progress
        if not words.stream or not words.data:
            return
        err.erase()
        if self._fence and words.fence != self._fence:
            err.say("it runs again")
        if words.fence != self._fence:
            self._fence, self._at = words.fence, {}
        missed = words.at - self._at.get(words.stream, 0)
        if missed > 0:
            where = "were lost on the way" if words.stream in self._at else "came before this"
            err.say(f"… {missed:,} bytes of {words.stream} {where}")
        self._at[words.stream] = words.at + len(words.data)
        self.has_printed = True
        self._streams[words.stream].write(words.data)

    def end(self) -> None:
        """Leave the terminal at the start of a line."""
        for stream in self._streams.values():
            stream.end()


@asynccontextmanager
async def followed(mesh: Mesh, handle: JobHandle[Any]) -> AsyncIterator[None]:
    """Print a job's output while the block waits for its end, and its state until there is some."""
    shown = LiveOutput()
    heard = asyncio.Event()

    async def listen() -> None:
        with suppress(AntiphonError):
            async with handle.listen() as words:
                async for one in words:
                    heard.set()
                    shown.hear(one)

    telling = narrate(
        mesh, handle, is_quiet=lambda: shown.has_printed, progress=lambda: shown.progress
    )
    beside = [asyncio.ensure_future(listen()), asyncio.ensure_future(telling)]
    try:
        yield
        with suppress(TimeoutError):
            while True:
                heard.clear()
                await asyncio.wait_for(heard.wait(), LAST_WORDS_S)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        shown.end()
