"""Server-sent events: how model APIs stream an answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.decoding import UNREADABLE

_LAST: Final = (b"data: [DONE]", b'"message_stop"', b'"response.completed"')
"""What the last event of a stream has."""
_TAIL: Final = 64 * 1024
_decode = msgspec.json.Decoder().decode


def has_ended(raw: bytes) -> bool:
    """Whether these are the bytes of a whole stream: clients stop reading at its last event."""
    return any(last in raw[-_TAIL:] for last in _LAST)


def events_in(raw: bytes) -> list[dict[str, Any]]:
    """The JSON objects that the events of a stream carry, in their order.

    Whatever is no JSON object is left out: comments, `[DONE]`, the beginning of an event that was
    cut off.
    """
    found: list[dict[str, Any]] = []
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n"):
        lines = (line[5:].removeprefix(" ") for line in block.split("\n") if line[:5] == "data:")
        data = "\n".join(lines)
        if not data.startswith("{"):
            continue
        try:
            event = _decode(data)
        except UNREADABLE:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found
