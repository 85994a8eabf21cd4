"""Verifies a sandbox from outside, before its command runs.

Nothing is claimed because it was asked for. While the gate is still closed, the worker reads what
the kernel reports about the waiting process: its uid, its capabilities, its namespaces, what is
mounted where and how large, which files it has open. Only what was found there is listed in
`held`, and a sandbox in which something is missing never gets its `go`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from antiphon.core.proof.statement import Isolation
from antiphon.errors import Misconfigured
from antiphon.processes import procfs
from antiphon.sandbox.command import SCRATCH, SHARED_MEMORY, WORK, Command
from antiphon.sandbox.isolation import mounts, rlimits
from antiphon.sandbox.isolation.bubblewrap import DEVICES, Tools
from antiphon.sandbox.isolation.cgroups import Group

FIRST_TO_GO: Final = 1000
"""The score with which a process is killed first when the machine is out of memory."""

_FILTERED: Final = "2"
_CAPABILITIES: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_NAMESPACES: Final = ("ipc", "mnt", "pid", "uts")
_WRITABLE: Final = frozenset((WORK, SCRATCH, SHARED_MEMORY))
_DEVICE_FILES: Final = frozenset(f"/dev/{name}" for name in DEVICES)


class Room:
    """One sandbox, by its waiting gate."""

    def __init__(self, pid: int, command: Command, group: Group | None) -> None:
        self.pid = pid
        self.first = _first(pid)
        """The sandbox's process 1, bubblewrap's own: killing it ends the sandbox."""
        self.command = command
        self.group = group
        self.folders: dict[str, int] = {}

    def enter(self) -> None:
        """Open the three directories: they outlive the sandbox while they are open."""
        with contextlib.suppress(OSError):
            procfs.write(f"/proc/{self.pid}/oom_score_adj", str(FIRST_TO_GO))
        for place in _WRITABLE:
            self.folders[place] = os.open(
                f"/proc/{self.pid}/root{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )

    def leave(self) -> None:
        """Close the directories and free their memory; safe twice."""
        while self.folders:
            os.close(self.folders.popitem()[1])

    def isolation(self, tools: Tools, uid: int, streams: frozenset[str]) -> Isolation:
        """What is in force, or `Misconfigured` with what is not.

        `streams` are the files that the gate may have open, as the kernel names them.
        """
        try:
            found = list(self._measures(tools, uid, streams))
        except (OSError, ValueError, KeyError, IndexError) as problem:
            raise _broken(f"it cannot be inspected: {problem!r}") from problem
        missing = [word for word, holds in found if not holds]
        if missing:
            raise _broken(f"without {', '.join(missing)}")
        return Isolation(level="sandbox", held=tuple(word for word, _ in found))

    def _measures(
        self, tools: Tools, uid: int, streams: frozenset[str]
    ) -> Iterator[tuple[str, bool]]:
        status = procfs.status(self.pid)
        limits = self.command.limits
        yield f"bubblewrap:{tools.version}", True
        yield "seccomp", _is_filtered(status, procfs.own_status())
        yield "no-new-privileges", status["NoNewPrivs"] == "1"
        yield "capabilities:none", all(int(status[name], 16) == 0 for name in _CAPABILITIES)
        yield f"uid:{uid}", uid != 0 and set(status["Uid"].split()) == {str(uid)}
        if tools.setpriv is not None:  # nobody else is able to drop a group
            groups = {*status["Gid"].split(), *status["Groups"].split()}
            yield "groups:none", groups == {str(uid)}
        apart = {name: self._is_apart(name) for name in (*_NAMESPACES, "user", "cgroup")}
        wanted = (*_NAMESPACES, *(() if tools.setpriv else ("user",)))
        named = [name for name, is_apart in sorted(apart.items()) if is_apart]
        is_first = procfs.status(self.first)["NSpid"].split()[-1] == "1"
        yield f"namespaces:{'+'.join(named)}", is_first and all(apart[name] for name in wanted)
        if tools.ends_userns:
            # bubblewrap itself tries to make one more, and gives up if it can.
            yield "namespaces:no-more", True
        if self.command.network:
            yield "network:host", True
        else:
            yield "network:none", self._is_apart("net")
        yield "files:read-only", self._is_read_only()
        if self.command.hidden:
            yield "files:hidden", self._are_hidden()
        yield "files:none-inherited", procfs.open_files(self.pid) <= streams
        yield f"work:{limits.work_bytes}", self._is_sized(WORK, limits.work_bytes)
        yield (
            f"scratch:{limits.scratch_bytes}",
            all(self._is_sized(place, limits.scratch_bytes) for place in (SCRATCH, SHARED_MEMORY)),
        )
        yield "environment:cleared", self._environment() <= {"PATH", "PWD"}
        yield "rlimits", rlimits.are_set(self.pid, limits)
        if self.group is None:
            yield "memory:watched", True
        else:
            yield (
                f"cgroup:{self.group.version}",
                self.group.holds(
                    self.pid, memory_bytes=limits.all_bytes, processes=rlimits.all_processes(limits)
                ),
            )

    def _is_apart(self, name: str) -> bool:
        return procfs.namespace(self.pid, name) != procfs.own_namespace(name)

    def _is_read_only(self) -> bool:
        """Every mount: nothing writable but the three directories, devices only where meant."""
        for line in procfs.read(f"/proc/{self.pid}/mountinfo").splitlines():
            fields = line.split(" ")
            place, options = fields[4], set(fields[5].split(","))
            if "nosuid" not in options or ("nodev" not in options and place not in _DEVICE_FILES):
                return False
            if "rw" in options and place not in _WRITABLE | _DEVICE_FILES:
                return False
        return True

    def _are_hidden(self) -> bool:
        """Whether no mount of the sandbox shows a hidden folder, or more of one than an input."""
        own, room = mounts.own_table(), mounts.table(self.pid)
        inputs = {Path(WORK, name) for name, _ in self.command.inputs}
        for folder in (folder.resolve() for folder in self.command.hidden):
            where = mounts.position(folder, own)
            for one in mounts.sightings(folder, where, room) if where is not None else ():
                if one.place not in inputs and self._shows(one):
                    return False
        return True

    def _shows(self, one: mounts.Sighting) -> bool:
        try:
            found = Path(f"/proc/{self.pid}/root{one.place}").stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(found, one.original.stat())

    def _is_sized(self, place: str, size: int) -> bool:
        """Whether the kernel limits it to that size, in whole pages."""
        found = os.fstatvfs(self.folders[place])
        return 0 < found.f_blocks * found.f_frsize < size + found.f_frsize

    def _environment(self) -> set[str]:
        pairs = procfs.read(f"/proc/{self.pid}/environ").split("\0")
        return {pair.partition("=")[0] for pair in pairs if pair}

    def has_room(self) -> bool:
        """Whether all three directories have space left."""
        return all(os.fstatvfs(folder).f_bavail > 0 for folder in self.folders.values())

    def has_too_many_files(self) -> bool:
        """Whether one of the directories has more files than it may."""
        counts = (os.fstatvfs(folder) for folder in self.folders.values())
        return any(found.f_files - found.f_ffree > self.command.limits.files for found in counts)


def _is_filtered(gate: Mapping[str, str], worker: Mapping[str, str]) -> bool:
    """Whether our filter is in force: one more than the worker itself started with."""
    if gate["Seccomp"] != _FILTERED:
        return False
    if "Seccomp_filters" in gate:
        return int(gate["Seccomp_filters"]) > int(worker["Seccomp_filters"])
    return worker["Seccomp"] != _FILTERED


def _first(gate: int) -> int:
    parent = int(procfs.status(gate)["PPid"])
    if parent in (0, 1, os.getpid()):
        raise _broken("its gate is not isolated from the machine")
    return parent


def _broken(what: str) -> Misconfigured:
    return Misconfigured(
        f"the sandbox is not isolated as it must be: {what}",
        hint="run 'antiphon doctor': it reports what this machine can do",
    )
