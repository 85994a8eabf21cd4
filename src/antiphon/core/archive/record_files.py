"""Record files: the bytes of the records whose entries are in one bundle, compressed.

A file has, for each entry of its bundle, four bytes of length and the record; gzip around it all.
It is named by its first and last sequence. Where a record was erased, the highest bit of the length
is set, and who erased it and when follows instead. Its entry still has its digest.

Files are written and read in parts: a record may have a megabyte, and a file 256 of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from antiphon.core.record import codec
from antiphon.errors import Corrupt

MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""More than any engine stores in one record."""
LEVEL: Final = 6
_ERASED: Final = 1 << 31
_LENGTH_BYTES: Final = 4
_HEAD: Final = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
"""Of gzip, without time and system: the same records are the same file."""
_WORD: Final = 0xFFFF_FFFF
_PART_BYTES: Final = 64 * 1024


class Erased(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left of a record that was erased."""

    by: Annotated[str, Meta(max_length=256)]
    at_ms: Annotated[int, Meta(ge=0, le=codec.MAX_INTEGER)]


Body = bytes | Erased
_erased: Final = msgspec.json.Decoder(Erased)


def path_of(first: int, last: int) -> str:
    """Where the records between these two sequences lie, both included."""
    return f"record/{first}-{last}.gz"


def compressed(bodies: Iterable[Body]) -> Iterator[bytes]:
    """A file of these records, in parts."""
    packer = zlib.compressobj(LEVEL, wbits=-zlib.MAX_WBITS)
    check = total = 0
    yield _HEAD
    for frame in _frames(bodies):
        check, total = zlib.crc32(frame, check), total + len(frame)
        yield packer.compress(frame)
    yield packer.flush()
    yield check.to_bytes(4, "little") + (total & _WORD).to_bytes(4, "little")


def _frames(bodies: Iterable[Body]) -> Iterator[bytes]:
    for body in bodies:
        is_erased = isinstance(body, Erased)
        data = codec.encode(body) if isinstance(body, Erased) else body
        if len(data) > MAX_RECORD_BYTES:
            raise Corrupt(f"a record of {len(data)} bytes is too large for the archive")
        length = len(data) | (_ERASED if is_erased else 0)
        yield length.to_bytes(_LENGTH_BYTES, "big")
        yield data


def bodies(parts: Iterable[bytes], path: str) -> Iterator[Body]:
    """The records of a file, one after another; `Corrupt` where it is damaged."""
    unpacked = _unpacked(parts, path)
    held = bytearray()

    def take(count: int) -> bytes:
        while len(held) < count:
            more = next(unpacked, None)
            if more is None:
                raise Corrupt(f"{path} ends within a record")
            held.extend(more)
        taken = bytes(held[:count])
        del held[:count]
        return taken

    while held or _fill(held, unpacked):
        length = int.from_bytes(take(_LENGTH_BYTES), "big")
        size = length & ~_ERASED
        if size > MAX_RECORD_BYTES:
            raise Corrupt(f"{path} is damaged: it has a record of {size} bytes")
        body = take(size)
        yield _note_of(body, path) if length & _ERASED else body


def _fill(held: bytearray, unpacked: Iterator[bytes]) -> bool:
    held.extend(next(unpacked, b""))
    return bool(held)


def _note_of(body: bytes, path: str) -> Erased:
    try:
        note = _erased.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as problem:
        raise Corrupt(f"{path} does not say who erased a record") from problem
    if codec.encode(note) != body:
        raise Corrupt(f"{path} does not say who erased a record")
    return note


def _unpacked(parts: Iterable[bytes], path: str) -> Iterator[bytes]:
    """The bytes without gzip, in parts of bounded size, none of them empty."""
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    head = b""
    try:
        for part in parts:
            if unpacker.eof and part:
                raise Corrupt(f"{path} goes on after its end")
            head += part[: len(_HEAD) - len(head)]
            if not _HEAD.startswith(head):
                raise Corrupt(f"{path} does not begin as a record file")
            left = part
            while left:
                data = unpacker.decompress(left, _PART_BYTES)
                left = unpacker.unconsumed_tail
                if data:
                    yield data
        while data := unpacker.decompress(unpacker.unconsumed_tail, _PART_BYTES):
            yield data
    except zlib.error as problem:
        raise Corrupt(f"{path} is damaged: {problem}") from problem
    if not unpacker.eof or unpacker.unused_data:
        raise Corrupt(f"{path} is cut off, or goes on after its end")
