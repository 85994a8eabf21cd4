"""Writes an artifact to disk: completely or not at all, and never outside its directory.

A name from the log was chosen by somebody who may be hostile. It is walked part by part through
open directories; below the directory that a person named, no symbolic link is followed. The data
is written under a temporary name until it is complete and checked. Then it is renamed in one step,
which replaces a file or a link and never writes through one.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.errors import Misconfigured, Rejected
from antiphon.files import PRIVATE_DIRECTORY, PRIVATE_MODE

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

MAX_PARTS: Final = 32
MAX_PART: Final = 255
"""Bytes of one part of a name, the limit of file systems."""
DRAFT_SUFFIX: Final = ".part"

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(name: str) -> tuple[str, ...]:
    """An output's name as a path below a directory, or `Rejected`."""
    parts = tuple(name.split("/"))
    is_plain = (
        name.isprintable()
        and len(parts) <= MAX_PARTS
        and all(part not in {"", ".", ".."} for part in parts)
    )
    try:
        fits = all(len(part.encode()) <= MAX_PART for part in parts)
    except UnicodeEncodeError:
        fits = False
    if not is_plain or not fits:
        raise Rejected(
            f"the output name {name[:80]!r} is not a valid file name below a directory",
            reason="name",
            hint="fetch it alone, to a file that you name: antiphon get JOB NAME -o FILE",
        )
    return parts


class SafeFile:
    """The target of one file: an open directory and a plain name in it. Close it after use."""

    def __init__(self, folder: int, name: str, path: Path) -> None:
        """Takes ownership of the open directory."""
        self.folder = folder
        self.name = name
        self.path = path

    @classmethod
    def at(cls, path: Path) -> SafeFile:
        """A file that a person named, links in its path included."""
        if not path.name:
            raise Misconfigured(f"{path} is a directory, not a file")
        try:
            folder = os.open(path.parent, _FOLDER)
        except OSError as problem:
            raise _unusable(path.parent, problem) from problem
        return cls(folder, path.name, path)

    @classmethod
    def within(cls, directory: Path, name: str) -> SafeFile:
        """A file that the log named, below a directory that a person named."""
        *above, last = parts_of(name)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            folder = os.open(directory, _FOLDER)
        except OSError as problem:
            raise _unusable(directory, problem) from problem
        try:
            for part in above:
                folder = _step_into(folder, part)
        except OSError as problem:
            os.close(folder)
            raise Rejected(
                f"the output {name!r} cannot be written below {directory}:"
                " a part of its path exists and is not a directory",
                reason="name",
                hint="choose an empty directory",
            ) from problem
        return cls(folder, last, directory.joinpath(*above, last))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.folder)


def _step_into(folder: int, part: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(part, PRIVATE_DIRECTORY, dir_fd=folder)
    inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    os.close(folder)
    return inner


class Draft:
    """A file being written; `settle` gives it its name, else leaving the block removes it."""

    def __init__(self, landing: SafeFile) -> None:
        self._landing = landing
        self._name = f".{secrets.token_hex(8)}{DRAFT_SUFFIX}"
        self._is_open = True
        try:
            self._file = os.open(self._name, _CREATE, PRIVATE_MODE, dir_fd=landing.folder)
        except OSError as problem:
            raise _unusable(landing.path, problem) from problem

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append; `Misconfigured` where the disk does not accept it."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as problem:
            raise _unusable(self._landing.path, problem) from problem

    def settle(self, *, is_durable: bool = True) -> None:
        """Rename it to its final name, replacing what is there."""
        landing = self._landing
        try:
            if is_durable:
                os.fsync(self._file)
            os.replace(
                self._name, landing.name, src_dir_fd=landing.folder, dst_dir_fd=landing.folder
            )
        except OSError as problem:
            raise _unusable(landing.path, problem) from problem
        self._name = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._file)
        if self._name:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._landing.folder)


def open_plain(path: Path) -> int:
    """An open plain file, for reading; `Misconfigured` if it is something else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as problem:
        raise _unusable(path, problem) from problem
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Misconfigured(f"{path} is not a plain file")
    return file


def _unusable(path: Path, problem: OSError) -> Misconfigured:
    return Misconfigured(f"{path} cannot be used: {(problem.strerror or 'no reason').lower()}")
