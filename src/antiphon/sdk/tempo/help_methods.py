"""Help for jobs of others, and fallbacks: what `Mesh` offers beside its tasks (docs/scores.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.core.record.subjects import check_kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antiphon.runtime.executors.handlers import Handlers
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.tempo.help_threads import HelpAsked


class HelpMethods:
    """A part of `Mesh`."""

    _handlers: Handlers

    @property
    def session(self) -> Session:
        """The session that reads and writes the log."""
        raise NotImplementedError

    def on_help(self, kind: str) -> AsyncIterator[HelpAsked]:
        """Requests for help with jobs of a kind, from now on.

        async for asked in mesh.on_help("report.render"):
            await asked.promise(2)
            await asked.answer("use the other font")
        """
        from antiphon.runtime.tempo.help_threads import help_asked

        return help_asked(self.session, check_kind(kind))

    def register_fallback(self, kind: str, name: str, function: Callable[..., Any]) -> None:
        """Have a function give a coarser result of a task; what `Task.fallback` uses."""
        self._handlers.register_fallback(kind, name, function)
