"""Child processes of a run: Python modules that say a word when they are ready."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from antiphon.processes.owned_process import OwnedPopen, start_owned

READY: Final = "ready"
READY_WITHIN_S: Final = 120.0
ENDED_WITHIN_S: Final = 15.0


@asynccontextmanager
async def child_process(
    module: str, *arguments: str, within_s: float = READY_WITHIN_S
) -> AsyncIterator[tuple[Process, str]]:
    """`python -m module` beside a block, and what it said after `ready`.

    Its standard input is closed when the block ends; a process that waits for that ends by itself,
    any other is ended.
    """
    process = await start_owned(sys.executable, "-m", module, *arguments, stdin=PIPE, stdout=PIPE)
    try:
        yield process, await wait_for_word(process, READY, within_s)
    finally:
        await _end(process)


async def start_together(
    stack: AsyncExitStack, children: Iterable[AbstractAsyncContextManager[tuple[Process, str]]]
) -> list[tuple[int, float]]:
    """Start processes at the same time; of each its id, and the number that it said.

    One after the other, the first would have the work to itself while the second loads.
    """
    started = await asyncio.gather(*map(stack.enter_async_context, children))
    return [(process.pid, float(said)) for process, said in started]


async def wait_for_word(process: Process, word: str, timeout_s: float) -> str:
    """What a process said after that word, at the beginning of a line."""
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        while line := (await process.stdout.readline()).decode():
            if line.startswith(word):
                return line.removeprefix(word).strip()
    raise SystemExit(f"a child process ended before it said {word!r}")


def printed_by(*words: str, given: str = "", **how: Any) -> str:
    """What a command prints that ends by itself, or with us; `SystemExit` if it fails."""
    with OwnedPopen(words, stdin=PIPE, stdout=PIPE, text=True, **how) as process:
        printed: str = process.communicate(given)[0]
    if process.returncode:
        raise SystemExit(f"{' '.join(words[1:4])} failed with {process.returncode}")
    return printed


async def _end(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(ENDED_WITHIN_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
