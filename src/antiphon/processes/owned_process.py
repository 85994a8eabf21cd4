"""Processes that end with the process that started them, however that one ends.

Our servers and workers are started here. Their owner holds the writing end of a pipe, and a shell
beside the started process reads from the other end. When that ends, the shell ends the process
group. An owner that gets SIGKILL has nothing to do: the kernel closes its files.

    owner ── pipe ──> sh: read; kill -TERM 0; ...; kill -KILL 0      one process group,
      └── starts ───> sh: exec nats-server -c server.conf            named by the server

Why a shell: every POSIX system has one, it starts within a millisecond or two, and `exec` lets the
server have the process id that its owner knows. `PR_SET_PDEATHSIG` exists in Linux only, follows
the *thread* that started the process, and misses an owner that ended before it was set.

Invariants: the pipe is there before the process, so there is no moment without protection; the
group that gets the signals is the shell's own, so its number cannot be another process's by then.

Not reached: what starts a session of its own; and everything, as long as a copy of the owner lives
that was forked without `exec`, since that has the pipe too. Not for programs of others: the shell
is a child that they did not start, which `wait` without a process id would tell them of. The shell
keeps the files of `pass_fds` open: pass as a standard stream what must close with the process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

_SCRIPT: Final = """\
{
  exec <"/dev/fd/$1" >/dev/null 2>&1
  trap "" TERM
  cd /
  read -r _
  if [ "$2" -gt 0 ]; then
    kill -TERM 0
    kill -CONT 0
    turns=$2
    while [ "$turns" -gt 0 ] && kill -0 $$; do
      sleep 0.1
      turns=$((turns - 1))
    done
  fi
  kill -KILL 0
} &
shift 2
exec "$@"
"""
"""`$1` is the pipe, `$2` the grace in tenths of a second. After `<&` dash takes one digit alone."""


class OwnedPopen(subprocess.Popen[Any]):
    """A `subprocess.Popen` whose process ends when its owner, this process, has ended.

    It gets SIGTERM then, and SIGKILL if it still runs after the grace; without one SIGKILL at once.
    """

    def __init__(self, words: Sequence[str], *, grace_s: float = 0.0, **how: Any) -> None:
        """Start it, in a session of its own."""
        with _owned(words, grace_s, how) as (line, pipe):
            super().__init__(line, **how)
            _hold(self, pipe)


async def start_owned(*words: str, grace_s: float = 0.0, **how: Any) -> asyncio.subprocess.Process:
    """`asyncio.create_subprocess_exec`, with the end that an `OwnedPopen` has."""
    with _owned(words, grace_s, how) as (line, pipe):
        process = await asyncio.create_subprocess_exec(*line, **how)
        _hold(process, pipe)
    return process


@contextmanager
def _owned(
    words: Sequence[str], grace_s: float, how: dict[str, Any]
) -> Iterator[tuple[list[str], int | None]]:
    """The command line to start instead, and the pipe to hold; adds what it needs to `how`."""
    if sys.platform == "win32":
        yield list(words), None
        return
    reads, writes = os.pipe()
    how["pass_fds"] = (*how.get("pass_fds", ()), reads)
    # A Ctrl-C at the terminal is for the owner, which then ends the process as it should end.
    how["start_new_session"] = True
    line = ["/bin/sh", "-c", _SCRIPT, "sh", str(reads), str(round(grace_s * 10)), *words]
    try:
        yield line, writes
    except BaseException:
        os.close(writes)
        raise
    finally:
        os.close(reads)


def _hold(process: object, pipe: int | None) -> None:
    """Close the pipe when nobody asks for the process any more, so that its shell ends too."""
    if pipe is not None:
        weakref.finalize(process, os.close, pipe).atexit = False
