"""The attacks of `chaos escape`: which program tries what, and what keeps it in.

What a probe reached outside is found out by `targets.py`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from chaos.escape import programs

MIB = 1 << 20


class Probe(Struct, frozen=True, kw_only=True):
    name: str
    wall: str
    """What keeps it in."""
    program: str
    limits: dict[str, Any] = {}
    unbounded: dict[str, Any] = {}
    """Limits for the run without a sandbox, where it would be stopped for another reason."""


PROBES = (
    Probe(
        name="read the key", wall="only declared files are in sight", program=programs.READ_THE_KEY
    ),
    Probe(
        name="state among the tools",
        wall="the worker's folders are masked wherever they would be in sight",
        program=programs.READ_THE_STATE,
    ),
    Probe(
        name="lift the mask",
        wall="a mask is a closed mount, read-only; seccomp, and no capabilities",
        program=programs.LIFT_THE_MASK,
    ),
    Probe(
        name="read the home",
        wall="only declared files are in sight",
        program=programs.READ_THE_HOME,
    ),
    Probe(
        name="other processes",
        wall="a process namespace of its own",
        program=programs.OTHER_PROCESSES,
    ),
    Probe(
        name="write outside",
        wall="a read-only root, three writable places of its own",
        program=programs.WRITE_OUTSIDE,
    ),
    Probe(name="network TCP", wall="a network namespace with nothing in it", program=programs.TCP),
    Probe(name="network UDP", wall="a network namespace with nothing in it", program=programs.UDP),
    Probe(
        name="unnamed socket",
        wall="a network namespace with nothing in it",
        program=programs.UNNAMED_SOCKET,
    ),
    Probe(name="ptrace", wall="seccomp, and no other process to see", program=programs.PTRACE),
    Probe(name="mount", wall="seccomp, and no capabilities", program=programs.MOUNT),
    Probe(
        name="nested userns",
        wall="seccomp; for an ordinary user also the sandbox itself",
        program=programs.NESTED_USERNS,
    ),
    Probe(
        name="fork bomb",
        wall="a limit on processes, and the pids cgroup if there is one",
        program=programs.FORK_BOMB,
    ),
    Probe(
        name="memory bomb",
        wall="the memory cgroup, or the watch over all processes",
        program=programs.MEMORY_BOMB,
        limits={"memory_bytes": 64 * MIB},
    ),
    Probe(
        name="disk fill",
        wall="file systems of a fixed size, in memory",
        program=programs.DISK_FILL,
        limits={"file_bytes": 8 * MIB},
    ),
    Probe(
        name="signal the worker",
        wall="a process namespace of its own",
        program=programs.SIGNAL_THE_WORKER,
    ),
    Probe(
        name="/proc tricks",
        wall="its own /proc, read-only, and no inherited files",
        program=programs.PROC_TRICKS,
    ),
    Probe(
        name="symlink out of the work directory",
        wall="outputs are taken without following links",
        program=programs.LINKS_OUT,
    ),
    Probe(
        name="setuid", wall="no new privileges, and mounts without setuid", program=programs.SETUID
    ),
    Probe(name="keyring", wall="seccomp", program=programs.KEYRING),
    Probe(
        name="device access",
        wall="five harmless devices, no capability to make others",
        program=programs.DEVICES,
    ),
    Probe(
        name="env leak",
        wall="a cleared environment, bubblewrap's own included",
        program=programs.ENVIRONMENT,
    ),
    Probe(
        name="overlong output",
        wall="a limit on output, at which the run ends",
        program=programs.OVERLONG_OUTPUT,
        unbounded={"output_bytes": 64 * MIB},
    ),
    Probe(
        name="surviving child",
        wall="the kernel ends all processes with the sandbox's first",
        program=programs.SURVIVING_CHILD,
    ),
    Probe(name="kernel doors", wall="seccomp", program=programs.KERNEL_DOORS),
)
