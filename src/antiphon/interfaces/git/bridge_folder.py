"""The bridge's own folder in a repository: how far it has come, and that only one runs.

Whatever is in it can be lost. A mirror without it compares all jobs with the log once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt, Held, Misconfigured
from antiphon.sdk.git.job_feed import Cursor

FOLDER: Final = "antiphon"


class _Progress(Struct, frozen=True, forbid_unknown_fields=True):
    mesh: str
    cursor: Cursor


class BridgeFolder:
    """`REPO/antiphon`."""

    def __init__(self, repository: Path) -> None:
        """Make it, if it is not there."""
        self.path = repository / FOLDER
        self.path.mkdir(exist_ok=True)
        self._file = self.path / "mirror.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only bridge of this repository; `Held` if there is another one."""
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as problem:
                raise Held(
                    f"another process serves {self.path.parent}",
                    hint="one bridge per repository is enough; stop the other one first",
                ) from problem
            yield
        finally:
            os.close(handle)

    def load(self, mesh: str) -> Cursor:
        """How far the mirror of a mesh is; the beginning, if nothing is known."""
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=_Progress)
        except FileNotFoundError:
            return Cursor()
        except UNREADABLE as problem:
            raise Corrupt(
                f"{self._file} cannot be read: {problem}",
                hint="delete it: all jobs are then compared with the log",
            ) from problem
        if found.mesh != mesh:
            raise Misconfigured(
                f"{self.path.parent} shows the mesh {found.mesh}, and this one is {mesh}",
                hint="name another repository: each mesh needs its own",
            )
        return found.cursor

    def store(self, mesh: str, cursor: Cursor) -> None:
        """Replace what is known, whole."""
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(_Progress(mesh, cursor)))
        fresh.replace(self._file)
