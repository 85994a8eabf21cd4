"""The seccomp filter: system calls that no job needs are refused.

A list of what is denied, not of what is allowed: jobs run any program, and an allow list breaks
with every new C library. Denied are: other processes' memory, mounts and namespaces, kernel keys,
kernel programs, the machine's clock, modules and swap, and newer interfaces with a history of
security bugs (io_uring, userfaultfd). Calls newer than this file do not exist for a job, and
neither do those of another architecture.

The program is classic BPF, assembled here: it is a straight line with short jumps, and a library
would be one more dependency for ninety instructions.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

# Number on x86_64, number on aarch64; None where the architecture never had it.
DENIED: Final[dict[str, tuple[int, int | None]]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # mounts, roots, namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    # files by handle, past every path
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    # kernel keys, which no namespace separates
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    # programs and events inside the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "memfd_secret": (447, 447),
    # the machine itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
}
# Answered as if the kernel were older: the C library and other callers then fall back.
ABSENT: Final[dict[str, tuple[int, int]]] = {
    "clone3": (435, 435),  # its flags are in memory, where no filter can read them
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
# Memory that belongs to no process and no sized file system; only a cgroup counts it.
UNCOUNTED: Final[dict[str, tuple[int, int]]] = {
    "memfd_create": (319, 279),
    "shmget": (29, 194),
}
BY_ARGUMENT: Final[dict[str, tuple[int, int]]] = {
    "clone": (56, 220),
    "socket": (41, 198),
    "ioctl": (16, 29),
    "personality": (135, 92),
}
NEWEST: Final = 466
"""The last call reviewed for this list; its number is the same on all machines."""

NEW_NAMESPACES: Final = 0x7E02_0000
"""The CLONE_NEW flags: mount, cgroup, uts, ipc, user, pid, net."""
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
ASKING: Final = 0xFFFF_FFFF
"""`personality` with this value only asks."""

ALLOW: Final = 0x7FFF_0000
KILL: Final = 0x8000_0000
ERRNO: Final = 0x0005_0000
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97

_X32_BIT: Final = 0x4000_0000
_ARCHITECTURES: Final = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, operand."""


def is_known(machine: str | None = None) -> bool:
    """Whether there is a filter for this machine's architecture."""
    return (machine or platform.machine()) in _ARCHITECTURES


@cache
def program(machine: str | None = None, *, memory_is_counted: bool = True) -> bytes:
    """The filter as `bwrap --seccomp` reads it: an array of `struct sock_filter`."""
    lines = _instructions(machine or platform.machine(), memory_is_counted=memory_is_counted)
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _instructions(machine: str, *, memory_is_counted: bool) -> Iterator[Instruction]:
    architecture, column = _ARCHITECTURES[machine]
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_EQUAL, 1, 0, architecture)
    yield (_RETURN, 0, 0, KILL)
    yield (_LOAD, 0, 0, _NUMBER)
    if machine == "x86_64":
        yield (_AT_LEAST, 0, 1, _X32_BIT)
        yield (_RETURN, 0, 0, KILL)
    yield (_AT_LEAST, 0, 1, NEWEST + 1)
    yield (_RETURN, 0, 0, ERRNO | ENOSYS)
    refused = [(numbers[column], EPERM) for numbers in DENIED.values()]
    absent = [*ABSENT.values(), *(() if memory_is_counted else UNCOUNTED.values())]
    refused += [(numbers[column], ENOSYS) for numbers in absent]
    for number, error in refused:
        if number is not None:
            yield (_EQUAL, 0, 1, number)
            yield (_RETURN, 0, 0, ERRNO | error)
    yield from _by_argument({name: numbers[column] for name, numbers in BY_ARGUMENT.items()})
    yield (_RETURN, 0, 0, ALLOW)


def _by_argument(number: dict[str, int]) -> Iterator[Instruction]:
    """Calls that are refused with some arguments only.

    The kernel reads these arguments as 32-bit values, so their low halves are all there is.
    """
    yield from _when(
        number["clone"],
        (_LOAD, 0, 0, _low_half(0)),
        (_ANY_BIT, 0, 1, NEW_NAMESPACES),
        (_RETURN, 0, 0, ERRNO | EPERM),
        (_RETURN, 0, 0, ALLOW),
    )
    # Machines' own buses (vsock reaches the host of a virtual machine) ignore network namespaces.
    yield from _when(
        number["socket"],
        (_LOAD, 0, 0, _low_half(0)),
        (_EQUAL, 6, 0, AF_UNIX),
        (_EQUAL, 5, 0, AF_INET),
        (_EQUAL, 4, 0, AF_INET6),
        (_EQUAL, 0, 2, AF_NETLINK),
        (_LOAD, 0, 0, _low_half(2)),
        (_EQUAL, 1, 0, 0),  # NETLINK_ROUTE: how programs list their interfaces
        (_RETURN, 0, 0, ERRNO | EAFNOSUPPORT),
        (_RETURN, 0, 0, ALLOW),
    )
    yield from _when(
        number["ioctl"],
        (_LOAD, 0, 0, _low_half(1)),
        (_EQUAL, 1, 0, TIOCSTI),
        (_EQUAL, 0, 1, TIOCLINUX),
        (_RETURN, 0, 0, ERRNO | EPERM),
        (_RETURN, 0, 0, ALLOW),
    )
    yield from _when(
        number["personality"],
        (_LOAD, 0, 0, _low_half(0)),
        (_EQUAL, 2, 0, 0),
        (_EQUAL, 1, 0, ASKING),
        (_RETURN, 0, 0, ERRNO | EPERM),
        (_RETURN, 0, 0, ALLOW),
    )


def _when(number: int, *body: Instruction) -> Iterator[Instruction]:
    yield (_EQUAL, 0, len(body), number)
    yield from body


def _low_half(argument: int) -> int:
    """Where an argument's low 32 bits are: both architectures are little-endian."""
    return _ARGUMENTS + 8 * argument
