"""`antiphon demo`: shows in half a minute what a mesh does when machines fail, stall or lie."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.terminal import GLYPHS, out


@command
async def demo(as_json: bool) -> Answer:
    """Show what a mesh does when machines fail, stall or lie.

    Starts a server and three machines in a temporary directory, and removes them afterwards.
    """
    from antiphon.sdk.demo.story import perform

    begun = time.monotonic()

    def say(words: str, ended: str) -> None:
        if not as_json:
            at = f"{time.monotonic() - begun:5.1f} s  "
            out.hanging([(at, "quiet"), (f"{GLYPHS.get(ended, '·')} ", ended)], [(words, "")])

    with tempfile.TemporaryDirectory(prefix="antiphon-demo-") as directory:
        shown = await perform(Path(directory), say)
    code = Exit.OK if shown.is_as_promised else Exit.FAILED
    return Answer(msgspec.to_builtins(shown), _say_next, code)


def _say_next() -> None:
    out.say("")
    out.say("All of it has ended and is removed. A mesh to try things on, in two terminals:")
    out.say("  antiphon dev")
    out.say("  antiphon submit example.add 2 3")
