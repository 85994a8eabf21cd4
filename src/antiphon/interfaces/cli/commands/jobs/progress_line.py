"""The progress of running jobs, in one line below the log that is rewritten.

Jobs publish their progress on the bus, where it is not stored: only subscribers to that job
receive it. So a watcher subscribes to a bounded number of the jobs that it sees running.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from antiphon.errors import AntiphonError
from antiphon.interfaces.cli.commands.jobs.wait import progress_words
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import err, state_piece

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Event, Mesh

LISTENED: Final = 8
"""Jobs that are subscribed to at once; the progress of others is not shown."""
SHOWN_EVERY_S: Final = 0.1
Key = tuple[str, str]


class Progressing:
    """The progress that running jobs report, newest first."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._listeners: dict[Key, asyncio.Task[None]] = {}
        self._said: dict[Key, str] = {}
        self._shown_s = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        err.erase()
        for listener in self._listeners.values():
            listener.cancel()
        await asyncio.gather(*self._listeners.values(), return_exceptions=True)

    def note(self, event: Event) -> None:
        """Subscribe to a job that runs now; unsubscribe from one that does not."""
        key = (event.kind, event.job_id)
        if event.is_held and err.can_rewrite:
            if key not in self._listeners and len(self._listeners) < LISTENED:
                self._listeners[key] = asyncio.ensure_future(self._listen(key))
        elif key in self._listeners:
            self._listeners.pop(key).cancel()
            self._said.pop(key, None)

    async def _listen(self, key: Key) -> None:
        with suppress(AntiphonError):
            async with self._mesh.job(*key).listen() as words:
                async for one in words:
                    said = progress_words(one)
                    if said and key in self._listeners:
                        self._said.pop(key, None)
                        self._said[key] = said
                        if time.monotonic() - self._shown_s >= SHOWN_EVERY_S:
                            self.show()

    def show(self) -> None:
        """Show the newest progress, and how many other jobs reported some."""
        self._shown_s = time.monotonic()
        if not self._said:
            return
        (kind, job), said = list(self._said.items())[-1]
        others = len(self._said) - 1
        more = f"  (and {others} more)" if others else ""
        err.fading(state_piece("running"), (f"  {kind} {short(job)}, {said}{more}", "quiet"))
