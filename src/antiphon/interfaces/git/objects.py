"""Git objects as bytes: blobs, trees and commits, their ids, and a pack of them.

Ids are known before Git has the objects, so one call of `git index-pack` stores any number of them,
and refs are written afterwards. Git checks what it is given.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_TYPES: Final = {"commit": 1, "tree": 2, "blob": 3}
_FILE: Final = b"100644 "
_FOLDER: Final = b"40000 "
_FAST: Final = 1
"""Git compresses again when it packs."""


class Signature(NamedTuple):
    """Who made a commit, and when."""

    name: str
    email: str
    at_s: int

    def __str__(self) -> str:
        return f"{self.name} <{self.email}> {self.at_s} +0000"


class Objects:
    """Objects that a repository is about to get, each once, by id."""

    def __init__(self, algorithm: str) -> None:
        """`algorithm` is the repository's object format: `sha1` or `sha256`."""
        self._algorithm = algorithm
        self._made: dict[str, tuple[str, bytes]] = {}

    def __len__(self) -> int:
        return len(self._made)

    def add_blob(self, data: bytes) -> str:
        """Add a blob; its id."""
        return self._add("blob", data)

    def add_tree(self, files: Mapping[str, str], folders: Mapping[str, str] | None = None) -> str:
        """Add a tree of plain files and of other trees, by name; its id."""
        entries = [(name, _FILE + name.encode(), files[name]) for name in files]
        for name, id_ in (folders or {}).items():
            entries.append((f"{name}/", _FOLDER + name.encode(), id_))  # as Git sorts them
        parts = (head + b"\0" + bytes.fromhex(id_) for _, head, id_ in sorted(entries))
        return self._add("tree", b"".join(parts))

    def add_commit(
        self,
        tree: str,
        parents: Iterable[str],
        by: Signature,
        subject: str,
        trailers: Iterable[tuple[str, str]],
    ) -> str:
        """Add a commit with a subject line and trailers; its id."""
        lines = [f"tree {tree}", *(f"parent {one}" for one in parents)]
        lines += [f"author {by}", f"committer {by}", "", subject, ""]
        lines += [f"{name}: {value}" for name, value in trailers]
        return self._add("commit", "\n".join(lines).encode() + b"\n")

    def _add(self, type_: str, data: bytes) -> str:
        name = object_id(self._algorithm, type_, data)
        self._made[name] = (type_, data)
        return name

    def pack(self) -> bytes:
        """All of them, as a pack that `git index-pack --stdin` reads."""
        parts = [struct.pack(">4sII", b"PACK", 2, len(self._made))]
        for type_, data in self._made.values():
            parts += [_head(_TYPES[type_], len(data)), zlib.compress(data, _FAST)]
        whole = b"".join(parts)
        return whole + hashlib.new(self._algorithm, whole, usedforsecurity=False).digest()


def object_id(algorithm: str, type_: str, data: bytes) -> str:
    """The id of an object."""
    head = b"%b %d\0" % (type_.encode(), len(data))
    return hashlib.new(algorithm, head + data, usedforsecurity=False).hexdigest()


def _head(number: int, size: int) -> bytes:
    """An object's type and size in a pack: four bits of the size, then seven in each byte."""
    head, byte = bytearray(), (number << 4) | (size & 0x0F)
    size >>= 4
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head)
