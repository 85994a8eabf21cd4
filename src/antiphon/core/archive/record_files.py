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
from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt
from antiphon.read_back import read_back

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


class Packer:
    """Makes one file: `add` records, then `end`."""

    def __init__(self) -> None:
        """Nothing is in it yet."""
        self._packer = zlib.compressobj(LEVEL, wbits=-zlib.MAX_WBITS)
        self._check = self._total = 0
        self._head = _HEAD

    def add(self, bodies: Iterable[Body]) -> bytes:
        """The next part of the file, perhaps an empty one."""
        parts, self._head = [self._head], b""
        for frame in _frames(bodies):
            self._check, self._total = zlib.crc32(frame, self._check), self._total + len(frame)
            parts.append(self._packer.compress(frame))
        return b"".join(parts)

    def end(self) -> bytes:
        """The last part."""
        end = self._check.to_bytes(4, "little") + (self._total & _WORD).to_bytes(4, "little")
        return self._head + self._packer.flush() + end


class CheckedPacker(Packer):
    """The same, and reads back what it makes: for files that take the place of others."""

    def __init__(self, path: str) -> None:
        """`path` is what errors call it."""
        super().__init__()
        self._path, self._unpacker = path, Unpacker(path)
        self._left: list[Body] = []
        """What was added and is not read back yet."""

    def add(self, bodies: Iterable[Body]) -> bytes:
        """See `Packer.add`; `Unreadable` where what it made is not what it was given."""
        kept = list(bodies)
        self._left += kept
        return self._read_back(super().add(kept))

    def end(self) -> bytes:
        """See `Packer.end`."""
        part = self._read_back(super().end())
        read_back(self._path, None, self._unpacker.end)
        read_back(self._path, [], lambda: self._left)
        return part

    def _read_back(self, part: bytes) -> bytes:
        found: list[Body] = []
        read_back(self._path, None, lambda: found.extend(self._unpacker.add(part)))
        meant, self._left = self._left[: len(found)], self._left[len(found) :]
        read_back(self._path, meant, lambda: found)
        return part


def compressed(bodies: Iterable[Body]) -> bytes:
    """A file of these records, if it may be in memory."""
    packer = Packer()
    return packer.add(bodies) + packer.end()


def _frames(bodies: Iterable[Body]) -> Iterator[bytes]:
    for body in bodies:
        is_erased = isinstance(body, Erased)
        data = codec.encode(body) if isinstance(body, Erased) else body
        if len(data) > MAX_RECORD_BYTES:
            raise Corrupt(f"a record of {len(data)} bytes is too large for the archive")
        length = len(data) | (_ERASED if is_erased else 0)
        yield length.to_bytes(_LENGTH_BYTES, "big")
        yield data


class Unpacker:
    """Reads one file: `add` its parts as they come, then `end`. `Corrupt` where it is damaged."""

    def __init__(self, path: str) -> None:
        """`path` is what errors call it."""
        self._path = path
        self._unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._head = b""
        self._held = bytearray()

    def add(self, part: bytes) -> Iterator[Body]:
        """The records that are complete with this part."""
        if self._unpacker.eof and part:
            raise Corrupt(f"{self._path} goes on after its end")
        self._head += part[: len(_HEAD) - len(self._head)]
        if not _HEAD.startswith(self._head):
            raise Corrupt(f"{self._path} does not begin as a record file")
        data = part
        while part or len(data) == _PART_BYTES:
            data = self._unpacked(part)
            part = self._unpacker.unconsumed_tail
            self._held += data
            yield from self._complete()

    def end(self) -> None:
        """Make sure that nothing is missing."""
        if not self._unpacker.eof or self._unpacker.unused_data or self._held:
            raise Corrupt(f"{self._path} is cut off, or goes on after its end")

    def _unpacked(self, part: bytes) -> bytes:
        try:
            return self._unpacker.decompress(part, _PART_BYTES)
        except zlib.error as problem:
            raise Corrupt(f"{self._path} is damaged: {problem}") from problem

    def _complete(self) -> Iterator[Body]:
        held = self._held
        while len(held) >= _LENGTH_BYTES:
            length = int.from_bytes(held[:_LENGTH_BYTES], "big")
            size = length & ~_ERASED
            if size > MAX_RECORD_BYTES:
                raise Corrupt(f"{self._path} is damaged: it has a record of {size} bytes")
            end = _LENGTH_BYTES + size
            if len(held) < end:
                return
            body = bytes(held[_LENGTH_BYTES:end])
            del held[:end]
            yield _note_of(body, self._path) if length & _ERASED else body


def bodies(data: bytes, path: str) -> Iterator[Body]:
    """The records of a file that is in memory."""
    unpacker = Unpacker(path)
    yield from unpacker.add(data)
    unpacker.end()


def _note_of(body: bytes, path: str) -> Erased:
    try:
        note = _erased.decode(body)
    except UNREADABLE as problem:
        raise Corrupt(f"{path} does not say who erased a record") from problem
    if codec.encode(note) != body:
        raise Corrupt(f"{path} does not say who erased a record")
    return note
