"""Verifies signatures ahead of a full node, in several threads.

Opening a record needs nothing but its bytes, and most of its time is libsodium's, which lets other
threads run meanwhile. So the signatures of records that came together are verified side by side,
those of proofs included; the verdicts are given afterwards, in order, in the node's own thread.

Nothing depends on it: a record that was not opened here is opened by the node itself.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from antiphon.core import opened_record
from antiphon.core.families.jobs.completion_proof import is_signed
from antiphon.core.families.jobs.ops import JobComplete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.protocol import Protocol
    from antiphon.ports import Record

MOST_THREADS: Final = 4
"""What the threads do in Python they do one after the other; more of them would only wait."""
LEAST: Final = 48
"""Fewer records than this are not worth the way to another thread."""
PART: Final = 24
"""Records that a thread opens in a row: neighbours share signatures, so they stay together."""


class RecordVerifier:
    """Threads that open records; without threads, or without much to do, it opens none."""

    def __init__(self, protocol: Protocol, mesh: str, threads: int | None = None) -> None:
        """By default as many threads as this process may use cores."""
        self._protocol, self._mesh = protocol, mesh
        self.threads = min(usable_cores(), MOST_THREADS) if threads is None else threads
        self._pool = ThreadPoolExecutor(self.threads, "verify") if self.threads > 1 else None

    def __enter__(self) -> Self:
        """Threads begin with the first work for them."""
        return self

    def __exit__(self, *given: object) -> None:
        """End the threads; what they have not begun is not done."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def open(self, records: Sequence[Record]) -> Sequence[OpenedRecord | None]:
        """The records opened, each at its place; None for what is left to the reader."""
        if self._pool is None or len(records) < LEAST:
            return [None] * len(records)
        loop, pool = asyncio.get_running_loop(), self._pool
        parts = [
            loop.run_in_executor(pool, self.open_here, records[start : start + PART])
            for start in range(0, len(records), PART)
        ]
        opened = await asyncio.gather(*parts)
        return [one for part in opened for one in part]

    def open_here(self, records: Sequence[Record]) -> list[OpenedRecord | None]:
        """The same in the thread that asks."""
        return [self._open_one(record) for record in records]

    def _open_one(self, record: Record) -> OpenedRecord | None:
        try:
            opened = opened_record.open_record(
                self._protocol,
                self._mesh,
                record.seq,
                record.commit_ms,
                record.subject,
                record.payload,
            )
            if isinstance(opened.op, JobComplete) and is_signed(opened.op):
                return replace(opened, is_verified=True)
        except Exception:  # noqa: BLE001 - its reader meets it again, and says what to do about it
            return None
        return opened


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
