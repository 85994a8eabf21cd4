"""A terminal for tests: the real `antiphon` in real processes, in a directory of its own."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

from tests.acceptance import warm_cli
from tests.acceptance.warm_cli import ANTIPHON, WarmProcess
from tests.patience import PATIENCE_S

HOSTING = frozenset({"dev", "init", "up"})


class Answer(NamedTuple):
    """What a command that ended had to say."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Running:
    """A command that goes on."""

    def __init__(self, process: subprocess.Popen[str] | WarmProcess) -> None:
        self.process = process
        self.pid = process.pid
        self.seen: list[str] = []
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError, OSError):  # closed, since the test was done with it
            for line in self.process.stdout:
                self._lines.put(line)

    def line(self, holding: str = "") -> str:
        """The next line of standard output that holds this text."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.01))
            except Empty:
                raise AssertionError(f"no line with {holding!r}; so far: {self.seen}") from None
            self.seen.append(line)
            if holding in line:
                return line

    def send(self, number: signal.Signals = signal.SIGTERM) -> None:
        """A signal to the whole group, as a terminal's Ctrl-C sends it."""
        os.killpg(self.pid, number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def insist(self, number: signal.Signals) -> int:
        """A signal again and again, as an impatient person sends it, until the end."""

        def has_ended() -> bool:
            if self.process.poll() is None:
                self.send(number)
                time.sleep(0.5)
            return self.process.poll() is not None

        until(has_ended)
        return self.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.send(number)
        return self.wait()

    @property
    def err(self) -> str:
        """Standard error of a process that has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


class Shell:
    """A directory in which commands are typed.

    They are the program's, in processes without the time of its imports (`warm_cli`); with another
    program, in another locale, or if the shell is not warm, each starts as a person would start it.
    """

    def __init__(
        self, directory: Path, *, program: Path = ANTIPHON, is_warm: bool = True, **env: str
    ) -> None:
        self.directory = directory
        self.program = program
        self.is_warm = is_warm and program == ANTIPHON
        self.env = {key: value for key, value in os.environ.items() if "ANTIPHON" not in key}
        # A terminal in another locale is told everything in ASCII.
        self.env |= {"NO_COLOR": "1", "LC_ALL": "C.UTF-8", **env}

    @property
    def home(self) -> Path:
        given = self.env.get("ANTIPHON_HOME")
        return Path(given) if given else self.directory / ".antiphon"

    def run(
        self, *words: str, timeout_s: float = PATIENCE_S, typed: str = "", **env: str
    ) -> Answer:
        """Type a command, and `typed` into it, and wait for its end."""
        began = time.monotonic()
        process = self._process(*words, env=env, stdin=subprocess.PIPE)
        try:
            out, err = process.communicate(typed, timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return Answer(process.wait(), out, err, time.monotonic() - began)

    def typed_into(self, stdout: int, *words: str) -> subprocess.Popen[str] | WarmProcess:
        """Type a command whose standard output goes to an open file; its process."""
        return self._process(*words, env={}, stdin=subprocess.DEVNULL, stdout=stdout)

    def _process(
        self, *words: str, env: dict[str, str], **how: Any
    ) -> subprocess.Popen[str] | WarmProcess:
        """A command as a process of its own."""
        whole = self.env | env
        if self.is_warm and warm_cli.can_start(whole):
            return WarmProcess(words, cwd=self.directory, env=whole, **how)
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return subprocess.Popen(
            [self.program, *words], cwd=self.directory, env=whole, text=True, **how
        )

    def ended(self, job: str) -> Any:
        """What is shown of a job as soon as it has ended; one command waits for that."""
        answer = self.run("show", job, "--follow", "--json")
        assert answer.code == 0, answer
        return answer.json

    def export(self, *words: str) -> Answer:
        """Type a command that waits for a seal, again and again until there is one."""
        answers: list[Answer] = []

        def is_there() -> bool:
            answers.append(self.run("export", *words))
            assert answers[-1].code == 0 or "no seal" in answers[-1].err, answers[-1]
            return answers[-1].code == 0

        until(is_there, within_s=2 * PATIENCE_S)
        return answers[-1]

    def on_screen(
        self,
        *words: str,
        columns: int = 80,
        seeing: str = "",
        then: Callable[[], None] = lambda: None,
        ends: bool = False,
    ) -> str:
        """What a person sees who types it in a terminal of that width, and waits for its end.

        As soon as it shows the text `seeing`, the person does `then`, and ends it if `ends`.
        """
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = self._process(
            *words,
            env={"TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen = bytearray()
        try:
            # Linux ends a terminal that nobody holds any more with an error.
            with suppress(OSError):
                while piece := os.read(ours, 65536):
                    seen += piece
                    if seeing and seeing in seen.decode(errors="replace"):
                        seeing = ""
                        then()
                        if ends:
                            os.killpg(process.pid, signal.SIGINT)
            process.wait(PATIENCE_S)
        finally:
            os.close(ours)
            if process.poll() is None:
                process.kill()
                process.wait()
        return seen.decode()

    @contextmanager
    def start(self, *words: str, **env: str) -> Iterator[Running]:
        """Type a command that goes on; whatever of it is left at the end is killed."""
        process = self._process(*words, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        running = Running(process)
        try:
            yield running
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            if not HOSTING.isdisjoint(words):
                self.end_server()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def end_server(self) -> None:
        """Kill the server of a killed host, which would else end in order a moment later."""
        for ports in self.home.glob("server/ports/*.ports"):
            pid = int(ports.stem.rpartition("_")[2])
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    @contextmanager
    def init(self, *words: str) -> Iterator[dict[str, Any]]:
        """A mesh for several machines, founded and up; ended in order."""
        with self.start("init", "--json", *words) as running:
            founded = json.loads(running.line("founded"))
            ready = json.loads(running.line("ready"))
            yield {
                "running": running,
                **founded,
                "dashboard": Path(ready["dashboard"]).read_text().strip(),
            }
            assert running.stop() == 0, running.err

    @contextmanager
    def dev(self, *words: str, **env: str) -> Iterator[dict[str, Any]]:
        """A development mesh that is ready; ended in order."""
        with self.start("dev", "--json", *words, **env) as running:
            # Its worker may have a job to tell of before that.
            yield {"running": running, **json.loads(running.line('"is_new"'))}
            assert running.stop() == 0, running.err


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not, and one that has just begun does."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_called(*words: str) -> list[int]:
    """Processes of this machine that were started with just these words."""
    wanted, found = [word.encode() for word in words], []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                folder.name.isdigit()
                and (folder / "cmdline").read_bytes().split(b"\0")[:-1] == wanted
            ):
                found.append(int(folder.name))
    return found


def wake(nap: str) -> None:
    """End the `sleep` that a command comes to, so that it goes on; it must not have ended."""
    until(lambda: processes_called("sleep", nap))
    (pid,) = processes_called("sleep", nap)
    os.kill(pid, signal.SIGPIPE)  # the one of which no shell says a word


def until(condition: Any, *, within_s: float = PATIENCE_S) -> None:
    """Wait for something to become true, and leave most of the time to what is waited for."""
    deadline = time.monotonic() + within_s
    asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, "it did not become true in time"
        time.sleep(min(max(3 * (now - asked), 0.05), 1.0))
        asked = time.monotonic()
