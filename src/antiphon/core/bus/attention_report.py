"""What the coordinator says that its services have set aside, for other full nodes (spec §3).

One message has everything that is set aside now, the newest first, so the next one ends what it
does not name.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.record.op import Count

MOST_ITEMS: Final = 50
MAX_REASON: Final = 300
MAX_TEXT: Final = 300
REPORT_AGE_MS: Final = 60_000
"""How far a report's time may be from the listener's clock."""

_Text = Annotated[str, Meta(max_length=MAX_TEXT)]


class ReportedItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a service of the coordinator has set aside."""

    service: _Text
    item: _Text = ""
    whose: _Text = ""
    reason: Annotated[str, Meta(max_length=MAX_REASON)]
    since_ms: Count
    tries: Count = 1


class AttentionReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them, as far as there is room."""

    items: Annotated[tuple[ReportedItem, ...], Meta(max_length=MOST_ITEMS)]


ATTENTION_REPORTS: Final = MessageType(
    "attention", AttentionReport, max_bytes=128 * 1024, max_age_ms=REPORT_AGE_MS
)
