"""`chaos partition --how namespaces`: packets are lost, late and reordered between real stacks.

Every site and every server is a network namespace of its own, and so is the base (caller, full
node, final check); one switch connects them. TCP does what it does: it repeats, backs off and keeps
connections that are long gone. Two of three sites may fail at once, and one of three servers, which
is cut off for longer: an election takes 4 to 9 s.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from antiphon.runtime.identity.state_directory import StateDirectory
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh
from chaos.cluster.command_frame import run_directory, run_to_end
from chaos.cluster.mesh import SHORT_LEASES
from chaos.cluster.namespace_servers import NamespacedServer, namespaced_servers
from chaos.cluster.worker_process import WorkerConfig
from chaos.network.namespaces import NamespacesUnavailable, NetworkNamespace, enter, prepare
from chaos.network.packet_switch import PacketSwitch, Pair, between, into, out_of
from chaos.network.raw_connection import RawConnection
from chaos.partition.trial import FAULT_S, PAUSE_S, SITES, Outcome, Plan, report, run_with_faults

SITE_FAULTS: Final = ("down", "cut", "mute", "deaf", "late", "lossy")
SERVER_FAULTS: Final = ("server_alone", "server_split")
"""Cut off from everybody; cut off from other servers only, so that workers still reach it."""
SERVER_FAULT_S: Final = (1.0, 12.0)
SERVER_PAUSE_S: Final = (2.0, 6.0)
"""A cluster that is never complete has no leader at all, and then nothing else is tried."""
LATE_S: Final = (0.02, 0.4)
LOSS: Final = (0.05, 0.3)
LEADER_SHARE: Final = 0.6
"""Of all faults of servers, the share that is aimed at the leader of the log."""
UNAVAILABLE: Final = 2
INTERRUPTED: Final = 130


class Topology:
    """All namespaces, and the faults that they can have."""

    def __init__(self, replicas: int) -> None:
        """The base is the first; nothing is connected yet."""
        with ExitStack() as stack:
            made = [
                stack.enter_context(NetworkNamespace(number))
                for number in range(1, 2 + replicas + SITES)
            ]
            self.close = stack.pop_all().close
        self.all = made
        self.base, *rest = made
        self.servers, self.sites = rest[:replicas], rest[replicas:]

    @contextmanager
    def fault(
        self, name: str, where: NetworkNamespace, switch: PacketSwitch, chance: random.Random
    ) -> Iterator[None]:
        """A namespace has this fault for as long as the context lasts."""
        others = [other for other in self.all if other is not where]
        peers = [other for other in self.servers if other is not where]
        cut: dict[str, list[Pair]] = {
            "cut": between(where, others),
            "mute": out_of(where, others),
            "deaf": into(where, others),
            "server_alone": between(where, others),
            "server_split": between(where, peers),
        }
        if name == "down":
            where.set_up(False)
            try:
                yield
            finally:
                where.set_up(True)
        elif name == "late":
            with switch.impaired(between(where, others), late_s=_range_within(LATE_S, chance)):
                yield
        elif name == "lossy":
            with switch.impaired(between(where, others), loss=chance.uniform(*LOSS)):
                yield
        else:
            with switch.impaired(cut[name], loss=1.0):
                yield


def _range_within(limits: tuple[float, float], chance: random.Random) -> tuple[float, float]:
    """A random range within the limits: the least and the most that packets are late."""
    one, other = chance.uniform(*limits), chance.uniform(*limits)
    return min(one, other), max(one, other)


class FaultInjector:
    """One fault after the other, on sites and on servers, until there were enough."""

    def __init__(self, topology: Topology, switch: PacketSwitch, plan: Plan) -> None:
        self._topology, self.switch, self._plan = topology, switch, plan
        self._chance = random.Random(plan.seed)
        self.faults: Counter[str] = Counter()
        self.leaders_cut_off = 0
        """Faults of the server that led the log at the time."""

    async def run(self, servers: Sequence[NamespacedServer], observer: StateDirectory) -> None:
        """Inject all faults: never on all sites at once, and never on two servers."""
        may_fail = asyncio.Semaphore(SITES - 1)
        async with asyncio.TaskGroup() as tasks:
            for site in self._topology.sites:
                tasks.create_task(self._fail_site(site, may_fail))
            if len(servers) > 1:
                tasks.create_task(self._fail_servers(servers, observer))

    @property
    def _is_done(self) -> bool:
        return self.faults.total() >= self._plan.faults

    async def _fail_site(self, site: NetworkNamespace, may_fail: asyncio.Semaphore) -> None:
        while not self._is_done:
            async with may_fail:
                await self._inject(self._chance.choice(SITE_FAULTS), site, FAULT_S)
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))

    async def _fail_servers(
        self, servers: Sequence[NamespacedServer], observer: StateDirectory
    ) -> None:
        while not self._is_done:
            leader = await find_leader(servers, observer)
            server = self._chance.choice(list(servers))
            if leader is not None and self._chance.random() < LEADER_SHARE:
                server = leader
            self.leaders_cut_off += server is leader
            await self._inject(self._chance.choice(SERVER_FAULTS), server.namespace, SERVER_FAULT_S)
            await asyncio.sleep(self._chance.uniform(*SERVER_PAUSE_S))

    async def _inject(
        self, name: str, where: NetworkNamespace, fault_s: tuple[float, float]
    ) -> None:
        self.faults[name] += 1
        with self._topology.fault(name, where, self.switch, self._chance):
            await asyncio.sleep(self._chance.uniform(*fault_s))


async def find_leader(
    servers: Sequence[NamespacedServer], observer: StateDirectory
) -> NamespacedServer | None:
    """The server that leads the log's stream; None if no server answers."""
    with suppress(Exception):  # under such faults there may be no answer
        connection = await RawConnection.open(observer)
        try:
            answers = await connection.ask(f"$JS.API.STREAM.INFO.{connection.stream}", within_s=2.0)
            name = json.loads(answers[0].data)["cluster"]["leader"]
        finally:
            await connection.close()
        return next((one for one in servers if one.name == name), None)
    return None


