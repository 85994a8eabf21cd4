"""The signed messages about time on the bus: purposes and sizes (spec §11).

The bodies are in `antiphon.core.tempo.messages`.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.core.bus.signed_message import Message, MessageType, OlderMessage
from antiphon.core.tempo.messages import (
    BarReport,
    BeatFrame,
    StatusClaim,
    Talk,
    upgraded,
    upgraded_frame,
)
from antiphon.telemetry import LazyLogger

AUTHORS_WARNED: Final = 256
_log = LazyLogger(__name__)

AGE_MS: Final = 60_000
"""How far a message's time may be from the listener's clock."""

BEAT_FRAMES: Final = MessageType(
    "beat", BeatFrame, max_bytes=4 * 1024, max_age_ms=AGE_MS, upgrade=upgraded_frame
)
"""Their time is the author's time of the pulse."""
STATUS_CLAIMS: Final = MessageType("status", StatusClaim, max_bytes=16 * 1024, upgrade=upgraded)
"""Late ones count, too: no limit of age."""
TALKS: Final = MessageType[Talk](
    "talk",
    Talk,  # type: ignore[arg-type]
    max_bytes=64 * 1024,
    max_age_ms=AGE_MS,
)
BAR_REPORTS: Final = MessageType("bar-report", BarReport, max_bytes=64 * 1024)


class OlderForms:
    """Warns once about each author whose messages have a deprecated form."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def note(self, message: Message[Any]) -> None:
        """Warn about it if it has such a form."""
        if not isinstance(message, OlderMessage) or message.author in self._warned:
            return
        if len(self._warned) < AUTHORS_WARNED:
            self._warned.add(message.author)
            _log.warning("deprecated_message", author=message.author, warning=message.warning)
