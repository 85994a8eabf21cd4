"""The files of an outbox: one for each item, whole or not there, in the state directory.

Every change is one rename that is synced to disk, so a crash leaves the item as it was or as it
became. An item that ended stays until a person was told; telling removes it. Any process of the
machine may add items; only the one that holds the lock changes or removes them.

What is too large for a record is a blob, which waits beside the items until none of them names it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from antiphon.decoding import UNREADABLE
from antiphon.errors import Rejected, Unavailable
from antiphon.files import PRIVATE_DIRECTORY, replace_file
from antiphon.runtime.artifacts.waiting_blobs import WaitingBlobs, named_in, on_disk
from antiphon.runtime.identity.key_files import FileLock, lock_file
from antiphon.runtime.outbox.outbox_item import OutboxItem, ranked
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from pathlib import Path

MOST_ITEMS: Final = 1_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""All of it, blobs and items that ended and were not told included."""
MOST_UNTOLD: Final = 200
"""Items that the mesh has, and nobody was told of: a program may have nobody to tell."""
UNTOLD_S: Final = 30 * 24 * 3600.0
"""How long somebody can be told of what was dropped."""
SUFFIX: Final = ".json"
BLOBS: Final = "blobs"

_log = LazyLogger(__name__)
_decode: Final = msgspec.json.Decoder(OutboxItem).decode


class OutboxStore:
    """The outbox of one state directory."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self.folder = folder
        self.blobs = WaitingBlobs(folder / BLOBS, lambda: MOST_BYTES - self._bytes)
        """What was too large for its record."""
        self._said: set[str] = set()

    def put(self, item: OutboxItem) -> None:
        """Add an item; it is on disk when this returns. `Unavailable` if there is no room."""
        self.check_room(1)
        self._write(item)

    def check_room(self, more: int) -> None:
        """`Unavailable` if so many more items do not fit."""
        count, size = len(self._files()), self._bytes
        if count + more > MOST_ITEMS:  # those that ended and were not told take no place
            count = sum(one.is_tentative for one in self.items())
        if count + more > MOST_ITEMS or size >= MOST_BYTES:
            room = f", and {more} more do not fit" if more > 1 else ""
            raise Unavailable(
                f"the outbox is full: {count} items of {size:,} bytes{room}",
                hint="'antiphon outbox' lists them; they are sent when the mesh can be reached",
            )

    def update(self, item: OutboxItem) -> None:
        """Replace an item; the lock must be held. What ended needs its blobs no more."""
        self._write(item)
        if not item.is_tentative:
            self.forget_blobs(item)

    def remove(self, item: OutboxItem) -> None:
        """Remove an item: a person was told, or dropped it. Safe twice."""
        with on_disk(self.folder):
            self._path(item).unlink(missing_ok=True)
            self._sync()
        self.forget_blobs(item)

    def prune(self) -> None:
        """Remove what nobody came to be told of: many that the mesh has, and what was dropped."""
        items = self.items()
        held = [one for one in items if one.state == "held"]
        for one in held[:-MOST_UNTOLD]:
            self.remove(one)
        for one in items:
            if one.state == "dropped" and self._age_s(one) > UNTOLD_S:
                _log.warning("outbox_forgets", item=one.id, what=one.what.words, why=one.why)
                self.remove(one)
        if self.blobs.size:
            self.blobs.remove_unnamed(_named([one for one in items if one.is_tentative]))

    def forget_blobs(self, content: object) -> None:
        """Remove what only this content named: an item, or what is on the log without one."""
        found = self.blobs.waiting(content)
        if found:
            id_ = content.id if isinstance(content, OutboxItem) else ""
            others = [one for one in self.items() if one.is_tentative and one.id != id_]
            for digest in set(found) - _named(others):
                self.blobs.remove(digest)

    def items(self) -> list[OutboxItem]:
        """All items, in the order in which they are sent; a damaged file is left out."""
        found: list[OutboxItem] = []
        for path in self._files():
            try:
                found.append(_decode(path.read_bytes()))
            except FileNotFoundError:
                continue  # another process has just told of it
            except (*UNREADABLE, OSError) as problem:
                self._say(path, str(problem))
        ranking = ranked(found)
        place = {one.op_id: at for at, one in enumerate((*ranking.ordered, *ranking.equivocal))}
        return sorted(found, key=lambda one: place[one.id])

    def reread(self, item: OutboxItem) -> OutboxItem | None:
        """An item as it is now; None if it ended and a person was told.

        One whose file is damaged is sent by nobody: it asks.
        """
        path = self._path(item)
        with on_disk(self.folder), suppress(FileNotFoundError):
            try:
                return _decode(path.read_bytes())
            except UNREADABLE as problem:
                why = f"its file {path.name} is damaged: {problem}"
                return replace(item, state="asks", why=why)
        return None

    def find(self, start: str) -> OutboxItem:
        """The item whose id, or whose job's or message's id, begins so; `Rejected` if none."""
        meant = [
            one
            for one in self.items()
            if start and (one.id.startswith(start) or one.what.name.startswith(start))
        ]
        if len(meant) != 1:
            how_many = f"{len(meant)} items begin" if meant else "no item of the outbox begins"
            raise Rejected(
                f"{how_many} with {start!r}", reason="no_item", hint="antiphon outbox lists them"
            )
        return meant[0]

    @property
    def has_items(self) -> bool:
        """Whether there is any item; reads no file."""
        return bool(self._files())

    def lock(self) -> FileLock:
        """The right to change items; `Held` while another process has it."""
        with on_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
            return lock_file(self.folder / "lock", "another process is sending the outbox")

    # --- files --------------------------------------------------------------------------------

    @property
    def _bytes(self) -> int:
        with on_disk(self.folder):
            return sum(map(_size, self._files())) + self.blobs.size

    def _files(self) -> list[Path]:
        with on_disk(self.folder), suppress(FileNotFoundError):
            return sorted(
                one
                for one in self.folder.iterdir()
                if one.suffix == SUFFIX and not one.name.startswith(".")
            )
        return []

    def _say(self, path: Path, problem: str) -> None:
        """Tell of a file that cannot be read, once: it is looked at again and again."""
        if path.name not in self._said:
            self._said.add(path.name)
            _log.warning("outbox_item_unreadable", file=path.name, problem=problem)

    def _age_s(self, item: OutboxItem) -> float:
        """How long an item is as it is now."""
        with on_disk(self.folder), suppress(FileNotFoundError):
            return time.time() - self._path(item).stat().st_mtime
        return 0.0

    def _path(self, item: OutboxItem) -> Path:
        wall_ms, logical = item.hlc
        return self.folder / f"{wall_ms:012x}{logical:04x}-{item.id}{SUFFIX}"

    def _write(self, item: OutboxItem) -> None:
        try:
            replace_file(self._path(item), msgspec.json.encode(item))
            self._sync()
        except OSError as problem:
            raise Unavailable(
                f"the outbox cannot be written: {problem.strerror or problem}",
                hint=f"make room on the disk of {self.folder}",
            ) from problem

    def _sync(self) -> None:
        """A rename is durable once its directory is."""
        with suppress(FileNotFoundError):
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _named(items: list[OutboxItem]) -> set[str]:
    return {digest for one in items for digest in named_in(one)}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