async def trial(directory: Path, topology: Topology, plan: Plan) -> tuple[Outcome, FaultInjector]:
    """The whole run, each site and server in a namespace."""
    home, logs = StateDirectory(directory / "home"), directory / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        switch = await stack.enter_async_context(
            PacketSwitch(topology.all, random.Random(plan.seed + 1))
        )
        servers, access, ca = await stack.enter_async_context(
            namespaced_servers(directory, topology.servers)
        )
        mesh = await found_mesh(home, servers, SHORT_LEASES, access=access, ca=ca)
        observer = StateDirectory(directory / "observer")
        observer.write(msgspec.structs.replace(mesh, engine=servers[0].url), access)
        configs = []
        for number, site in enumerate(topology.sites):
            at = StateDirectory(directory / f"site-{number}")
            at.write(mesh, access)
            configs.append(
                WorkerConfig(
                    home=at.path, journal=directory / "journal", log=logs, network=site.path
                )
            )
        injector = FaultInjector(topology, switch, plan)
        outcome = await run_with_faults(
            home, configs, plan, injector.faults, lambda: injector.run(servers, observer)
        )
    return outcome, injector


async def run(topology: Topology, plan: Plan) -> int:
    begun = time.monotonic()
    with run_directory() as directory:
        outcome, injector = await trial(directory, topology, plan)
    names = SITE_FAULTS + (SERVER_FAULTS if plan.replicas > 1 else ())
    return report(
        outcome,
        plan,
        {name: injector.faults[name] for name in names},
        begun,
        leaders_cut_off=injector.leaders_cut_off,
        packets=injector.switch.carried,
        packets_lost=injector.switch.lost,
        replicas=plan.replicas,
    )


def main(plan: Plan) -> int:
    """Run in a process that does nothing else: it moves to the base's namespace for good."""
    try:
        prepare()
        topology = Topology(plan.replicas)
    except NamespacesUnavailable as problem:
        print(f"NOTHING WAS TRIED: {problem}", file=sys.stderr, flush=True)
        print(json.dumps({"skipped": str(problem)}))
        return UNAVAILABLE
    try:
        enter(topology.base.path)
        return run_to_end(run(topology, plan))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("interrupted: all processes and namespaces are gone")
        return INTERRUPTED
    finally:
        topology.close()
