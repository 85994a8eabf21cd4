"""The coordinator's seals: at most one per bar, and none while nothing happens (spec §7.5).

Runs beside every full node and writes only where the node's own key is the coordinator. It waits
for a short pause in the writes, so that one seal covers a burst, and for its seal to be applied
before it makes the next: there are never two at once. A seal that lost a race, or that the engine
did not take, is made again; nothing depends on any single one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.family import Mark
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.replica.replica_records import ReplicaRecords
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import FullNode

CALM_S: Final = 0.5
CALMS: Final = 6
"""How many pauses a seal waits for at most while records keep arriving."""


_log = LazyLogger(__name__)


class Sealer:
    """Seals what its full node has applied, if that node is the coordinator."""

    def __init__(self, node: FullNode, *, bar_s: float, calm_s: float = CALM_S) -> None:
        """Two seals are at least `bar_s` apart."""
        self.node = node
        self.bar_s = bar_s
        self.calm_s = min(calm_s, bar_s)
        self._subject = subjects.seal(node.session.mesh)

    async def run(self) -> None:
        """Seal until cancelled."""
        while True:
            await self.node.ready.wait()
            seen = self.node.applied
            if self.is_due():
                await asyncio.sleep(self._pause_s())
                await self._calm()
                await self._try()
            else:
                with suppress(TimeoutError):  # a snapshot may be made while nothing is written
                    async with asyncio.timeout(self.bar_s):
                        await self.node.reached(seen + 1)

    def is_due(self) -> bool:
        """Whether this node is the coordinator, and something besides seals is not sealed yet."""
        node = self.node
        control = node.session.history.newest(node.session.wall.now_ms())
        return (
            control is not None
            and control.coordinator == node.session.author.did
            and node.replica.tree.is_kept
            and (
                node.replica.ask(ReplicaRecords).newest_beside(self._subject) > node.seals.upto
                or self._has_snapshot
            )
        )

    @property
    def _snapshot(self) -> str | None:
        """The newest archive's snapshot, if it was made here; else the one of the last seal."""
        node, last = self.node, self.node.seals.state
        at, made = node.snapshot_made
        if made and at == node.session.control.archive.seq:
            return made
        return last.snapshot if last is not None else None

    @property
    def _has_snapshot(self) -> bool:
        """Whether a snapshot was made that no seal names yet."""
        last = self.node.seals.state
        return last is not None and self._snapshot != last.snapshot

    async def seal(self) -> bool:
        """Seal everything up to here; False if another record came first, or it is not due."""
        node = self.node
        if not self.is_due():
            return False
        upto = node.replica.cursor.seq
        mark = self._whole_mark(upto)
        if mark is None:
            return False
        body = SealBody(upto=upto, size=mark.size, root=mark.root, state=self._snapshot)
        intent = Intent(MeshSeal, body, prev=node.seals.tail)
        return (await node.write(intent)).verdict is Verdict.OK

    def _whole_mark(self, upto: int) -> Mark | None:
        """What to seal; None if this machine's own records are damaged."""
        node = self.node
        mark = node.replica.tree.mark_at(upto, since=node.seals.upto)
        if mark.root:
            return mark
        _log.error("seal_mismatch", seal=0, coordinator=node.session.author.did, upto=upto, here="")
        return None

    async def _try(self) -> None:
        try:
            is_sealed = await self.seal()
        except AntiphonError as problem:
            _log.warning("sealer_waits", problem=problem.message)
            is_sealed = False
        if not is_sealed:
            await asyncio.sleep(self.bar_s * (0.5 + self.node.session.entropy.random()))

    def _pause_s(self) -> float:
        """What is left of the bar since the last seal, by any coordinator."""
        last = self.node.seals.state
        since_ms = self.node.session.wall.now_ms() - (last.commit_ms if last is not None else 0)
        return min(self.bar_s, max(0.0, self.bar_s - since_ms / 1000))

    async def _calm(self) -> None:
        """Wait until nothing was written for a moment, or for as long as a seal may wait."""
        for _ in range(CALMS):
            before = self.node.applied
            await asyncio.sleep(self.calm_s * (0.75 + self.node.session.entropy.random() / 2))
            if self.node.applied == before:
                return
