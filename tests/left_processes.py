"""Processes that a run of tests started and left: told apart by a variable, listed, and ended.

A run is named in the environment of everything that it starts (`VARIABLE`). A run within a run has
the name of the outer one before its own. Read from `/proc`: where there is none, nothing is found.

    python tests/left_processes.py RUN                  list what is left of it, end it, and fail
    python tests/left_processes.py --after-owner RUN    the same when standard input ends, which
                                                        its owner holds; with a word there: nothing

Not found: processes with an environment of their own, which is what a sandbox gives to its job; it
ends them itself.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

VARIABLE = "CHECKED_RUN"
ABOUT_TO_END_S = 10.0
"""Servers are stopped in order at the end of a run, and may write for a moment."""
LINE_LENGTH = 160
SECRET = re.compile(r"(?i)((?:token|secret|password|key|login)[=: ]\s*|://)[^\s@/]+(?=\s|@|$)")
TICKS = os.sysconf("SC_CLK_TCK")


class LeftProcess(NamedTuple):
    """A process of a run, as it is told of."""

    pid: int
    name: str
    age_s: float
    line: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid}, {self.age_s:.0f} s old): {self.line}"


def run_within_this() -> str:
    """The name of a new run, below the one that this process belongs to."""
    return "/".join(filter(None, (os.environ.get(VARIABLE), uuid.uuid4().hex)))


def left_of(run: str) -> list[LeftProcess]:
    """Every living process of a run but this one."""
    wanted = f"\0{VARIABLE}={run}"
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if directory.name != str(os.getpid()):
                environment = "\0" + (directory / "environ").read_text(errors="replace")
                if f"{wanted}\0" in environment or f"{wanted}/" in environment:
                    found.append(_described(directory))
    return found


def _described(process: Path) -> LeftProcess:
    name, _, rest = (process / "stat").read_text(errors="replace").rpartition(")")
    begun_s = int(rest.split()[19]) / TICKS
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    words = (process / "cmdline").read_text(errors="replace").replace("\0", " ").split()
    line = SECRET.sub(r"\1…", " ".join(words))
    name = name.partition("(")[2]
    return LeftProcess(int(process.name), name, max(up_s - begun_s, 0.0), line[:LINE_LENGTH])


def end(run: str) -> None:
    """Kill what is left of a run, again while it still starts something."""
    deadline = time.monotonic() + ABOUT_TO_END_S
    while (left := left_of(run)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)


def check(run: str, within_s: float = ABOUT_TO_END_S) -> int:
    """List what is left of a run after that patience, and end it; 1 if there is any."""
    deadline = time.monotonic() + within_s
    while (left := left_of(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        end(run)  # before anything is said: nobody may hear it any more
        print(f"{len(left)} processes of this run were left, and were ended:", file=sys.stderr)
        for process in left:
            print(f"  {process}", file=sys.stderr)
    return 1 if left else 0


class OwnedRun:
    """A run of pytest, as its plugin: nothing that it started is left, also if it is killed."""

    NAME = "owned-run"

    def __init__(self) -> None:
        self._is_within_another = VARIABLE in os.environ
        os.environ[VARIABLE] = run = run_within_this()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, "--after-owner", run],
            stdin=subprocess.PIPE,
            env={},  # nameless: it is found by nobody
            start_new_session=True,
        )

    def leave_to_parent(self) -> None:
        """In a process forked for some of the tests: it is not what the guard waits for."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()

    def pytest_unconfigure(self) -> None:
        """The outer run checks what is left of one within it that ended in order."""
        if self._is_within_another:
            self._guard.communicate(b"ended\n")


def main(words: list[str]) -> int:
    match words:
        case ["--after-owner", run]:
            return 0 if sys.stdin.read() else check(run, within_s=0)
        case [run]:
            return check(run)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
