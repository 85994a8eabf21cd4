"""`chaos partition`: workers whose way to the server is late, half open, or cut, at random.

Workers are processes on several sites; each site reaches the server through a proxy of its own
(`fault_proxy.py`). A site that is frozen believes in its connection for a while: its workers go on
with what they hold and must stop in time by themselves. Witness, reckoning and keys are those of
`chaos workers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from antiphon import assembly, telemetry
from antiphon.runtime.home import Home
from antiphon.testing.simulation.facts import Key
from chaos.fault_proxy import FaultProxy, Mood
from chaos.herd import Herd
from chaos.reckoning import Reckoner, reckon
from chaos.servers import found, running_servers
from chaos.worker_process import Orders
from chaos.workers import RULES, call_all, calm_down, counted, holds, say

SITES: Final = 3
MOODS: Final[tuple[Mood, ...]] = ("late", "frozen", "cut")
LASTS_S: Final = (0.3, 5.0)
"""Leases are 1 to 2 s long: many faults outlast them, and some outlast the client's patience."""
LATE_S: Final = (0.05, 0.6)
PAUSE_S: Final = (0.1, 0.6)


class Weather(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    workers: int
    jobs: int
    faults: int
    seed: int


def site(place: Path, number: int, main: Home, proxy: FaultProxy) -> Home:
    """A state directory of its own, with another way to the same mesh."""
    home = Home(place / f"site-{number}")
    home.write(msgspec.structs.replace(main.mesh(), engine=proxy.url), main.access())
    return home


async def blow(
    proxies: list[FaultProxy], weather: Weather, chance: random.Random, moods: Counter[str]
) -> None:
    """One fault after the other on each site, never on all of them at once."""
    is_well = asyncio.Semaphore(SITES - 1)

    async def trouble(proxy: FaultProxy) -> None:
        while moods.total() < weather.faults:
            async with is_well:
                mood = chance.choice(MOODS)
                moods[mood] += 1
                await proxy.be(mood, late_s=chance.uniform(*LATE_S))
                await asyncio.sleep(chance.uniform(*LASTS_S))
                await proxy.be("fine")
            await asyncio.sleep(chance.uniform(*PAUSE_S))

    async with asyncio.TaskGroup() as tasks:
        for proxy in proxies:
            tasks.create_task(trouble(proxy))


async def blow_over(
    place: Path, weather: Weather, moods: Counter[str]
) -> tuple[Herd, Reckoner, list[Key]]:
    """The whole storm, and what is left behind it."""
    chance = random.Random(weather.seed)
    home, logs = Home(place / "home"), place / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(place, 1))
        await found(home, servers, RULES)
        proxies = [
            await stack.enter_async_context(FaultProxy("127.0.0.1", servers[0].port))
            for _ in range(SITES)
        ]
        homes = [site(place, number, home, proxy) for number, proxy in enumerate(proxies)]
        caller = await stack.enter_async_context(assembly.join(home, "client"))
        await caller.peer.sync_control()
        keeper = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, keeper.peer.mesh)
        )
        await stack.enter_async_context(assembly.replicating(keeper, replica, caretaking=True))
        orders = [Orders(home=one.path, witness=place / "witness", log=logs) for one in homes]
        herd = await stack.enter_async_context(Herd(orders, weather.workers, chance))
        await herd.all_up()
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(
                call_all(
                    caller.peer,
                    weather.jobs,
                    lambda: (moods.total() + 1) / weather.faults,
                    chance,
                )
            )
            tasks.create_task(blow(proxies, weather, chance, moods))
        say(f"calm again after {moods.total()} faults")
        await calm_down(replica, weather.jobs)
        reckoner = await reckon(home)
    return herd, reckoner, calling.result()


async def run(weather: Weather) -> int:
    begun = time.monotonic()
    moods: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as place:
        herd, reckoner, promised = await blow_over(Path(place), weather, moods)
    told: dict[str, object] = {
        **counted(herd, reckoner, promised),
        "faults": moods.total(),
        **{mood: moods[mood] for mood in MOODS},
        "workers": weather.workers,
        "seed": weather.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(told))
    return 0 if holds(told) else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos partition")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    faults = args.faults or (15 if args.quick else 150)
    weather = Weather(
        workers=args.workers, jobs=args.jobs or faults * 20, faults=faults, seed=args.seed
    )
    telemetry.configure("error", "text")
    return asyncio.run(run(weather))
