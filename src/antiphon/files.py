"""Atomic file writes; files are private (mode 0600) unless you ask for another mode."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

from antiphon.errors import Corrupt

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644
PRIVATE_DIRECTORY: Final = 0o700


class FileMissing(Corrupt):
    """A file of an archive or a backup is not there; perhaps a larger one took its place."""


def replace_file(path: Path, data: bytes, *, mode: int = PRIVATE_MODE) -> None:
    """Write a temporary file, sync, rename: a crash leaves the old file or the new one.

    The mode applies from the first byte on, whatever mode an older file had.
    """
    fresh = _write_beside(path, data, mode)
    try:
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def create_file(path: Path, data: bytes, *, mode: int = PRIVATE_MODE) -> None:
    """Write a file that does not exist yet, whole; `FileExistsError` if somebody was earlier.

    Once it returns, the file is there after a power failure too.
    """
    fresh = _write_beside(path, data, mode)
    try:
        os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write_beside(path: Path, data: bytes, mode: int) -> Path:
    """A temporary file in the same folder, on disk."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return fresh
