"""Cgroups: memory and processes of one run counted together, where the machine allows it.

Version 1 has a tree for each controller, version 2 one for all; both are directories and files
with numbers in them. We only ever work below the group that the worker itself is in (or below its
parent, if systemd says that it was delegated), so that the worker's limits bound its jobs too.

What is written is read back: a limit that the kernel rounded or ignored is not claimed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from antiphon.processes import procfs

PREFIX: Final = "antiphon-job-"
ENTERED_WITHIN_S: Final = 60.0
"""A group that is empty for longer is no longer in use."""
_CONTROLLERS: Final = ("memory", "pids")
_CPU_V1: Final = "cpuacct"
_IO_V2: Final = "io"
_number = count()


class Parent(Struct, frozen=True, kw_only=True):
    """Where groups can be made."""

    version: Literal["v1", "v2"]
    memory: Path
    pids: Path
    cpu: Path | None = None
    """Where processor time is counted: in version 2 everywhere, in version 1 in a tree of its
    own, which may be missing."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Each tree's folder once."""
        own = (self.memory, self.pids) if self.cpu is None else (self.memory, self.pids, self.cpu)
        return tuple(dict.fromkeys(own))


class Group:
    """One run's group."""

    def __init__(self, parent: Parent, name: str) -> None:
        self.version = parent.version
        self._memory = parent.memory / name
        self._pids = parent.pids / name
        self._cpu = None if parent.cpu is None else parent.cpu / name
        self.folders = tuple(folder / name for folder in parent.folders)
        """Its folder in each tree."""

    def limit(self, *, memory_bytes: int, processes: int) -> None:
        """Set both limits; no swap beyond the memory."""
        if self.version == "v1":
            _write(self._memory / "memory.limit_in_bytes", memory_bytes)
            swap = self._memory / "memory.memsw.limit_in_bytes"
            if swap.exists():
                _write(swap, memory_bytes)
        else:
            _write(self._memory / "memory.max", memory_bytes)
            swap = self._memory / "memory.swap.max"
            if swap.exists():
                _write(swap, 0)
        _write(self._pids / "pids.max", processes)

    def entering(self, sh: str) -> list[str]:
        """The beginning of a command line that enters the group and becomes what follows.

        A process that moves itself, and as a thread where version 1 allows that, spares the
        kernel a wait for all its processors: some ten milliseconds for every run.
        """
        name = "tasks" if self.version == "v1" else "cgroup.procs"
        files = [str(folder / name) for folder in self.folders]
        move = "".join(f'echo 0 >"${number}" && ' for number in range(1, len(files) + 1))
        return [sh, "-c", f'{move}shift {len(files)} && exec "$@"', "sh", *files]

    def holds(self, pid: int, *, memory_bytes: int, processes: int) -> bool:
        """Whether the process is in it and the limits are set."""
        name = "memory.limit_in_bytes" if self.version == "v1" else "memory.max"
        try:
            return (
                0 < int(procfs.read(f"{self._memory}/{name}")) <= memory_bytes
                and 0 < int(procfs.read(f"{self._pids}/pids.max")) <= processes
                and all(
                    str(pid) in procfs.read(f"{folder}/cgroup.procs").split()
                    for folder in self.folders
                )
            )
        except (OSError, ValueError):  # gone, or "max"
            return False

    def out_of_memory(self) -> int:
        """How many of its processes the kernel ended because memory ran out."""
        name = "memory.oom_control" if self.version == "v1" else "memory.events"
        with contextlib.suppress(OSError):
            for line in (self._memory / name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
        return 0

    # --- what was used ------------------------------------------------------------------------

    def cpu_ms(self) -> int | None:
        """Processor time of everything that ever was in it; None where that is not counted."""
        if self._cpu is None:
            return None
        if self.version == "v1":
            spent_ns = _number_in(self._cpu / "cpuacct.usage")
            return None if spent_ns is None else round(spent_ns / 1e6)
        spent_us = _field_in(self._cpu / "cpu.stat", "usage_usec")
        return None if spent_us is None else round(spent_us / 1e3)

    def memory_bytes(self) -> int | None:
        """Memory now: of its processes, of its directories, and of files that it has read."""
        name = "memory.usage_in_bytes" if self.version == "v1" else "memory.current"
        return _number_in(self._memory / name)

    def disk_io_bytes(self) -> int | None:
        """Read from and written to disks; None where that is not counted.

        Version 1 is not asked: it does not count what is written later, from the cache.
        """
        if self.version == "v1":
            return None
        try:
            lines = procfs.read(f"{self._memory}/io.stat").split()
        except OSError:
            return None
        pairs = (word.partition("=") for word in lines)
        return sum(int(value) for name, _, value in pairs if name in {"rbytes", "wbytes"})


@contextlib.contextmanager
def group(parent: Parent) -> Iterator[Group]:
    """A fresh group, removed at the end; at the next `sweep`, if something is still in it."""
    name = f"{PREFIX}{os.getpid()}-{next(_number)}"
    made = Group(parent, name)
    try:
        for folder in made.folders:
            folder.mkdir()
        yield made
    finally:
        for folder in made.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def sweep(parent: Parent) -> None:
    """Remove the empty groups of workers that were killed; those in use refuse.

    One that another worker has just made is empty, too, until its job enters it.
    """
    for folder in parent.folders:
        for left in folder.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > ENTERED_WITHIN_S:
                    left.rmdir()


def find(
    mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup")
) -> tuple[Parent | None, str]:
    """Where this process can make groups, or why it cannot."""
    try:
        trees = _trees(mounts.read_text())
        places = _places(own.read_text())
    except OSError as problem:
        return None, f"cgroups cannot be read: {problem.strerror}"
    if all(name in trees and name in places for name in _CONTROLLERS):
        memory, pids = (_below(trees[name], places[name]) for name in _CONTROLLERS)
        cpu = None
        if _CPU_V1 in trees and _CPU_V1 in places:
            cpu = _below(trees[_CPU_V1], places[_CPU_V1])
        counted, why = _tried(Parent(version="v1", memory=memory, pids=pids, cpu=cpu))
        if counted is not None or cpu is None:
            return counted, why
        return _tried(Parent(version="v1", memory=memory, pids=pids))
    if "" not in trees or "" not in places:
        return None, "no cgroup tree with memory and pids is mounted"
    home = _below(trees[""], places[""])
    why = ""
    for folder in (home, *([home.parent] if _is_delegated(home.parent) else [])):
        if not _hands_down_controllers(folder):
            why = (
                f"{folder} does not delegate memory and pids; under systemd: "
                "Delegate=memory pids and DelegateSubgroup=worker"
            )
            continue
        _count_disks(folder)
        found, why = _tried(Parent(version="v2", memory=folder, pids=folder, cpu=folder))
        if found is not None:
            return found, ""
    return None, why


def _tried(parent: Parent) -> tuple[Parent | None, str]:
    try:
        with group(parent):
            sweep(parent)
    except OSError as problem:
        return None, f"{parent.memory} cannot be written to: {problem.strerror}"
    return parent, ""


def _trees(mounts: str) -> dict[str, Path]:
    """Mount points by controller; version 2's under the empty name."""
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:  # noqa: PLR2004 - source, place, type, options
            continue
        if fields[2] == "cgroup2":
            found.setdefault("", Path(fields[1]))
        elif fields[2] == "cgroup":
            for option in fields[3].split(","):
                found.setdefault(option, Path(fields[1]))
    return found


def _places(own: str) -> dict[str, str]:
    """This process's own group in each tree."""
    found: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, place = line.split(":", 2)
        for name in controllers.split(","):
            found[name] = place
    return found


def _below(tree: Path, place: str) -> Path:
    return tree / place.lstrip("/")


def _is_delegated(folder: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _hands_down_controllers(folder: Path) -> bool:
    """Whether groups below have the controllers; asks for them if they do not."""
    switch = folder / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if set(_CONTROLLERS) <= set(switch.read_text().split()):
            return True
        _write(switch, " ".join(f"+{name}" for name in _CONTROLLERS))
        return set(_CONTROLLERS) <= set(switch.read_text().split())
    return False


def _count_disks(folder: Path) -> None:
    """Ask that groups below count what goes to disks; without that, less is known of a run."""
    switch = folder / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if _IO_V2 not in switch.read_text().split():
            _write(switch, f"+{_IO_V2}")


def _number_in(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(procfs.read(str(path)))
    return None


def _field_in(path: Path, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in procfs.read(str(path)).splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None


def _write(path: Path, value: int | str) -> None:
    procfs.write(str(path), str(value))
