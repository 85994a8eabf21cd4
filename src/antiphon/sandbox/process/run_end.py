"""The end of a run: exit code, times and outputs, for sandboxed and plain processes alike."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Final

from antiphon.sandbox.command import Command
from antiphon.sandbox.output_files import Collection

_SIGNAL_BASE: Final = 128
_SIGNALS: Final = 64
_MINUTES_AND_SECONDS: Final = re.compile(r"([0-9]{1,9})m([0-9]{1,2}\.[0-9]{1,6})s", re.ASCII)


def exit_of(code: int) -> int:
    """A shell's 128 + n as the signal that it stands for."""
    return _SIGNAL_BASE - code if _SIGNAL_BASE < code <= _SIGNAL_BASE + _SIGNALS else code


def cpu_ms(times: str) -> int:
    """What a shell's `times` says of its children: its second line, as 1m2.34s."""
    found = _MINUTES_AND_SECONDS.findall(times.partition("\n")[2])
    return round(sum(int(minutes) * 60_000 + float(rest) * 1000 for minutes, rest in found))


async def keep_outputs(command: Command, folder: int, into: Path, *, is_apart: bool) -> Collection:
    """Copy the outputs, off the loop; a cancellation stops the copying first."""
    stop = threading.Event()
    collection = Collection(
        command.outputs,
        into,
        command.limits,
        inputs=[name for name, _ in command.inputs],
        is_apart=is_apart,
        stop=stop,
    )
    if not command.outputs:
        return collection
    copying = asyncio.ensure_future(asyncio.to_thread(collection.collect, folder))
    try:
        await asyncio.shield(copying)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({copying})
        copying.exception()
        raise
    return collection
