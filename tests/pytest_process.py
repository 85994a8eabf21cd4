"""Runs tests in a process group of their own, and reads from what pytest said how they ended."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
HANGING = re.compile(r"^(\S+?\.py::.+?)\s*\+{3,} Timeout \+{3,}", re.MULTILINE)
"""A test that began, and was ended by its limit."""
PASSED, FAILING, NONE_RUN, TOO_LONG = 0, 1, 5, -1
"""How pytest ends, and what stands for its end if it took too long."""
PLAINLY = ("-v", "-rfE", "--tb=line", "--no-header", "--assert=plain", "-p", "no:cacheprovider")
"""Where asserts are rewritten, pytest itself finds our modules, and an import hook never does."""


def limit(test_s: float) -> tuple[str, ...]:
    """Ends a test that hangs: by a thread, since an event loop could swallow an exception."""
    return (f"--timeout={test_s:g}", "--timeout-method=thread")


@dataclass(frozen=True)
class Ran:
    """How a run of pytest ended."""

    code: int
    said: str

    @property
    def failed(self) -> str:
        """The first test that failed; empty if none did."""
        if self.code != FAILING:
            return ""  # the tests could not be loaded: `ERROR` names a file
        found = FAILED.search(self.said) or HANGING.search(self.said)
        return found[1].strip() if found else ""


def environment(process: Path, more: Mapping[str, str]) -> dict[str, str]:
    """That of a process whose Python first runs the `sitecustomize` of a folder."""
    paths = (str(process), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), **more}


async def run_pytest(
    arguments: Sequence[str], env: Mapping[str, str], *, limit_s: float, root: Path = ROOT
) -> Ran:
    """Run pytest, and end everything that it started."""
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pytest", *PLAINLY, *arguments,
            cwd=root, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = await asyncio.wait_for(process.wait(), limit_s)
        except TimeoutError:
            return Ran(TOO_LONG, f"its tests took longer than {limit_s:g} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        said.seek(0)
        return Ran(code, said.read().decode(errors="replace"))
