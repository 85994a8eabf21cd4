"""Puts stored messages into a stream, each with its own sequence and time.

No request of JetStream does that: a publish gets the next sequence and the present time, and a
client may not answer a mirror in place of a server. So the files are written that nats-server reads
when it starts: blocks of messages, each with a checksum (docs/decisions, "Restore"). The stream has
to exist, to be empty, and its server to be stopped. Whoever writes so reads everything back
afterwards and compares: a server that reads its files otherwise is noticed before it is used.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.engines.nats.store.highway_hash import highway_hash
from antiphon.errors import Corrupt

if TYPE_CHECKING:
    from io import BufferedWriter

    from antiphon.ports import StoredMessage

BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Of one file; the server's own are at most twice as large."""
_HEAD: Final = struct.Struct("<IQqH")
_LENGTH: Final = struct.Struct("<I")
_CHECKSUM: Final = struct.Struct("<Q")
_HAS_HEADER: Final = 1 << 31
_PLACED_FROM, _PLACED_TO = 4, 20
"""Where sequence and time are in the head: the checksum covers them."""


async def fill_stream(
    store: Path, stream: str, messages: AsyncIterator[list[StoredMessage]]
) -> None:
    """Write messages, rising by sequence, as the content of an empty stream of a stopped server."""
    folder = _messages_of(store, stream)
    for old in folder.iterdir():
        old.unlink()
    writer = _BlockWriter(folder, stream)
    try:
        async for page in messages:
            for one in page:
                writer.add(one)
    finally:
        writer.close()


def _messages_of(store: Path, stream: str) -> Path:
    found = [*store.glob(f"jetstream/*/streams/{stream}/msgs")]
    if len(found) != 1:
        raise Corrupt(f"{store} has {len(found)} streams called {stream}, not one")
    return found[0]


class _BlockWriter:
    def __init__(self, folder: Path, stream: str) -> None:
        self._folder = folder
        self._stream = stream
        self._block = 0
        self._key = b""
        self._size = 0
        self._last = 0
        self._file: BufferedWriter | None = None

    def add(self, message: StoredMessage) -> None:
        if message.seq <= self._last:
            raise Corrupt(f"message {message.seq} of {self._stream} comes after {self._last}")
        self._last = message.seq
        if self._file is None or self._size >= BLOCK_BYTES:
            self._begin()
        data = encoded(message, self._key)
        self._size += len(data)
        assert self._file is not None  # noqa: S101 - `_begin` has just opened it
        self._file.write(data)

    def _begin(self) -> None:
        self.close()
        self._block += 1
        self._size = 0
        self._key = hashlib.sha256(f"{self._stream}-{self._block}".encode()).digest()
        self._file = (self._folder / f"{self._block}.blk").open("wb")

    def close(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def encoded(message: StoredMessage, key: bytes) -> bytes:
    """A message as it is in a block, its checksum under the block's key behind it."""
    subject, header, payload = message.subject.encode(), message.header, message.payload
    length = _HEAD.size + len(subject) + len(payload) + _CHECKSUM.size
    if header:
        length = (length + _LENGTH.size + len(header)) | _HAS_HEADER
    head = _HEAD.pack(length, message.seq, message.stamp_ns, len(subject))
    summed = b"".join((head[_PLACED_FROM:_PLACED_TO], subject, header, payload))
    checksum = _CHECKSUM.pack(highway_hash(key, summed))
    extent = _LENGTH.pack(len(header)) if header else b""
    return b"".join((head, subject, extent, header, payload, checksum))
