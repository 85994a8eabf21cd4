"""Strict DAG-CBOR: each value has exactly one encoding.

libipld turns bytes into values and back. The code here first checks that the bytes are canonical,
because libipld is lenient in two places and ambiguous in one:

- it reads longer heads than needed (`18 01` for 1) and half-size floats: refused here;
- it has no limits: size, depth and number of items are bounded here;
- it decodes links (tag 42) as plain bytes, and encodes plain bytes that happen to parse as a CID
  as a link. So links are refused in both directions. A delegation needs none: only free-form
  metadata or a policy's literal could have one.

libipld checks the rest (sorted and unique keys, text keys, UTF-8, finite floats, nothing after the
end). To be certain, compare with `write`: DAG-CBOR has exactly one encoding for each value.
"""

from __future__ import annotations

from typing import Any, Final

import libipld

from antiphon.errors import Malformed

MAX_BYTES: Final = 16 * 1024
MAX_DEPTH: Final = 40
MAX_ITEMS: Final = 4096

_ONE_BYTE: Final = 24  # heads from here on carry 1, 2, 4 or 8 bytes of argument
# The least argument that needs 1, 2, 4, 8 bytes; anything smaller has a shorter head.
_LEAST: Final = (24, 1 << 8, 1 << 16, 1 << 32)
_BYTES, _TEXT, _LIST, _MAP, _TAG, _SIMPLE = range(2, 8)
_FALSE_TRUE_NULL: Final = frozenset({0xF4, 0xF5, 0xF6})
_FLOAT: Final = 0xFB


def decode(data: bytes) -> Any:
    """The value that these canonical bytes hold, or `Malformed`."""
    check_canonical(data)
    try:
        return libipld.decode_dag_cbor(data)
    except ValueError as problem:
        raise malformed(str(problem)) from problem


def encode(value: object) -> bytes:
    """The bytes of a plain value: dict, list, str, int, float, bool, bytes or None."""
    data = write(value)
    check_canonical(data)
    return data


def write(value: object) -> bytes:
    """Like `encode`, but writes bytes that look like links as links, and has no limits."""
    try:
        return libipld.encode_dag_cbor(value)
    except (ValueError, TypeError, RecursionError) as problem:
        raise malformed(str(problem)) from problem


def head(major: int, argument: int) -> bytes:
    """The shortest head of an item, for code that builds a map by hand."""
    if argument < _LEAST[0]:
        return bytes((major << 5 | argument,))
    if argument < _LEAST[1]:
        return bytes((major << 5 | _ONE_BYTE, argument))
    return bytes((major << 5 | _ONE_BYTE + 1,)) + argument.to_bytes(2, "big")


def encode_bytes(data: bytes) -> bytes:
    """A byte string, even if libipld would write it as a link."""
    return head(_BYTES, len(data)) + data


def encode_map_head(size: int) -> bytes:
    """The head of a map; sorted pairs follow."""
    return head(_MAP, size)


def check_canonical(data: bytes) -> None:
    """Raise `Malformed` unless `data` is one item, canonical, bounded, and free of links.

    Sorting of keys and UTF-8 are left to libipld, which checks both.
    """
    if len(data) > MAX_BYTES:
        raise malformed(f"{len(data)} bytes are more than {MAX_BYTES}")
    try:
        end = _walk(data)
    except IndexError:
        raise malformed("the bytes end in the middle of an item") from None
    if end != len(data):
        raise malformed("the length does not fit the items")


def _walk(data: bytes) -> int:
    """Where the item that begins at 0 ends; a stack of counts instead of recursion."""
    at = items = 0
    open_counts: list[int] = []  # how many items each open list or map still needs
    waiting = 1
    while True:
        while waiting == 0:
            if not open_counts:
                return at
            waiting = open_counts.pop()
        waiting -= 1
        items += 1
        if items > MAX_ITEMS:
            raise malformed(f"more than {MAX_ITEMS} items")
        first = data[at]
        major = first >> 5
        if major == _SIMPLE:
            at = _after_simple(at, first)
            continue
        argument = first & 0x1F
        at += 1
        if argument >= _ONE_BYTE:
            argument, at = _long_argument(data, at, argument - _ONE_BYTE)
        if major in {_BYTES, _TEXT}:
            at += argument
        elif major in {_LIST, _MAP}:
            open_counts.append(waiting)
            if len(open_counts) > MAX_DEPTH:
                raise malformed(f"nested deeper than {MAX_DEPTH}")
            waiting = argument if major == _LIST else 2 * argument
        elif major == _TAG:
            raise malformed("links, and bytes that look like a link, are not allowed")


def _long_argument(data: bytes, at: int, size: int) -> tuple[int, int]:
    """The argument in the 1, 2, 4 or 8 bytes after a head (sizes 0 to 3), and where it ends."""
    if size >= len(_LEAST):
        raise malformed("an item of indefinite length")
    end = at + (1 << size)
    argument = int.from_bytes(data[at:end], "big")
    if argument < _LEAST[size] or end > len(data):
        raise malformed("a head is longer than it needs to be, or cut off")
    return argument, end


def _after_simple(at: int, first: int) -> int:
    if first in _FALSE_TRUE_NULL:
        return at + 1
    if first != _FLOAT:
        raise malformed("a simple value other than true, false, null and 64-bit floats")
    return at + 9  # libipld reads the float, and refuses what is not finite


def malformed(message: str) -> Malformed:
    """The error of this package for bytes and values that are not valid."""
    return Malformed(message, reason="delegation")
