"""Resource limits (rlimits), which each process passes on to those it starts.

Set by the shell that comes before the command: no Python should run between a fork and an exec in
a process with threads, and a worker that is root in a container may not set them on another uid's
process. Shells differ in units and letters; what counts is what the kernel then reports.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Final

from antiphon.processes import procfs
from antiphon.sandbox.command import Limits

STACK_BYTES: Final = 64 << 20
PROCESSES: Final = "u"
_UNLIMITED: Final = "unlimited"


def all_processes(limits: Limits) -> int:
    """The command's own, the gate and bubblewrap's two: in a group, or of one uid."""
    return limits.processes + 3


def _wanted(limits: Limits) -> Iterator[tuple[str, int, str, int, int]]:
    """The shell's letter, Python's number, the kernel's name, the shell's unit, the bound."""
    yield "c", resource.RLIMIT_CORE, "Max core file size", 512, 0
    yield "d", resource.RLIMIT_DATA, "Max data size", 1024, limits.memory_bytes
    yield "f", resource.RLIMIT_FSIZE, "Max file size", 512, limits.file_bytes
    yield "n", resource.RLIMIT_NOFILE, "Max open files", 1, limits.open_files
    yield "s", resource.RLIMIT_STACK, "Max stack size", 1024, STACK_BYTES
    yield PROCESSES, resource.RLIMIT_NPROC, "Max processes", 1, all_processes(limits)
    if limits.cpu_s is not None:
        yield "t", resource.RLIMIT_CPU, "Max cpu time", 1, limits.cpu_s


def script(limits: Limits, *, without: str = "") -> str:
    """Shell code that sets them, or fails; never above the present limits."""
    steps = []
    for letter, which, _, unit, wanted in _wanted(limits):
        if letter in without:
            continue
        soft, hard = resource.getrlimit(which)
        value = _lesser(wanted, hard) // unit
        if letter == PROCESSES:  # dash and ash call it p, which is something else in bash
            steps.append(f"{{ ulimit -u {value} 2>/dev/null || ulimit -p {value}; }}")
        elif letter == "s" and _lesser(soft, value * unit) == soft != resource.RLIM_INFINITY:
            # A larger stack than usual changes where programs put things.
            steps.append(f"ulimit -H -s {value}")
        else:
            steps.append(f"ulimit -{letter} {value}")
    return " && ".join(steps)


def are_set(pid: int, limits: Limits) -> bool:
    """Whether the kernel reports that a process has them all."""
    lines = procfs.read(f"/proc/{pid}/limits").splitlines()
    for _, _, name, _, wanted in _wanted(limits):
        hard = next(line for line in lines if line.startswith(name))[len(name) :].split()[1]
        if hard == _UNLIMITED or int(hard) > wanted:
            return False
    return True


def _lesser(one: int, other: int) -> int:
    return one if other == resource.RLIM_INFINITY else min(one, other)
