"""What /proc says about other processes, read with few system calls: it is read in every run."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from typing import Final

_WHOLE: Final = 1 << 20
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TIMES: Final = slice(11, 15)
"""In /proc/pid/stat after the name: own and waited-for children's, user and system."""
_NET_HEADER, _NET_SENT = 2, 8
"""Lines of /proc/net/dev before the first interface, and the column of the bytes sent."""


def read(path: str) -> str:
    """A file of /proc, whole."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(number, _WHOLE):
            parts.append(part)
        return b"".join(parts).decode(errors="replace")
    finally:
        os.close(number)


def write(path: str, text: str) -> None:
    """Into a file of /proc or of a cgroup, in one piece."""
    number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, text.encode())
    finally:
        os.close(number)


def status(pid: int | str) -> dict[str, str]:
    """A process's uids and capabilities, by the kernel's names."""
    found = {}
    for line in read(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(":")
        found[name] = value.strip()
    return found


def namespace(pid: int | str, name: str) -> str:
    """The kernel's name for one of its namespaces."""
    return os.readlink(f"/proc/{pid}/ns/{name}")  # noqa: PTH115 - Path takes five times as long


@cache
def own_status() -> dict[str, str]:
    """Of this process, as it was when first asked."""
    return status("self")


@cache
def own_namespace(name: str) -> str:
    """Of this process: it does not move."""
    return namespace("self", name)


def open_files(pid: int) -> set[str]:
    """The kernel's names for what it has open."""
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - as above
        with contextlib.suppress(FileNotFoundError):  # a shell's own copies come and go
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))  # noqa: PTH115 - as above
    return found


def file_name(number: int) -> str:
    """The kernel's name for one of our own open files."""
    return os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - as above


def descendants(pid: int) -> list[int]:
    """All processes below one, in no order; those that end meanwhile are left out."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        children: list[int] = []
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208 - as above
                children += map(int, read(f"/proc/{parent}/task/{thread}/children").split())
        found += children
        waiting += children
    return found


def cpu_s(pid: int) -> float:
    """Processor time of a process and of those below it that are gone."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[_TIMES])) / _TICKS


def resident_kb(pid: int) -> tuple[int, int]:
    """Memory now, and at most so far; a process that is about to be gone has none."""
    found = status(pid)
    now, most = (found.get(name, "0 kB").split()[0] for name in ("VmRSS", "VmHWM"))
    return int(now), int(most)


def share_kb(pid: int) -> int:
    """Memory with what is shared divided among those that share it: exact, and expensive."""
    with contextlib.suppress(OSError):
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def disk_io_bytes(pid: int) -> int:
    """Read from and written to disks, by a process and by those below it that are gone."""
    found = 0
    for line in read(f"/proc/{pid}/io").splitlines():
        name, _, value = line.partition(":")
        if name in {"read_bytes", "write_bytes"}:
            found += int(value)
    return found


def sent_bytes(pid: int) -> int:
    """Sent from the network namespace of a process, loopback left out."""
    found = 0
    for line in read(f"/proc/{pid}/net/dev").splitlines()[_NET_HEADER:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            found += int(numbers.split()[_NET_SENT])
    return found
