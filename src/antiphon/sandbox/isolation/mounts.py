"""Where a folder is visible: every mount that shows it, or a part of it.

A path is not enough. The same files may be mounted in several places, as containers do with
their volumes, and a folder that is hidden in one of them is still visible in the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.errors import Misconfigured
from antiphon.processes import procfs

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Mount(Struct, frozen=True, gc=False):
    """One mount, as the kernel lists it."""

    number: int
    device: str
    root: str
    """The part of the file system that it shows."""
    place: str


class Position(Struct, frozen=True):
    """A folder by what holds it: the same wherever it is mounted."""

    device: str
    path: str


class Sighting(Struct, frozen=True):
    """A path at which a folder, or something in it, can be seen."""

    place: Path
    original: Path
    """What it is, by the folder's own path."""


def own_table() -> tuple[Mount, ...]:
    """Everything that is mounted for this process."""
    return _parsed(procfs.read("/proc/self/mountinfo"))


def table(pid: int) -> tuple[Mount, ...]:
    """Everything that is mounted for a process."""
    return tuple(_mounts(procfs.read(f"/proc/{pid}/mountinfo")))


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[Mount, ...]:
    return tuple(_mounts(text))


def _mounts(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        number, _, device, root, place, _ = line.split(" ", 5)
        yield Mount(int(number), device, _plain(root), _plain(place))


def _plain(field: str) -> str:
    """Blanks and the like are written in octal."""
    if "\\" not in field:
        return field
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


def position(folder: Path, mounts: tuple[Mount, ...]) -> Position | None:
    """Where a folder really is; None if there is none. `mounts` are this process's own."""
    try:
        number = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Of several mounts above one another the kernel reports which is meant.
        told = procfs.read(f"/proc/self/fdinfo/{number}")
        path = procfs.file_name(number)
    finally:
        os.close(number)
    numbers = [int(line.split()[1]) for line in told.splitlines() if line.startswith("mnt_id:")]
    mount = next((one for one in mounts if one.number in numbers), None)
    if mount is None:
        raise Misconfigured(
            f"the kernel does not list the mount of {folder}",
            hint="start the worker where it is mounted",
        )
    return Position(mount.device, _join(mount.root, _below(path, mount.place) or ""))


def sightings(folder: Path, where: Position, mounts: tuple[Mount, ...]) -> Iterator[Sighting]:
    """Every path at which these mounts show the folder; later mounts may cover some."""
    for mount in mounts:
        if mount.device != where.device:
            continue
        if (rest := _below(where.path, mount.root)) is not None:
            yield Sighting(Path(_join(mount.place, rest)), folder)
        elif (rest := _below(mount.root, where.path)) is not None:
            yield Sighting(Path(mount.place), folder / rest)


def _below(path: str, above: str) -> str | None:
    """What leads from one path to another below it, or to itself; None if it is not below."""
    if path == above:
        return ""
    above = above.rstrip("/") + "/"
    return path[len(above) :] if path.startswith(above) else None


def _join(path: str, rest: str) -> str:
    return f"{path.rstrip('/')}/{rest}".rstrip("/") or "/"
