"""`chaos partition --how proxy`: each site reaches the server through a proxy that fails."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from antiphon.runtime.identity.state_directory import StateDirectory
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.mesh import SHORT_LEASES
from chaos.cluster.worker_process import WorkerConfig
from chaos.network.fault_proxy import FaultProxy, Mode
from chaos.partition.trial import FAULT_S, PAUSE_S, SITES, Outcome, Plan, report, run_with_faults

FAULTS: Final[tuple[Mode, ...]] = ("late", "frozen", "cut")
LATE_S: Final = (0.05, 0.6)


def site_home(
    directory: Path, number: int, main: StateDirectory, proxy: FaultProxy
) -> StateDirectory:
    """A state directory of its own, with the proxy as the way to the same mesh."""
    home = StateDirectory(directory / f"site-{number}")
    home.write(msgspec.structs.replace(main.mesh(), engine=proxy.url), main.access())
    return home


async def inject_faults(
    proxies: list[FaultProxy], plan: Plan, chance: random.Random, faults: Counter[str]
) -> None:
    """One fault after the other on each site, never on all sites at once."""
    may_fail = asyncio.Semaphore(SITES - 1)

    async def inject(proxy: FaultProxy) -> None:
        while faults.total() < plan.faults:
            async with may_fail:
                mode = chance.choice(FAULTS)
                faults[mode] += 1
                await proxy.set_mode(mode, late_s=chance.uniform(*LATE_S))
                await asyncio.sleep(chance.uniform(*FAULT_S))
                await proxy.set_mode("normal")
            await asyncio.sleep(chance.uniform(*PAUSE_S))

    async with asyncio.TaskGroup() as tasks:
        for proxy in proxies:
            tasks.create_task(inject(proxy))


async def trial(directory: Path, plan: Plan, faults: Counter[str]) -> Outcome:
    """The whole run, each site behind a proxy."""
    home, logs = StateDirectory(directory / "home"), directory / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, SHORT_LEASES)
        proxies = [
            await stack.enter_async_context(FaultProxy("127.0.0.1", servers[0].port))
            for _ in range(SITES)
        ]
        homes = [site_home(directory, number, home, proxy) for number, proxy in enumerate(proxies)]
        journal = directory / "journal"
        configs = [WorkerConfig(home=one.path, journal=journal, log=logs) for one in homes]
        chance = random.Random(plan.seed)
        return await run_with_faults(
            home, configs, plan, faults, lambda: inject_faults(proxies, plan, chance, faults)
        )


async def run(plan: Plan) -> int:
    begun = time.monotonic()
    faults: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as directory:
        outcome = await trial(Path(directory), plan, faults)
    return report(outcome, plan, {name: faults[name] for name in FAULTS}, begun)
