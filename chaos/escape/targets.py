"""What could be reached from inside a command's sandbox, and whether it was.

A key, a home, another process with something on its command line and in its environment,
listeners, a kernel key, a handler for a signal: real ones, on this machine, with a canary in them
that no probe is told.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from antiphon.processes.owned_process import OwnedPopen
from antiphon.sandbox.isolation import seccomp

TABLES = (seccomp.DENIED, seccomp.ABSENT, seccomp.UNCOUNTED, seccomp.BY_ARGUMENT)
SESSION_KEYRING = -3
JOIN_SESSION_KEYRING, UNLINK = 1, 9
NAP_S = 25
"""A child that survives ends by itself after this long."""


def calls() -> dict[str, int]:
    """This machine's numbers of the system calls that probes make by number."""
    column = 0 if platform.machine() == "x86_64" else 1
    found = {name: row[column] for table in TABLES for name, row in table.items()}
    return {name: number for name, number in found.items() if number is not None}


class Targets:
    """All targets, from setup to removal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.canary = f"canary-{secrets.token_hex(8)}"
        self.nap = f"{NAP_S}.{secrets.randbelow(10**9):09d}"
        self.key_name = f"antiphon-probe-{secrets.token_hex(4)}"
        self.signals = 0
        self._stack = ExitStack()
        self._key_id = -1

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _set_up(self) -> None:
        for name in ("keys", "home", "outside", "mnt"):
            (self.directory / name).mkdir()
        (self.directory / "outside").chmod(0o777)
        self.key = self.directory / "keys" / "node.key"
        self.key.write_text(self.canary)
        self.key.chmod(0o600)
        (self.directory / "home" / f"{self.canary}.txt").write_text("at home")
        (self.directory / "keys").chmod(0o700)
        (self.directory / "home").chmod(0o700)
        self._state()
        self.shared_memory = Path(f"/dev/shm/antiphon-probe-{secrets.token_hex(4)}")  # noqa: S108
        self.shared_memory.write_text(self.canary)
        self.shared_memory.chmod(0o600)
        self._stack.callback(self.shared_memory.unlink)
        self._listen()
        self._decoy()
        self._keyring()
        self._signals()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _state(self) -> None:
        """A worker's state among tools that commands may see; only masking hides it.

        Below /usr as well, and mounted a second time, where this user can do that.
        """
        self.tools = self.directory / "tools"
        self.states = [self.tools / "state"]
        if os.geteuid() == 0:
            below_usr = Path("/usr/src", f"antiphon-probe-{secrets.token_hex(4)}")
            self.states.append(below_usr / "state")
            self._stack.callback(shutil.rmtree, below_usr)
        for state in self.states:
            state.mkdir(parents=True)
            (state / "worker-1.key").write_text(self.canary)
        if os.geteuid() == 0:
            again = self.tools / "volume"
            again.mkdir()
            mount = subprocess.run(["mount", "--bind", self.states[1], again], check=False)
            if mount.returncode == 0:
                self._stack.callback(lambda: subprocess.run(["umount", again], check=True))

    def _listen(self) -> None:
        self.tcp = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.udp = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("0.0.0.0", 0))  # noqa: S104 - only this machine's own addresses are used
        self.abstract = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self.abstract_name = f"antiphon-probe-{secrets.token_hex(4)}"
        self.abstract.bind(f"\0{self.abstract_name}")
        self.abstract.listen()
        for listener in (self.tcp, self.udp, self.abstract):
            listener.setblocking(False)

    def _decoy(self) -> None:
        """Somebody else's process: this user's, with secrets where people put them."""
        waits = "import signal, time; signal.signal(10, signal.SIG_IGN); time.sleep(600)"
        self.decoy = OwnedPopen(
            [sys.executable, "-I", "-S", "-c", waits, f"--token={self.canary}"],
            env={"TOKEN": self.canary},
            cwd=self.directory / "keys",
        )
        self._stack.callback(self.decoy.wait)
        self._stack.callback(self.decoy.kill)

    def _keyring(self) -> None:
        """A key in this process's session keyring, which children inherit with their session."""
        libc, numbers = ctypes.CDLL(None, use_errno=True), calls()
        libc.syscall(numbers["keyctl"], JOIN_SESSION_KEYRING, None)
        content = self.canary.encode()
        self._key_id = libc.syscall(
            *(numbers["add_key"], b"user", self.key_name.encode()),
            *(content, len(content), SESSION_KEYRING),
        )
        # Whoever possesses it may read it, and so may everybody: the strongest case.
        libc.syscall(numbers["keyctl"], 5, self._key_id, 0x3F3F3F3F)
        self._stack.callback(libc.syscall, numbers["keyctl"], UNLINK, self._key_id, SESSION_KEYRING)

    def _signals(self) -> None:
        def count(*_: object) -> None:
            self.signals += 1

        before = signal.signal(signal.SIGUSR1, count)
        self._stack.callback(signal.signal, signal.SIGUSR1, before)

    def description(self) -> str:
        """What a probe is told: where to look, never what is there."""
        described: dict[str, Any] = {
            "calls": calls(),
            "key": str(self.key),
            "tools": str(self.tools),
            "state_keys": [str(state / "worker-1.key") for state in self.states],
            "home": str(self.directory / "home"),
            "outside": str(self.directory / "outside"),
            "mount_point": str(self.directory / "mnt"),
            "shared_memory": str(self.shared_memory),
            "decoy": self.decoy.pid,
            "worker": os.getpid(),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "addresses": own_addresses(),
            "abstract": self.abstract_name,
            "key_name": self.key_name,
            "nap": self.nap,
            "disk": Path("/").stat().st_dev,
            "devices": devices(),
        }
        return json.dumps(described)

    def clear(self) -> None:
        """Remove what the last probe left."""
        self.signals = 0
        for left in (self.directory / "outside").iterdir():
            left.unlink()
        self.end_survivors()
        self.connections()

    def connections(self) -> int:
        """Connections and datagrams that arrived since the last look."""
        found = 0
        for listener in (self.tcp, self.abstract):
            with suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    found += 1
        with suppress(BlockingIOError):
            while self.udp.recv(64):
                found += 1
        return found

    def survivors(self) -> list[int]:
        """Processes that outlived their run; they are found by the length of their sleep."""
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdigit() and self.nap in (folder / "cmdline").read_text():
                    found.append(int(folder.name))
        return [pid for pid in found if pid not in (os.getpid(), self.decoy.pid)]

    def end_survivors(self) -> None:
        for pid in self.survivors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)

    def was_reached(self, said: bytes, kept: list[Path]) -> str:
        """What a probe got, in a word; empty if nothing."""
        if self.canary.encode() in said:
            return "the canary"
        if b"REACHED" in said:
            at = said.index(b"REACHED") + len(b"REACHED ")
            return said[at:].splitlines()[0].decode(errors="replace")
        if self.signals:
            return "a signal arrived"
        if any((self.directory / "outside").iterdir()):
            return "a file outside"
        if self.connections():
            return "a connection or a datagram arrived"
        if self.survivors():
            return "a process is still there"
        if any(self.canary.encode() in path.read_bytes() for path in kept):
            return "the canary in an output"
        return ""


def own_addresses() -> list[str]:
    """Addresses of this machine's own, beside loopback."""
    with suppress(OSError):
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        return sorted({str(info[4][0]) for info in found})
    return []


def devices() -> list[str]:
    """Disks, the kernel's log and memory, the tunnel."""
    found = ["/dev/mem", "/dev/kmsg", "/dev/net/tun", "/dev/fuse", "/dev/kvm"]
    with suppress(OSError):
        lines = Path("/proc/partitions").read_text().splitlines()[2:]
        found += [f"/dev/{line.split()[-1]}" for line in lines]
    return found
