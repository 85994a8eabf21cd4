"""Processes that have imported pytest and what the tests need, and fork for each run of tests.

Importing takes seconds, and a mutant is noticed in less. The package itself is not imported before
the fork, so each child has its own mutant.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from _pytest.config import get_config

from tests.mutate.overlay import install_from_environment
from tests.mutate.survey import PROCESS
from tests.pytest_process import PLAINLY, TOO_LONG, Ran, environment

LOOK_S = 0.02
LONGEST_LINE = 2**24


class Warm:
    """One such process; it runs tests one after another."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @staticmethod
    async def start(root: Path, modules: Iterable[str]) -> Warm:
        """Import what the package's tests import, apart from the package and the tests."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.mutate.warm",
            cwd=root, env=environment(PROCESS, {}), limit=LONGEST_LINE,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        warm = Warm(process)
        await warm._ask({"modules": sorted(modules)})
        return warm

    async def run(self, tests: Sequence[str], env: dict[str, str], limit_s: float) -> Ran:
        """Run tests until one fails, in a child of this process."""
        with tempfile.TemporaryDirectory() as folder:
            wanted, said = Path(folder, "wanted"), Path(folder, "said")
            wanted.write_text("\n".join(tests), encoding="utf-8")
            question = {"env": env, "wanted": str(wanted), "said": str(said), "limit_s": limit_s}
            code = await self._ask(question)
            return Ran(code, said.read_text(encoding="utf-8", errors="replace"))

    async def _ask(self, question: dict[str, object]) -> int:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("it was started without pipes")
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that runs the tests has ended")
        return int(line)

    async def stop(self) -> None:
        """End it; its children have ended."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


# --- in that process --------------------------------------------------------------------------


def main() -> None:
    """Answer each line of standard input with how the tests ended."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        if "modules" in question:
            _import_all(question["modules"])
            code = 0
        else:
            code = _in_child(question)
        answers.write(f"{code}\n")
        answers.flush()


def _import_all(modules: Iterable[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with suppress(Exception):
                importlib.import_module(name)
        get_config()  # imports pytest's own plugins
    gc.collect()
    gc.freeze()


def _in_child(question: dict[str, object]) -> int:
    pid = os.fork()
    if pid == 0:
        _run(question)
    ends = time.monotonic() + float(str(question["limit_s"]))
    done, status = os.waitpid(pid, os.WNOHANG)
    while not done and time.monotonic() < ends:
        time.sleep(LOOK_S)
        done, status = os.waitpid(pid, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # with everything that the tests started
    if done:
        return os.waitstatus_to_exitcode(status)
    os.waitpid(pid, 0)
    return TOO_LONG


def _run(question: dict[str, object]) -> None:
    code = 3
    try:
        os.setsid()
        said = os.open(str(question["said"]), os.O_WRONLY | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        env = question["env"]
        if isinstance(env, dict):
            os.environ.update(env)
        install_from_environment()
        import pytest

        arguments = ["-x", *PLAINLY, "--hypothesis-seed=0", f"@{question['wanted']}"]
        code = int(pytest.main(arguments))
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
