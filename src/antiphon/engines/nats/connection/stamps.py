"""The engine's commit stamps as integers, from both forms in which it sends them.

`Nats-Time-Stamp` headers are RFC 3339 with none to nine fraction digits (Go drops trailing
zeros); `$JS.ACK` reply subjects carry plain nanoseconds. Both must give one integer for one
record, on every node (spec §4.2), so no float and no `datetime` comes near them.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache

from msgspec import Struct

from antiphon.errors import Corrupt

_NS = 1_000_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FRACTION_DIGITS = 9
_WHOLE_LENGTH = len("2025-01-01T00:00:00")


@lru_cache(maxsize=64)
def _seconds_to_minute(text: bytes) -> int:
    """Seconds from the epoch to the start of the minute `YYYY-MM-DDTHH:MM`."""
    day = date(int(text[0:4]), int(text[5:7]), int(text[8:10])).toordinal() - _EPOCH_DAY
    return day * 86_400 + int(text[11:13]) * 3_600 + int(text[14:16]) * 60


def parse_rfc3339_ns(text: bytes) -> int:
    """Nanoseconds since the epoch of a UTC stamp such as `2025-11-15T00:37:12.5Z`."""
    if text[-1:] != b"Z" or text[10:11] != b"T":
        raise Corrupt(f"not an engine stamp: {text!r}")
    try:
        seconds = _seconds_to_minute(text[:16]) + int(text[17:_WHOLE_LENGTH])
        fraction = text[_WHOLE_LENGTH + 1 : -1]
        if not fraction:
            return seconds * _NS
        return seconds * _NS + int(fraction.ljust(_FRACTION_DIGITS, b"0"))
    except ValueError as error:
        raise Corrupt(f"not an engine stamp: {text!r}") from error


class AckInfo(Struct, frozen=True, gc=False):
    """What a delivery's reply subject says about the record."""

    seq: int
    stamp_ns: int
    deliveries: int


_SHORT = 9
_LONG = 11


def parse_ack_subject(reply: bytes) -> AckInfo:
    """Read `$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ns>.<pending>`.

    The longer form has `<domain>.<account hash>` after `$JS.ACK` and may have a random token at
    the end.
    """
    tokens = reply.split(b".")
    count = len(tokens)
    if count < _SHORT or count == _LONG - 1 or tokens[0] != b"$JS" or tokens[1] != b"ACK":
        raise Corrupt(f"not a delivery: {reply!r}")
    at = 4 if count == _SHORT else 6
    try:
        return AckInfo(
            seq=int(tokens[at + 1]), stamp_ns=int(tokens[at + 3]), deliveries=int(tokens[at])
        )
    except ValueError as error:
        raise Corrupt(f"not a delivery: {reply!r}") from error
