"""Pauses the login of a member that writes faster than the gate's node reads (spec §6).

Watches the records that the node applies, and asks `core.policy.write_pace` whose they are when
the node is behind. The gate ends that member's connections and gives it a new login when the pause
is over; `antiphon doctor` shows it meanwhile. Nothing that was written is lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.parties import party_of
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.families.jobs.state import Job
from antiphon.core.policy.write_pace import WINDOW_MS, WritePace, is_counted
from antiphon.runtime.attention.item_guard import ItemGuard, keep_running

if TYPE_CHECKING:
    from antiphon.runtime.gate.admission import Gate
    from antiphon.runtime.node.full_node import Applied, FullNode

LOOK_EVERY_S: Final = 0.25
PARTIES_KEPT: Final = 4_096


class PaceWatch:
    """Beside the gate, on the node that it works with."""

    def __init__(self, node: FullNode, gate: Gate) -> None:
        self._node = node
        self._gate = gate
        self._pace = WritePace()
        self._parties = BoundedCache[tuple[str, tuple[str, ...]], str](
            most=PARTIES_KEPT, most_bytes=PARTIES_KEPT
        )
        self._acted_for = BoundedCache[str, None](most=PARTIES_KEPT, most_bytes=PARTIES_KEPT)
        """The parties for which the node wrote: some have no login that could be ended."""
        self._behind_ms = 0
        """How old the last record was when it was applied; 0 after each look."""
        self._guard = ItemGuard[str]("write pace", node.session, node.replica.attention)

    def applied(self, applied: Applied) -> None:
        """Count a record."""
        opened = applied.opened
        # By both clocks: a machine whose clock is ahead of the engine's is not behind.
        self._behind_ms = self._node.session.now_by_both_clocks_ms() - opened.commit_ms
        acted_for = self._node.guard.written_for(opened.op_id)
        if opened.op is not None and opened.op.author in self._services() and not acted_for:
            if opened.op.author == self._node.did:
                self._pace.wrote(opened.op.hlc[0], self._node.session.wall.now_ms())
            return  # it follows from what others wrote
        job, size = applied.after, len(applied.record.payload)
        is_new = isinstance(job, Job) and job.waiting_seq == opened.seq
        links = len(job.awaited) if is_new else 0
        if acted_for:
            self._acted_for.put(acted_for, None, 1)
        party = acted_for or self._party(applied)
        self._pace.note(party, opened.commit_ms, size, links)

    def _services(self) -> tuple[str, str]:
        """The keys of this node and of the coordinator."""
        control = self._node.session.history.current
        return self._node.did, control.coordinator if control is not None else ""

    def _party(self, applied: Applied) -> str:
        """For whom a record counts; empty: for nobody."""
        op, control = applied.opened.op, self._node.session.history.current
        if op is None or control is None:
            return ""
        if not is_counted(op.command_of(op.body), is_accepted=applied.verdict.is_accepted):
            return ""
        known = self._parties.get((op.author, op.auth))
        if known is None:
            known = party_of(control, op.author, op.auth, before=applied.record.seq)
            self._parties.put((op.author, op.auth), known, 1)
        return known

    async def run(self) -> None:
        """Look now and then until cancelled; what goes wrong here does not end the gate."""
        self._node.watchers.append(self.applied)
        try:
            await keep_running(self._guard, self._look)
        finally:
            self._node.watchers.remove(self.applied)

    async def _look(self) -> None:
        paused: dict[str, int] = {}
        await self._node.ready.wait()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now_ms = self._node.session.wall.now_ms()
            for party in [one for one, until_ms in paused.items() if until_ms < now_ms]:
                del paused[party]
                self._guard.drop(party)
            behind_ms, self._behind_ms = self._behind_ms, 0
            excess = self._pace.excess(behind_ms)
            if excess is None or excess.party in paused:
                continue
            is_ours = not self._gate.is_member(excess.party)
            if is_ours and not self._acted_for.has(excess.party):
                continue  # the owner's own nodes: whoever runs them can stop them
            length_s = self._pace.pause_s(excess.party, now_ms // 1000)
            why = (
                f"it wrote {excess.records:,} records within {WINDOW_MS // 1000} s, more than the"
                " mesh can read"
            )
            self._guard.note(excess.party, f"paused for {length_s} s: {why}", whose=excess.party)
            with self._guard.about(excess.party, whose=excess.party):
                self._node.guard.pause(excess.party, length_s, why)
                with self._node.held():
                    await self._gate.pause(excess.party, length_s, why)
                paused[excess.party] = now_ms + length_s * 1000
