"""Delayed jobs begin on time: some full node is well, and what is due is offered.

A node is *well* while nothing keeps it from writing: its process runs, its line to the server is
whole, its clock and the engine's have been right for a while, and it may complete the kind. Nothing
of what a node believes is asked. A delayed job that is still waiting although one node has been
well for `BEGINS_WITHIN_S` since its time breaks the law `begins_on_time`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from simulator.actors.machines import FullMachine
from simulator.checks.plain_record import Key
from simulator.cluster import Cluster
from simulator.network import USUAL

LOOK_S: Final = 1.0
BEGINS_WITHIN_S: Final = 60.0
"""A write whose answer was lost is looked for, and sent again, for half a minute (spec §3)."""
CLOCK_MS: Final = 1_900
"""How far the clocks of a node and of the engine may be apart: less than the drift."""
BELIEVED_S: Final = 700.0
"""How long a clock that was wrong is felt: a node uses what it saw for ten minutes at most."""


class Punctuality:
    """Watches the delayed jobs of one cluster."""

    def __init__(self, cluster: Cluster, machines: list[FullMachine]) -> None:
        """Nothing is late before `run`."""
        self._cluster = cluster
        self._machines = machines
        self._wrong_s: dict[str, float] = {}
        """When the clocks of a machine and the engine were last apart."""
        self._since_s: dict[tuple[Key, str], float] = {}
        """By job and machine: since when it could have been offered there."""

    async def run(self) -> None:
        """Look every second until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Accuse of every job that could have been offered for too long."""
        cluster, ledger = self._cluster, self._cluster.referee.ledger
        now_s, now_ms = cluster.loop.time(), cluster.clock.now_ms()
        well = [machine for machine in self._machines if self._is_well(machine, now_s)]
        before, self._since_s = self._since_s, {}
        for key, lane in list(ledger.delayed.items()):
            if not lane.is_waiting or lane.ended_seq:
                del ledger.delayed[key]
            elif lane.not_before_ms <= now_ms:
                for machine in well:
                    if self._can_offer(machine, key, lane.called.seq, now_ms):
                        which = (key, machine.name)
                        self._since_s[which] = before.get(which, now_s)
        for (key, name), since_s in self._since_s.items():
            if now_s - since_s > BEGINS_WITHIN_S and key in ledger.delayed:
                del ledger.delayed[key]
                what = f"{name} could have offered it for {now_s - since_s:.0f} s"
                cluster.referee.accuse("begins_on_time", what, key)

    def _is_well(self, machine: FullMachine, now_s: float) -> bool:
        cluster, name = self._cluster, machine.name
        apart_ms = abs(machine.clock.error_ms - cluster.clock.error_ms)
        if apart_ms > CLOCK_MS:
            self._wrong_s[name] = now_s
        host, engine = machine.host, machine.engine
        return (
            now_s - self._wrong_s.get(name, -BELIEVED_S) >= BELIEVED_S
            and host is not None
            and not host.is_frozen
            and engine is not None
            and engine.is_attached
            and name not in cluster.weather.half_open
            and cluster.weather.chance(name) <= USUAL
        )

    def _can_offer(self, machine: FullMachine, key: Key, seq: int, now_ms: int) -> bool:
        node, did = machine.node, machine.keyring.did
        model = self._cluster.referee.ledger.authority_model
        return (
            node is not None
            and node.ready.is_set()
            and node.applied >= seq
            and model.may(did, "/job/complete", key[0], now_ms)
        )
