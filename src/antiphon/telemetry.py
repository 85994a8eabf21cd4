"""Log events: where they are written, and in which format.

An event is a fixed name with fields, never a sentence with values inside, so that machines can
count events. The renderers escape control characters in field values: a job's error text must not
be able to move a terminal's cursor.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import MutableMapping

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


TRACEBACK: Final = "exception"
"""The field that both renderers show as a traceback: the only one with line breaks."""


def printable(text: str) -> str:
    """Text with all terminal control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable_lines(text: str) -> str:
    """The same for text that may have several lines."""
    return "\n".join(map(printable, text.split("\n")))


def _escape(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable_lines(value) if key == TRACEBACK else printable(value)
    return event


def _shorten(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Ids as people see them, in every other output too."""
    for key, value in event.items():
        if isinstance(value, str) and value.startswith("did:key:"):
            event[key] = value[-8:]
        elif key == "job" and isinstance(value, str):
            event[key] = value[:8]
    return event


class LazyLogger:
    """A structlog logger that is made with its first event: most commands log nothing.

    A program that has not configured structlog gets our defaults. Those of structlog would print
    every event to standard output, and the local variables of every error.
    """

    def __init__(self, name: str) -> None:
        """`name` is the module's."""
        self._name = name
        self._made: tuple[dict[str, Any], Any] = ({}, None)
        """The configuration under which the logger was made, and the logger."""

    def __getattr__(self, level: str) -> Any:
        import structlog  # takes 0.1 s to import

        if not structlog.is_configured():
            chosen = os.environ.get("ANTIPHON_LOG_LEVEL", "").lower()
            style = os.environ.get("ANTIPHON_LOG_FORMAT", "").lower()
            configure(chosen if chosen in LEVELS else "warning", style)
        wanted = structlog.get_config()
        known, logger = self._made
        if known != wanted:
            logger = structlog.get_logger(self._name).bind()
            self._made = (wanted, logger)
        return getattr(logger, level)


class _StandardError:
    """Standard error as it is when something is written: a test or a program may replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str, style: str) -> None:
    """Send events of at least this level to standard error, as `text` or `json`.

    Any other style: text on a terminal, else JSON.
    """
    import structlog

    logging.getLogger("antiphon").setLevel(LEVELS[level])
    is_text = style == "text" or (style != "json" and sys.stderr.isatty())
    rendered: list[Any] = [_escape, structlog.processors.JSONRenderer()]
    if is_text:
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty() and not os.environ.get("NO_COLOR"),
            exception_formatter=structlog.dev.plain_traceback,
            sort_keys=False,
        )
        rendered = [_shorten, _escape, console]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Never with local variables: those are arguments of jobs, and credentials.
            structlog.processors.format_exc_info,
            *rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _StandardError())),
    )
