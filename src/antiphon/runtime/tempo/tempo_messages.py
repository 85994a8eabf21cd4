"""The signed messages about time on the bus: purposes and sizes (spec §11).

The bodies are in `antiphon.core.tempo.messages`.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.tempo.messages import BarReport, BeatFrame, StatusClaim, Talk

AGE_MS: Final = 60_000
"""How far a message's time may be from the listener's clock."""

BEAT_FRAMES: Final = MessageType("beat", BeatFrame, max_bytes=4 * 1024, max_age_ms=AGE_MS)
"""Their time is the author's time of the pulse."""
STATUS_CLAIMS: Final = MessageType("status", StatusClaim, max_bytes=16 * 1024)
"""Late ones count, too: no limit of age."""
TALKS: Final = MessageType[Talk](
    "talk",
    Talk,  # type: ignore[arg-type]
    max_bytes=64 * 1024,
    max_age_ms=AGE_MS,
)
BAR_REPORTS: Final = MessageType("bar-report", BarReport, max_bytes=64 * 1024)
