"""What every command has in common: its options, its directory, its end and its report.

A command that is ended by SIGTERM ends like one that is ended by Ctrl-C: its work is cancelled, so
every server and process that it started is ended and its directory removed. A second SIGTERM ends
it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from antiphon import telemetry

T = TypeVar("T")

ENDED: Final = 128 + signal.SIGTERM
"""The exit code of a command that was ended by SIGTERM, as shells have it."""


def parser_for(name: str, quick: str, *, has_seed: bool = True) -> argparse.ArgumentParser:
    """The options that all commands have; `quick` says what `--quick` does."""
    parser = argparse.ArgumentParser(prog=f"chaos {name}")
    parser.add_argument("--quick", action="store_true", help=quick)
    if has_seed:
        parser.add_argument("--seed", type=int, default=1)
    return parser


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work to its end; `SystemExit` if SIGTERM ends it before."""
    telemetry.configure("error", "text")
    is_ended = False

    async def whole() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            nonlocal is_ended
            is_ended = True
            loop.remove_signal_handler(signal.SIGTERM)
            if task is not None:
                task.cancel()

        loop.add_signal_handler(signal.SIGTERM, end)
        try:
            return await work
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    try:
        return asyncio.run(whole())
    except BaseException:
        if not is_ended:
            raise
        print("ended by SIGTERM; what it had started was ended", file=sys.stderr)
        raise SystemExit(ENDED) from None


@contextmanager
def run_directory(name: str = "chaos") -> Iterator[Path]:
    """Where everything of a run lies; removed with it."""
    with tempfile.TemporaryDirectory(prefix=f"antiphon-{name}-") as directory:
        yield Path(directory)


async def timed(trial: Callable[[Path], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Run a trial in a directory of its own; its summary, and how many seconds it took."""
    begun = time.monotonic()
    with run_directory() as directory:
        summary = await trial(directory)
    return summary | {"seconds": round(time.monotonic() - begun, 1)}


def report(summary: Mapping[str, object], *, holds: bool) -> int:
    """Print the summary as the last line; the exit code."""
    print(json.dumps(summary))
    return 0 if holds else 1
