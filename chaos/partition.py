"""`chaos partition`: workers whose way to the server is late, half open, or cut, at random.

Workers are processes on several sites; each site reaches the server through a proxy of its own
(`fault_proxy.py`), or has a network of its own whose packets get lost (`namespaces_storm.py`). A
site that is frozen believes in its connection for a while: its workers go on with what they hold
and must stop in time by themselves. Witness, reckoning and keys are those of `chaos workers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

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
    replicas: int = 1


class Outcome(NamedTuple):
    """What a storm left behind."""

    herd: Herd
    reckoner: Reckoner
    promised: list[Key]


def site(place: Path, number: int, main: Home, proxy: FaultProxy) -> Home:
    """A state directory of its own, with another way to the same mesh."""
    home = Home(place / f"site-{number}")
    home.write(msgspec.structs.replace(main.mesh(), engine=proxy.url), main.access())
    return home


async def trouble_all(
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


async def ride_out(
    home: Home,
    orders: Sequence[Orders],
    weather: Weather,
    faults: Counter[str],
    blow: Callable[[], Coroutine[None, None, None]],
) -> Outcome:
    """Call jobs while the weather is bad, and see what is left behind it.

    Whoever calls and the node that takes care of overdue jobs are outside of it.
    """
    chance = random.Random(weather.seed)
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(assembly.join(home, "client"))
        await caller.peer.sync_control()
        keeper = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, keeper)
        )
        await stack.enter_async_context(assembly.replicating(keeper, replica, caretaking=True))
        herd = await stack.enter_async_context(Herd(orders, weather.workers, chance))
        await herd.all_up()
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(
                call_all(
                    caller.peer,
                    weather.jobs,
                    lambda: (faults.total() + 1) / weather.faults,
                    chance,
                )
            )
            tasks.create_task(blow())
        say(f"calm again after {faults.total()} faults")
        await calm_down(replica, weather.jobs)
        reckoner = await reckon(home)
    return Outcome(herd, reckoner, calling.result())


async def blow_over(place: Path, weather: Weather, moods: Counter[str]) -> Outcome:
    """The whole storm, each site behind a proxy."""
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
        orders = [Orders(home=one.path, witness=place / "witness", log=logs) for one in homes]
        chance = random.Random(weather.seed)
        return await ride_out(
            home, orders, weather, moods, lambda: trouble_all(proxies, weather, chance, moods)
        )


def tell(
    outcome: Outcome, weather: Weather, faults: dict[str, int], begun: float, **more: object
) -> int:
    """The report as the last line, and whether it holds."""
    told: dict[str, object] = {
        **counted(outcome.herd, outcome.reckoner, outcome.promised),
        "faults": sum(faults.values()),
        **faults,
        **more,
        "workers": weather.workers,
        "seed": weather.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(told))
    return 0 if holds(told) else 1


async def run(weather: Weather) -> int:
    begun = time.monotonic()
    moods: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as place:
        outcome = await blow_over(Path(place), weather, moods)
    return tell(outcome, weather, {mood: moods[mood] for mood in MOODS}, begun)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos partition")
    parser.add_argument("--quick", action="store_true", help="under 45 s")
    parser.add_argument("--how", choices=("proxy", "namespaces"), default="proxy")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.replicas != 1 and args.how == "proxy":
        parser.error("--replicas needs --how namespaces: proxies stand before one server only")
    quick = 15 if args.replicas == 1 else 8  # a cluster takes its time to come back
    faults = args.faults or (quick if args.quick else 150)
    weather = Weather(
        workers=args.workers,
        jobs=args.jobs or faults * 20,
        faults=faults,
        replicas=args.replicas,
        seed=args.seed,
    )
    telemetry.configure("error", "text")
    if args.how == "namespaces":
        from chaos import namespaces_storm

        return namespaces_storm.main(weather)
    return asyncio.run(run(weather))
