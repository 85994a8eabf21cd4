"""Lanes that are long enough to be entered, and light readers that enter them.

A light reader that opens a lane of 128 records or more asks a full node where it can be entered.
Then it judges what comes after a sealed record by itself. Whatever the record is, its state must
be the one that full nodes have there.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.families.locks import LOCKS
from antiphon.core.families.locks import ops as locks
from antiphon.core.families.locks.state import lock_key
from antiphon.core.families.memory import MEMORY
from antiphon.core.families.memory import ops as memory
from antiphon.core.families.memory.state import document_key
from antiphon.core.lane_entry import can_enter
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import Applied
from chaos.extremes.comparison import is_same
from chaos.extremes.known import KINDS, Known
from chaos.extremes.ops import Drawer
from chaos.extremes.records import Records
from chaos.extremes.target import BAR_S, PATIENCE_S, Target

LONG: Final = 140
"""More records than those from which on a lane is entered."""
TRIALS: Final = 4
"""How often each lane is entered, at another record each time."""
LAPSE_S: Final = 1.2
"""Longer than the shortest hold that the rules allow."""


class EntryCheck:
    """Compares, at every accepted record, the state that follows from it alone with the real one.

    Any accepted record may be the one at which somebody enters.
    """

    def __init__(self) -> None:
        self.entries = 0
        self.differing: list[str] = []

    def applied(self, applied: Applied) -> None:
        """A watcher of a full node."""
        opened = applied.opened
        family, op = opened.family, opened.op
        if applied.verdict is not Verdict.OK or family is None or op is None:
            return
        if family.enter is None or opened.place is None:
            return
        entered = family.enter(op, opened.seq, opened.op_id)
        if entered is None:
            return
        self.entries += 1
        if entered != applied.after:
            self.differing.append(f"{op.type_name()} at {opened.seq}")


class LongLanes:
    """One lock and one document, written without an end in sight."""

    def __init__(self, target: Target, drawer: Drawer, known: Known, records: Records) -> None:
        self._target, self._drawer = target, drawer
        self._known, self._records = known, records
        self._chance = known.chance
        self.entered = 0
        self.differing: list[str] = []

    async def run(self, lanes: int, length: int = LONG, trials: int = TRIALS) -> None:
        """Make lanes long, and enter each several times while it grows."""
        chosen = [
            (name, (KINDS[number % len(KINDS)], f"long-{number}"))
            for number in range(lanes)
            for name in self._names()
        ]
        await self._grow_all(chosen, length)
        for _ in range(trials if chosen else 0):
            await self._grow_all(chosen, self._chance.choice((1, 2, 3)))
            await self._sealed(self._records.newest)
            if self._chance.random() < 0.5:
                await asyncio.sleep(LAPSE_S)  # until the shortest hold is over
            await self._grow_all(chosen, self._chance.choice((0, 1, 2)))
            async with self._target.newcomer() as reader:
                for name, at in chosen:
                    await self._enter(reader.session, self._lane(name, *at))

    async def _grow_all(self, chosen: list[tuple[str, tuple[str, str]]], count: int) -> None:
        await asyncio.gather(*(self._grow(name, at, count) for name, at in chosen))

    def _names(self) -> list[str]:
        shown = {op.type_name() for op in self._drawer.classes}
        wanted = {locks.LockTake.type_name(): LOCKS.name, memory.MemoryPut.type_name(): MEMORY.name}
        return [family for op, family in wanted.items() if op in shown]

    def _lane(self, name: str, kind: str, key: str) -> LaneKey:
        return lock_key(kind, key) if name == LOCKS.name else document_key(kind, key)

    async def _grow(self, name: str, at: tuple[str, str], count: int) -> None:
        """So many more records on a lane, one behind the other."""
        written = 0
        while written < count:
            written += await self._write(name, at)

    async def _write(self, name: str, at: tuple[str, str]) -> bool:
        self._known.now_ms = self._target.host.node.session.wall.now_ms()
        if name == MEMORY.name:
            op: Any = memory.MemoryPut
        else:
            op = self._chance.choice((locks.LockTake,) * 5 + (locks.LockRelease, locks.LockBreak))
        body = self._drawer.body(op)
        named = replace(body, kind=at[0], key=at[1])
        drawn = self._drawer.aimed(op, named)
        return await self._records.write_one(drawn)

    async def _enter(self, reader: Session, lane: LaneKey) -> None:
        """Open a lane that the reader has not seen before."""
        node = self._target.host.node
        seen, full = (await reader.enter(lane)).lane, node.replica.lane(lane)
        self.entered += can_enter(node.session.protocol, lane)
        if not is_same(seen, full):
            self.differing.append(f"{lane}: a reader that entered has another state")

    async def _sealed(self, seq: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._target.host.node.seals.upto < seq and time.monotonic() < deadline:
            self._target.check()
            await asyncio.sleep(BAR_S / 10)
