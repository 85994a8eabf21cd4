"""Collects a run's outputs from its work directory, and from nowhere else.

The command may be hostile. Its directory is walked by open directories, never by path; no link is
followed; only plain files are collected, each checked again once it is open; their names, number,
depth and sizes are bounded. They are copied: the copies are the worker's own plain files, whatever
the originals were.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from antiphon.errors import Rejected, Unavailable
from antiphon.sandbox.command import LeftOut, Limits, Output, check_name

MAX_OUTPUTS: Final = 1024
MAX_LEFT_OUT: Final = 64
"""This many refused files are reported."""
MAX_DEPTH: Final = 32
MAX_NAME: Final = 255
"""Of a whole name: a proof allows no more."""
CHUNK: Final = 1 << 20

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OUR_OWN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
"""What is wrong on the worker's side, not the job's."""
Parts = tuple[str, ...]


class Stopped(Exception):
    """The run was cancelled while its outputs were being copied."""


def matches(pattern: str, parts: Parts) -> bool:
    """Whether a glob matches this file: `*`, `?` and `[…]` in one part of the name, `**` across.

    Follows all places in the pattern at once: no pattern makes it slow.
    """
    globs = pattern.split("/")
    places = _with_skips({0}, globs)
    for part in parts:
        stays = {at for at in places if at < len(globs) and globs[at] == "**"}
        moves = {
            at + 1 for at in places - stays if at < len(globs) and fnmatchcase(part, globs[at])
        }
        places = _with_skips(stays | moves, globs)
    return len(globs) in places


def _with_skips(places: set[int], globs: Sequence[str]) -> set[int]:
    """`**` may also match nothing."""
    found = set(places)
    for at, glob in enumerate(globs):
        if at in found and glob == "**":
            found.add(at + 1)
    return found


class Collection:
    """One walk through a work directory."""

    def __init__(
        self,
        patterns: Sequence[str],
        into: Path,
        limits: Limits,
        *,
        inputs: Sequence[str] = (),
        is_apart: bool = True,
        stop: threading.Event | None = None,
    ) -> None:
        """`is_apart`: it is its own file system, so that a hard link cannot lead outside."""
        self._patterns = patterns
        self._into = into
        self._limits = limits
        self._inputs = frozenset(inputs)
        self._is_apart = is_apart
        self._stop = stop or threading.Event()
        self._device = 0
        self._bytes = 0
        self.taken: list[Output] = []
        self.left_out: list[LeftOut] = []

    def collect(self, folder: int) -> None:
        """Collect everything that matches, below this open directory."""
        self._device = os.fstat(folder).st_dev
        self._into.mkdir(mode=0o700, parents=True, exist_ok=True)
        for parts, parent in self._walk(folder, ()):
            if "/".join(parts) in self._inputs:
                continue
            if not any(matches(pattern, parts) for pattern in self._patterns):
                continue
            why = self._take(parts, parent)
            if why:
                self._refuse(parts, why)

    def _walk(self, folder: int, above: Parts) -> Iterator[tuple[Parts, int]]:
        """Every entry that is not a directory, with the open directory that it is in."""
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            if self._stop.is_set():
                raise Stopped
            parts = (*above, name)
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if not stat.S_ISDIR(found.st_mode):
                yield parts, folder
                continue
            if len(parts) >= MAX_DEPTH:
                self._refuse(parts, f"deeper than {MAX_DEPTH} directories")
                continue
            try:
                inner = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            except OSError as problem:
                self._refuse(parts, _words(problem))
                continue
            try:
                yield from self._walk(inner, parts)
            finally:
                os.close(inner)

    def _take(self, parts: Parts, parent: int) -> str:
        """Copy one file, or note why not."""
        name = "/".join(parts)
        try:
            check_name(name)
        except Rejected:
            return "its name is not plain text"
        if len(name) > MAX_NAME or not name.isprintable():
            return "its name is too long, or has characters that cannot be shown"
        if len(self.taken) >= MAX_OUTPUTS:
            return f"one of more than {MAX_OUTPUTS} outputs"
        try:
            file = os.open(parts[-1], _OPEN, dir_fd=parent)
        except OSError as problem:
            return _words(problem)
        try:
            found = os.fstat(file)
            why = self._objection(found)
            if not why:
                path, size = self._copied(file, parts, found.st_size)
                self.taken.append(Output(name=name, path=path))
                self._bytes += size
        except OSError as problem:
            if problem.errno in _OUR_OWN:
                raise Unavailable(f"outputs cannot be kept: {problem.strerror}") from problem
            return _words(problem)
        finally:
            os.close(file)
        return why

    def _objection(self, found: os.stat_result) -> str:
        if not stat.S_ISREG(found.st_mode):
            return "not a plain file"
        if found.st_dev != self._device:
            return "on another file system"
        if found.st_nlink > 1 and not self._is_apart:
            return "it is a hard link to a file that may be another user's"
        # Sizes as a reader would see them: holes count.
        if found.st_size > self._limits.file_bytes:
            return f"larger than {self._limits.file_bytes} bytes"
        if self._bytes + found.st_size > self._limits.work_bytes:
            return f"together with the others larger than {self._limits.work_bytes} bytes"
        return ""

    def _copied(self, file: int, parts: Parts, size: int) -> tuple[Path, int]:
        path = self._into.joinpath(*parts)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, _CREATE, 0o600), "wb") as copy:
            left = size
            while left and (data := os.read(file, min(CHUNK, left))):
                if self._stop.is_set():
                    raise Stopped
                copy.write(data)
                left -= len(data)
        return path, size - left

    def _refuse(self, parts: Parts, why: str) -> None:
        if len(self.left_out) < MAX_LEFT_OUT:
            name = ascii("/".join(parts))[1:-1][:MAX_NAME]
            self.left_out.append(LeftOut(name=name, why=why))


def _words(problem: OSError) -> str:
    if problem.errno == errno.ELOOP:
        return "a symbolic link"
    return (problem.strerror or "cannot be opened").lower()
