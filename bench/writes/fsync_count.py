"""Counts how often servers sync their disk, by strace: slow, so never while time is taken."""

from __future__ import annotations

import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from antiphon.processes.owned_process import start_owned

SYNCS: Final = "fsync,fdatasync,sync_file_range,msync"
ATTACHED: Final = b"attached"


async def fsyncs(pids: Sequence[int], work: Callable[[], Awaitable[object]]) -> int | None:
    """How often these processes synced while `work` ran; None where strace may not look."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.NamedTemporaryFile(prefix="antiphon-bench-") as found:
        process = await start_owned(
            strace,
            *("-f", "-o", found.name, "-e", f"trace={SYNCS}"),
            *(word for pid in pids for word in ("-p", str(pid))),
            stdin=DEVNULL,
            stderr=PIPE,
        )
        assert process.stderr is not None
        for _ in pids:
            if ATTACHED not in await process.stderr.readline():
                await process.wait()
                return None
        await work()
        process.send_signal(signal.SIGINT)
        await process.communicate()
        lines = Path(found.name).read_text(encoding="utf-8").splitlines()
    # A call that another thread interrupted has a second line, without an opening bracket.
    return sum("sync" in line and "(" in line and "resumed" not in line for line in lines)
