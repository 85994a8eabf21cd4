"""Backups of a mesh that is hosted here: made, checked, restored (docs/do/backup.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.assembly import backups, restoration
from antiphon.assembly.artifact_store import files_at
from antiphon.assembly.replaced_log import Accepted, LostRecord, accept_replaced
from antiphon.assembly.restoration import Restored
from antiphon.errors import Misconfigured
from antiphon.runtime.backup.backup_check import BackupReport, Progress
from antiphon.runtime.backup.backup_writer import Written
from antiphon.runtime.backup.key_file import unseal
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.archive.archives import archive_files
from antiphon.sdk.environment import read_environment

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.assembly.hosted_mesh import Listen


async def back_up(place: str | Path, *, home: Path | None = None) -> Written:
    """Bring a backup up to date with the running mesh, and its archive.

    `place` is a directory or `s3://bucket/prefix`.
    """
    here = read_environment().state_directory(home)
    return await backups.back_up(here, files_at(place), archive=archive_files(here.path))


def store_keys(file: Path, passphrase: str, *, home: Path | None = None) -> int:
    """Write the keys of a mesh's host into a file that only the passphrase opens; how many."""
    place = read_environment().state_directory(home)
    keys = backups.store_keys(place, file, passphrase)
    return sum(name.startswith("keys/") and name.endswith(".key") for name in keys.files)


async def check_backup(place: str | Path, *, told: Progress = lambda *_: None) -> BackupReport:
    """Check a backup without its mesh; `Corrupt` says what is wrong."""
    return await backups.check(files_at(place), told=told)


async def restore(
    place: str | Path,
    keys: tuple[Path, str],
    home: Path,
    *,
    listen: Listen | None = None,
    told: Progress = lambda *_: None,
) -> Restored:
    """Put a backup into an empty state directory, with a file of keys and its passphrase."""
    file, passphrase = keys
    read_environment().require_server()
    try:
        data = await asyncio.to_thread(file.read_bytes)
    except OSError as problem:
        raise Misconfigured(f"the keys cannot be read from {file}: {problem.strerror}") from None
    opened = unseal(data, passphrase)
    return await restoration.restore(
        files_at(place), StateDirectory(home), opened, listen=listen, told=told
    )


async def accept_restored(home: Path | None = None) -> Accepted:
    """Go on with a log that was restored from an older copy; what this machine saw and it lacks."""
    return await accept_replaced(read_environment().state_directory(home))


__all__ = [
    "Accepted",
    "BackupReport",
    "LostRecord",
    "Progress",
    "Restored",
    "Written",
    "accept_restored",
    "back_up",
    "check_backup",
    "restore",
    "store_keys",
]
