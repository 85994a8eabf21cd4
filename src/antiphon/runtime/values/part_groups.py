"""Parts of a stream as they are stored: in groups, each a JSON list under a name of two numbers.

The name, `first+count`, says which parts are in a group, so that a reader who begins later can
leave groups out without fetching them. A worker can write any name: it can only spoil its own
stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

_decode: Final = msgspec.json.Decoder(list[Raw]).decode


def group_name(first: int, count: int) -> str:
    """The name of a group."""
    return f"{first}+{count}"


def count_in(name: str) -> int | None:
    """How many parts a group says that it has; None if it does not say it."""
    first, plus, count = name.partition("+")
    is_said = plus and first.isascii() and first.isdigit() and count.isascii() and count.isdigit()
    return int(count) if is_said else None


def group_text(parts: Sequence[str]) -> str:
    """The texts of several parts as one."""
    return f"[{','.join(parts)}]"


def parts_in(text: str | bytes) -> list[Raw]:
    """The texts of the parts of a group."""
    try:
        return _decode(text)
    except UNREADABLE as problem:
        raise Malformed(f"a part of the stream cannot be read: {problem}") from problem
