"""The `antiphon` command without the time of its imports: forked from a process that made them.

A command of a test is a process of its own: its standard streams, directory, environment, session
and signals are those that were asked for, and it ends as the console script does. Only its modules
are there already. Half a second of imports for each of several hundred commands would otherwise be
most of what the acceptance tests cost.

The warm process belongs to one process of tests. It is told over a socket what to start, with the
command's streams, and tells over a socket of that command how it ended. At the end of the tests,
also if they are killed, it ends the commands that still run.
"""

import atexit
import functools
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO

ANTIPHON = Path(sys.executable).parent / "antiphon"
LOCALE = {"LC_ALL": "C.UTF-8"}
"""Its streams are opened when Python starts: a command in another locale starts cold."""
STDERR = 2
OUTPUT_LOST = 120
"""What Python returns if its output cannot be written at the end."""
MAX_REQUEST = 1 << 20
IMPORTED_LATER = (
    "cryptography.x509",
    "rich.live",
    "rich.progress",
    "rich.table",
    "structlog.dev",
    "uvloop",
)
"""What some commands import inside a function."""
LONGEST_S = 600.0
"""For a command that nobody waits for with a limit of their own."""


def _of_the_interpreter(env: Mapping[str, str]) -> dict[str, str]:
    """What Python reads only when it starts."""
    return {name: value for name, value in env.items() if name.startswith(("PYTHON", "LC_"))}


def can_start(env: Mapping[str, str]) -> bool:
    """Whether a command in this environment would be the same if it started cold."""
    return _of_the_interpreter(env) == _of_the_interpreter({**os.environ, **LOCALE})


class WarmProcess:
    """What tests use of `subprocess.Popen`."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        start_new_session: bool = False,
    ) -> None:
        self.args = [str(ANTIPHON), *words]
        self.returncode: int | None = None
        ours: list[IO[str] | None] = []
        theirs: list[int] = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            own, other = _stream(wanted, is_input=number == 0)
            ours.append(own)
            theirs.append(other if other is not None else wanted)
        self.stdin, self.stdout, self.stderr = ours
        self._status, reports = socket.socketpair()
        self._status.settimeout(LONGEST_S)
        request = {
            "words": self.args,
            "cwd": str(cwd),
            "env": dict(env),
            "session": start_new_session,
        }
        with reports:
            message = json.dumps(request).encode()
            socket.send_fds(_line(), [message], [*theirs, reports.fileno()])
        for number, wanted in zip(theirs, (stdin, stdout, stderr), strict=True):
            if number != wanted:
                os.close(number)
        self.pid = int(self._told())

    def _told(self) -> bytes:
        """The next line of the warm process: the pid, then the exit code."""
        line = b""
        while not line.endswith(b"\n"):
            piece = self._status.recv(1)
            if not piece:
                raise RuntimeError(f"the warm process is gone; it was to start {self.args}")
            line += piece
        return line

    def poll(self) -> int | None:
        """The exit code of a command that has ended."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the exit code."""
        if self.returncode is None:
            ready, _, _ = select.select([self._status], [], [], timeout or LONGEST_S)
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout or LONGEST_S)
            self.returncode = int(self._told())
            self._status.close()
        return self.returncode

    def communicate(self, typed: str, timeout: float) -> tuple[str, str]:
        """Type this into it and wait for its end; its output and its errors."""
        assert self.stdin
        assert self.stdout
        assert self.stderr
        with ThreadPoolExecutor(2) as readers, self.stdout, self.stderr:
            out, err = readers.submit(self.stdout.read), readers.submit(self.stderr.read)
            with suppress(BrokenPipeError), self.stdin:
                self.stdin.write(typed)
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return out.result(), err.result()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _stream(wanted: int, *, is_input: bool) -> tuple[IO[str] | None, int | None]:
    """Our end of a stream, and the command's end if it has to be made."""
    if wanted == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if wanted != subprocess.PIPE:
        return None, None
    reads, writes = os.pipe()
    if is_input:
        return os.fdopen(writes, "w"), reads
    return os.fdopen(reads), writes


@functools.cache
def _line() -> socket.socket:
    """The socket to the warm process of these tests, which is started by the first command."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env={**os.environ, **LOCALE},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait(LONGEST_S)

    atexit.register(end)
    return ours


# --- in the warm process ----------------------------------------------------------------------


def load() -> None:
    """Import the package with everything that any command imports."""
    import antiphon

    for module in pkgutil.walk_packages(antiphon.__path__, "antiphon."):
        if not module.name.startswith("antiphon.testing") and "__main__" not in module.name:
            importlib.import_module(module.name)
    for name in IMPORTED_LATER:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    from antiphon.core.protocol import PROTOCOL

    _ = PROTOCOL.decoder  # made at the first record otherwise
    gc.collect()
    gc.freeze()  # the children share these pages as long as nothing writes to them


def serve(line: socket.socket) -> bool:
    """Start what is asked for until the tests end; true in each process that is a command."""
    waker, woken = socket.socketpair()
    waker.setblocking(False)  # as Python wants it
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([line, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _report_ended(running)
        if line not in ready:
            continue
        message, streams, _, _ = socket.recv_fds(line, MAX_REQUEST, 4)
        if not message:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return False
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            for one in (line, waker, woken, *running.values()):
                one.close()
            _become(request, streams)
            return True
        for number in streams[:3]:
            os.close(number)
        running[pid] = socket.socket(fileno=streams[3])
        running[pid].sendall(b"%d\n" % pid)


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as told:
            told.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Be as a process that has just been started with this request."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams[:3]):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        setattr(sys, name, _reopened(getattr(sys, name), mode))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["words"]
    sys.path[0] = str(ANTIPHON.parent)
    sys.modules["__main__"].__file__ = str(ANTIPHON)


def _reopened(stream: TextIO, mode: str) -> TextIO:
    """A standard stream as Python would have opened it upon what it is now."""
    is_lines = mode == "w" and (stream.fileno() == STDERR or os.isatty(stream.fileno()))
    opened = open(  # noqa: SIM115 - it is open for as long as the process lives
        stream.fileno(), mode, encoding=stream.encoding, errors=stream.errors, closefd=False
    )
    opened.reconfigure(line_buffering=is_lines)
    return opened


def _command() -> int:
    """What the console script does; its exit code, which is an error's too."""
    from antiphon.interfaces.cli import main

    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    except Exception:  # noqa: BLE001 - the interpreter does not reach its own end
        traceback.print_exc()
    return 1


def _end(code: int) -> NoReturn:
    """End as Python does, without tearing down one by one the modules that were shared."""
    threading._shutdown()  # waits for threads, as the interpreter's end does
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = OUTPUT_LOST
    os._exit(code)  # standard error is not buffered beyond a line


if __name__ == "__main__":
    load()
    if serve(socket.socket(fileno=int(sys.argv[1]))):
        _end(_command())
