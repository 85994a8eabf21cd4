"""Linux network namespaces, each with an address and one device of its own.

The device is a tunnel whose other end is a file handle here. What leaves a namespace goes nowhere
unless `packet_switch.py` carries it: no bridge, no route and no address of this machine is
involved, and no kernel module that delays or loses packets.

Namespaces have no names. They exist in handles of this process and in the processes that were
started inside. When those end, however they end, the kernel removes everything.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import shutil
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, TypeVar

T = TypeVar("T")

PREFIX: Final = "10.77.0."
DEVICE: Final = b"mesh0"
PROGRAM: Final = "nsenter"
"""Of util-linux: it starts a server in its namespace."""
_TUN_DEVICE: Final = "/dev/net/tun"
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
"""Bare packets, without a header about the protocol."""
_SIOCSIFFLAGS: Final = 0x8914
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFNETMASK: Final = 0x891C
_IFF_UP: Final = 0x1
_IFF_RUNNING: Final = 0x40


class NamespacesUnavailable(Exception):
    """This machine or this user cannot create network namespaces; the message says why."""


class NetworkNamespace:
    """One namespace, its address, and the tunnel device that its packets come out of."""

    def __init__(self, number: int) -> None:
        """Created in a thread of its own, which ends: a namespace belongs to a thread."""
        self.address = f"{PREFIX}{number}"
        self.packed = socket.inet_aton(self.address)
        self._handles: list[int] = []
        try:
            in_new_thread(self._create)
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        _call("unshare", _CLONE_NEWNET)
        self._namespace = self._kept(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        self.tunnel = self._kept(os.open(_TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK))
        fcntl.ioctl(self.tunnel, _TUNSETIFF, struct.pack("16sH22x", DEVICE, _IFF_TUN | _IFF_NO_PI))
        self._control = self._kept(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach())
        fcntl.ioctl(self._control, _SIOCSIFADDR, _address(self.address))
        fcntl.ioctl(self._control, _SIOCSIFNETMASK, _address("255.255.255.0"))
        self.set_up(True)

    def _kept(self, handle: int) -> int:
        self._handles.append(handle)
        return handle

    @property
    def path(self) -> Path:
        """Where other processes find the namespace while this process holds it."""
        return Path(f"/proc/{os.getpid()}/fd/{self._namespace}")

    def set_up(self, is_up: bool, /) -> None:  # noqa: FBT001 - up or down
        """Switch the device on or off: programs inside see the interface go down."""
        flags = _IFF_UP | _IFF_RUNNING if is_up else 0
        fcntl.ioctl(self._control, _SIOCSIFFLAGS, struct.pack("16sH14x", DEVICE, flags))

    def call(self, function: Callable[[], T]) -> T:
        """Run a function inside, in a thread of its own; sockets that it opens stay inside."""

        def enter_and_call() -> T:
            enter(self.path)
            return function()

        return in_new_thread(enter_and_call)

    def close(self) -> None:
        """Release it; safe twice."""
        while self._handles:
            os.close(self._handles.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def enter(path: Path) -> None:
    """Move the calling thread into a namespace; new threads and processes of it follow."""
    handle = os.open(path, os.O_RDONLY)
    try:
        _call("setns", handle, _CLONE_NEWNET)
    finally:
        os.close(handle)


def end_with_owner(path: Path) -> None:
    """Kill this process as soon as the one that holds the namespace has ended."""
    owner = os.pidfd_open(int(path.parts[2]))

    def wait() -> None:
        select.select([owner], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def prepare() -> None:
    """Get the rights to create namespaces, or raise `NamespacesUnavailable`.

    Whoever is not root becomes the root of a user namespace, which only a process with a single
    thread can do: so this is called first of all.
    """
    check_programs()
    if os.geteuid() != 0:
        user, group = os.geteuid(), os.getegid()
        try:
            _call("unshare", _CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
        except OSError as problem:
            raise NamespacesUnavailable(
                f"network namespaces need root or a user namespace, and this user can have neither"
                f" ({problem.strerror})"
            ) from problem
    check_creation()


def check_programs() -> None:
    """`NamespacesUnavailable` if the program is not installed."""
    if sys.platform != "linux":
        raise NamespacesUnavailable("network namespaces exist on Linux only")
    if shutil.which(PROGRAM) is None:
        raise NamespacesUnavailable(f"not installed: {PROGRAM} (package util-linux)")


def check_creation() -> None:
    """`NamespacesUnavailable` if a namespace cannot be created, with the reason."""
    try:
        NetworkNamespace(1).close()
    except OSError as problem:
        raise NamespacesUnavailable(
            f"a network namespace with a tunnel device cannot be created: {problem.strerror}"
            f" (it needs CAP_SYS_ADMIN, CAP_NET_ADMIN and access to {_TUN_DEVICE})"
        ) from problem


def in_new_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own; return or raise what it does."""
    results: list[T] = []
    problems: list[BaseException] = []

    def go() -> None:
        try:
            results.append(function())
        except BaseException as problem:  # noqa: BLE001 - raised again where it is awaited
            problems.append(problem)

    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return results[0]


def _address(text: str) -> bytes:
    """A `struct ifreq` with an address in it."""
    return struct.pack("16sHH4s8x", DEVICE, socket.AF_INET, 0, socket.inet_aton(text))


def _call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def launcher(directory: Path, namespace: NetworkNamespace, program: Path) -> Path:
    """A script that runs a program in a namespace."""
    script = directory / "in-namespace"
    script.write_text(
        f'#!/bin/sh\nexec {shutil.which(PROGRAM)} --net={namespace.path} "{program}" "$@"\n',
        encoding="utf-8",
    )
    with suppress(OSError):
        script.chmod(0o700)
    return script
