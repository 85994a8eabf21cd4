"""Canonical JSON: the one encoding of a value (spec §4).

Everything that is signed or hashed is RFC 8785 JSON within a narrow profile: no floats, integers
below 2^53, ASCII keys, bounded size and depth. Inside the profile msgspec's sorted encoder writes
the same bytes as RFC 8785, about fifty times faster than a general encoder; a property test
compares the two.

Reading is strict: bytes are accepted only if encoding the decoded value gives the same bytes.
That refuses duplicate keys, white space, reordering, alternative escapes and explicit defaults,
none of which a JSON decoder reports.

`canonical_json` is the general encoder, for values that may hold floats and whose digest matters
(arguments and results of task functions). Inside an op its output appears only as text.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import rfc8785

from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

MAX_OP_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_INTEGER = 2**53 - 1

T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="sorted")


def encode(value: object) -> bytes:
    """Canonical bytes of a value that is known to fit the profile (ops, manifests)."""
    return _encoder.encode(value)


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Read canonical bytes into a closed type, or raise `Malformed`."""
    if len(data) > MAX_OP_BYTES:
        raise Malformed(f"{len(data)} bytes are more than {MAX_OP_BYTES}", reason="size")
    try:
        value = decoder.decode(data)
        again = _encoder.encode(value)
    except UNREADABLE as problem:
        raise Malformed(str(problem)) from problem
    if again != data:
        raise Malformed("the bytes are not canonical", reason="canonical")
    return value


def encode_checked(value: object) -> bytes:
    """Canonical bytes of any plain value; `Malformed` if it does not fit the profile."""
    check_profile(value)
    return _encoder.encode(value)


def check_profile(value: object, *, depth: int = 0) -> None:
    """Raise `Malformed` for floats, large integers, non-ASCII keys, or too much nesting."""
    if depth > MAX_DEPTH:
        raise Malformed(f"nested deeper than {MAX_DEPTH}", reason="depth")
    match value:
        case None | bool():
            return
        case str():
            _check_text(value)
        case int():
            if abs(value) > MAX_INTEGER:
                raise Malformed(f"{value} does not fit into 53 bits", reason="integer")
        case list() | tuple():
            for item in value:
                check_profile(item, depth=depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str) or not key.isascii():
                    raise Malformed(f"key {key!r} is not ASCII text", reason="key")
                check_profile(item, depth=depth + 1)
        case _:
            raise Malformed(f"{type(value).__name__} has no canonical form here", reason="type")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise Malformed("the text contains a lone surrogate", reason="text") from problem


def canonical_json(value: object) -> str:
    """RFC 8785 text of any JSON value, floats included."""
    try:
        return encode_checked(value).decode()
    except Malformed:
        pass  # outside the profile, perhaps a float: use the general encoder
    try:
        return rfc8785.dumps(value).decode()  # type: ignore[arg-type]
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError) as problem:
        raise Malformed(
            f"this value cannot be written as JSON: {problem}",
            reason="json",
            hint="use numbers, text, true/false, None, lists and dicts with text keys",
        ) from problem


def parse_json(text: str | bytes) -> Any:
    """Read JSON that came from outside; `Malformed` if it is not valid."""
    try:
        return msgspec.json.decode(text)
    except UNREADABLE as problem:
        raise Malformed(f"this is not JSON: {problem}", reason="json") from problem
