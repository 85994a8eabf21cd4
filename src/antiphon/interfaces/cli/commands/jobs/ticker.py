"""Live events of a mesh as lines, with a limit per second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from antiphon.interfaces.cli.commands.jobs.watch import say_event
from antiphon.interfaces.cli.screen.terminal import counted, err

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Event

LINES_PER_S: Final = 30
"""More events than this in one second are counted instead of shown."""


class Ticker:
    """Prints one line per event; above the limit it counts them."""

    def __init__(self) -> None:
        self._second = 0
        self._shown = 0
        self._unshown = 0

    def event(self, event: Event) -> None:
        """Show one event, or count it."""
        second = int(time.monotonic())
        if second != self._second:
            if self._unshown:
                err.pieces((f"… and {counted(self._unshown, 'record')} more", "quiet"))
            self._second, self._shown, self._unshown = second, 0, 0
        if self._shown < LINES_PER_S:
            self._shown += 1
            say_event(event)
        else:
            self._unshown += 1
