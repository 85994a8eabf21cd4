"""The files of an outbox: one for each item, whole or not there, in the state directory.

Every change is one rename that is synced to disk, so a crash leaves the item as it was or as it
became. An item that ended stays until a person was told; telling removes it. Any process of the
machine may add items; only the one that holds the lock changes or removes them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.errors import Rejected, Unavailable
from antiphon.files import PRIVATE_DIRECTORY, replace_file
from antiphon.runtime.identity.key_files import FileLock, lock_file
from antiphon.runtime.outbox.outbox_item import OutboxItem, ranked
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from pathlib import Path

MOST_ITEMS: Final = 1_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""What waits, together. Items that ended and were not told count too."""
MOST_UNTOLD: Final = 200
"""Items that the mesh has, and nobody was told of: a program may have nobody to tell."""
SUFFIX: Final = ".json"

_log = LazyLogger(__name__)
_decode: Final = msgspec.json.Decoder(OutboxItem).decode


class OutboxStore:
    """The outbox of one state directory."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self.folder = folder

    def put(self, item: OutboxItem) -> None:
        """Add an item; it is on disk when this returns. `Unavailable` if there is no room."""
        files = self._files()
        size = sum(_size(one) for one in files)
        if len(files) >= MOST_ITEMS or size >= MOST_BYTES:
            raise Unavailable(
                f"the outbox is full: {len(files)} items of {size:,} bytes",
                hint="'antiphon outbox' lists them; they are sent when the mesh can be reached",
            )
        self._write(item)

    def update(self, item: OutboxItem) -> None:
        """Replace an item; the lock must be held."""
        self._write(item)

    def remove(self, item: OutboxItem) -> None:
        """Remove an item: a person was told, or dropped it. Safe twice."""
        self._path(item).unlink(missing_ok=True)
        self._sync()

    def prune(self) -> None:
        """Remove the oldest items that the mesh has, if too many were not told to anybody."""
        held = [one for one in self.items() if one.state == "held"]
        for one in held[:-MOST_UNTOLD]:
            self.remove(one)

    def items(self) -> list[OutboxItem]:
        """All items, in the order in which they are sent; a damaged file is left out."""
        found: list[OutboxItem] = []
        for path in self._files():
            try:
                found.append(_decode(path.read_bytes()))
            except FileNotFoundError:
                continue  # another process has just told of it
            except (msgspec.MsgspecError, OSError) as problem:
                _log.warning("outbox_item_unreadable", file=path.name, problem=str(problem))
        ranking = ranked(found)
        place = {one.op_id: at for at, one in enumerate((*ranking.ordered, *ranking.equivocal))}
        return sorted(found, key=lambda one: place[one.id])

    def reread(self, item: OutboxItem) -> OutboxItem | None:
        """An item as it is now; None if it ended and a person was told."""
        try:
            return _decode(self._path(item).read_bytes())
        except FileNotFoundError:
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
        self.folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        return lock_file(self.folder / "lock", "another process is sending the outbox")

    # --- files --------------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        try:
            return sorted(
                one
                for one in self.folder.iterdir()
                if one.suffix == SUFFIX and not one.name.startswith(".")
            )
        except FileNotFoundError:
            return []

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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
