"""`antiphon demo`: shows in half a minute what a mesh does when machines fail, stall or lie."""

from __future__ import annotations

import asyncio
import tempfile
import time
import webbrowser
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.http_options import serve_dashboard
from antiphon.interfaces.cli.screen.terminal import GLYPHS, out

if TYPE_CHECKING:
    from antiphon.sdk.demo.story import Shown
    from antiphon.sdk.mesh import Mesh


@command
async def demo(
    as_json: bool,
    stop: Stop,
    *,
    open_page: bool = typer.Option(
        False, "--open", help="Then keep the mesh, and look at it in your browser."
    ),
) -> Answer | int:
    """Show what a mesh does when machines fail, stall or lie.

    Starts a server and three machines in a temporary directory, and removes them afterwards.
    """
    shows = _Showing(stop, as_json=as_json, open_page=open_page)
    with tempfile.TemporaryDirectory(prefix="antiphon-demo-") as directory:
        showing = asyncio.ensure_future(shows.perform(Path(directory)))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([showing, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not showing.done() and not shows.is_done:
            showing.cancel()
            await asyncio.wait([showing])
            return Exit.INTERRUPTED
        shown = await showing
    code = Exit.OK if shown.is_as_promised else Exit.FAILED
    return Answer(shown.facts(), _say_next, code)


class _Showing:
    """Prints what happens, and then lets the person look at it."""

    def __init__(self, stop: Stop, *, as_json: bool, open_page: bool) -> None:
        self._stop = stop
        self._as_json = as_json
        self._open_page = open_page
        self._begun = time.monotonic()
        self.is_done = False
        """Whether everything was shown, and the person looks at it."""

    async def perform(self, directory: Path) -> Shown:
        from antiphon.sdk.demo.story import perform

        then = [self._look] if self._open_page else []
        return await perform(directory, self._say, self._stop.last_acts, *then)

    def _say(self, words: str, ended: str) -> None:
        if not self._as_json:
            at = f"{time.monotonic() - self._begun:5.1f} s  "
            out.hanging([(at, "quiet"), (f"{GLYPHS.get(ended, '·')} ", ended)], [(words, "")])

    async def _look(self, mesh: Mesh) -> None:
        self.is_done = True
        async with AsyncExitStack() as stack:
            link = await serve_dashboard(stack, mesh, "demo", must=True, is_service=False)
            out.say(f"Look at it: {link} signs one browser in, once. Ctrl-C ends it.")
            await asyncio.to_thread(webbrowser.open, link)
            await self._stop.wait()


def _say_next() -> None:
    out.say("")
    out.say("All of it has ended and is removed. A mesh to try things on, in two terminals:")
    out.say("  antiphon dev")
    out.say("  antiphon submit example.add 2 3")
