"""`chaos workers`: real workers and a real server, killed and stopped at random while jobs run.

Workers are processes; three of four strikes are aimed at one that is in the middle of a job, as
the witness shows. Killed ones are replaced, stopped ones go on after a while, often past their
lease. Servers are killed and started again. Jobs come in steadily all the while. When the storm
is over everything must come to its end: a newcomer reads the whole log (`reckoning.py`), and what
it counts is held against what the witness saw (`witness.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import assembly, telemetry
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.rules import Rules
from antiphon.engines.nats import LocalServer
from antiphon.errors import AntiphonError
from antiphon.runtime import client
from antiphon.runtime.handlers import call_text
from antiphon.runtime.home import Home
from antiphon.runtime.peer import Peer
from antiphon.runtime.replica import Replica
from antiphon.testing.simulation.facts import Key
from bench.report import percentile
from chaos.herd import Herd
from chaos.reckoning import Reckoner, reckon
from chaos.servers import found, running_servers
from chaos.worker_process import KINDS, Orders

RULES: Final = Rules(
    authority="open",
    max_drift_ms=500,
    lease_min_ms=1_000,
    lease_ms=1_000,
    lease_ms_max=2_000,
    offer_after_ms=2_000,
    attempts=100,
)
"""Leases as short as the drift allows, and enough attempts that nobody is given up."""
WORK_MS: Final = (20, 200)
STRIKE_EVERY_S: Final = 0.25
SERVER_AWAY_S: Final = (0.0, 0.8)
STOPPED_S: Final = (0.2, 4.0)
"""Leases are 1 to 2 s long: about half of the stops outlast them."""
SUBMITTERS: Final = 8
CALM_WITHIN_S: Final = 90.0
"""After the last strike everything must come to its end in that time."""


class Storm(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    workers: int
    jobs: int
    kills: int
    """Of workers, killed and stopped together."""
    server_kills: int
    replicas: int
    seed: int

    @property
    def seconds(self) -> float:
        """How long it blows, more or less."""
        return self.kills * STRIKE_EVERY_S


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def call(peer: Peer, kind: str, number: int, work_ms: int) -> Key:
    """Call a job, however often the server dies meanwhile; the same call again is the same job."""
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number, work_ms), {})], "timeout": 60}
    )
    while True:
        try:
            called = await client.call(peer, ScheduleBody(kind=kind, manifest=content))
        except AntiphonError:
            await asyncio.sleep(0.2)
        else:
            return called.kind, called.job


async def call_all(
    peer: Peer, jobs: int, progress: Callable[[], float], chance: random.Random
) -> list[Key]:
    """All jobs, spread over the storm; `progress` says which part of it is over."""
    promised: list[Key] = []
    numbers = iter(range(jobs))
    works_ms = [chance.randint(*WORK_MS) for _ in range(jobs)]

    async def submit() -> None:
        for number in numbers:
            while progress() < number / jobs:
                await asyncio.sleep(0.02)
            kind = KINDS[number % len(KINDS)]
            promised.append(await call(peer, kind, number, works_ms[number]))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(SUBMITTERS):
            tasks.create_task(submit())
    return promised


async def strike_workers(herd: Herd, storm: Storm, chance: random.Random) -> None:
    """Kills and stops, half and half."""
    while herd.kills + herd.stops < storm.kills:
        await asyncio.sleep(chance.expovariate(1 / STRIKE_EVERY_S))
        if chance.random() < 0.5:
            herd.kill_one()
        else:
            herd.stop_one(chance.uniform(*STOPPED_S))


async def strike_servers(
    servers: Sequence[LocalServer], storm: Storm, chance: random.Random
) -> None:
    """One server at a time, so that a cluster keeps its majority."""
    pause_s = storm.seconds / (storm.server_kills + 1)
    for _ in range(storm.server_kills):
        await asyncio.sleep(pause_s * chance.uniform(0.6, 1.2))
        server = chance.choice(list(servers))
        server.kill()
        await asyncio.sleep(chance.uniform(*SERVER_AWAY_S))
        await server.start()


async def calm_down(replica: Replica, jobs: int) -> None:
    """Wait until the log shows an end of every job, but not for ever."""
    deadline = time.monotonic() + CALM_WITHIN_S
    while time.monotonic() < deadline:
        counts = replica.counts()
        ended = sum(counts.get(state, 0) for state in ("succeeded", "failed", "aborted"))
        if ended >= jobs:
            return
        await asyncio.sleep(0.1)
    say(f"not everything ended in {CALM_WITHIN_S:g} s: {replica.counts()}")


async def tell_progress(herd: Herd, storm: Storm, replica: Replica) -> None:
    while True:
        await asyncio.sleep(10)
        say(
            f"{herd.kills + herd.stops} of {storm.kills} strikes, {herd.hits} in the middle of a"
            f" job; {len(herd.running)} workers up; {replica.counts()}"
        )


async def storm_over(place: Path, storm: Storm) -> tuple[Herd, Reckoner, list[Key]]:
    """The whole storm, and what is left behind it."""
    chance = random.Random(storm.seed)
    home = Home(place / "home")
    logs = place / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(place, storm.replicas))
        await found(home, servers, RULES)
        caller = await stack.enter_async_context(assembly.join(home, "client"))
        await caller.peer.sync_control()
        keeper = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, keeper)
        )
        await stack.enter_async_context(assembly.replicating(keeper, replica, caretaking=True))
        orders = Orders(home=home.path, witness=place / "witness", log=logs)
        herd = await stack.enter_async_context(Herd([orders], storm.workers, chance))
        await herd.all_up()
        telling = asyncio.ensure_future(tell_progress(herd, storm, replica))
        stack.callback(telling.cancel)
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(
                call_all(
                    caller.peer,
                    storm.jobs,
                    lambda: (herd.kills + herd.stops + 1) / storm.kills,
                    chance,
                )
            )
            tasks.create_task(strike_workers(herd, storm, chance))
            tasks.create_task(strike_servers(servers, storm, chance))
        await calm_down(replica, storm.jobs)
        reckoner = await reckon(home)
    return herd, reckoner, calling.result()


def counted(herd: Herd, reckoner: Reckoner, promised: list[Key]) -> dict[str, object]:
    """What the witness and the log come to, whatever the storm was."""
    lost = reckoner.lost(promised)
    for what, found_keys in (("lost", lost), ("accepted twice", reckoner.accepted_twice)):
        for key in found_keys[:10]:
            say(f"{what}: {key}")
    for violation in reckoner.broken:
        say(f"broken: {violation}")
    same_fence = herd.tally.twice_under_one_fence()
    for run in herd.tally.executions:
        if run.job in same_fence:
            say(f"under one fence: {run}")
    takeovers = reckoner.takeovers_s or [0.0]
    return {
        "jobs": len(set(promised)),
        "lost": len(lost),
        "accepted_twice": len(reckoner.accepted_twice),
        "overlapped": len(herd.tally.overlapped()),
        "succeeded": reckoner.succeeded,
        "executions": len(herd.tally.executions),
        "expiries": reckoner.deeds["job.expire"],
        "takeover_p50_s": round(percentile(takeovers, 0.5), 2),
        "takeover_p99_s": round(percentile(takeovers, 0.99), 2),
        "takeover_max_s": round(max(takeovers), 2),
        "unwitnessed": len(reckoner.unwitnessed(herd.tally)),
        "same_fence": len(same_fence),
        "broken_laws": reckoner.broken_count,
        "crashed": len(herd.crashed),
        "records": reckoner.records,
    }


def holds(told: dict[str, object]) -> bool:
    """Whether nothing happened that must not."""
    never = ("lost", "accepted_twice", "unwitnessed", "same_fence", "broken_laws", "crashed")
    return not any(told[name] for name in never) and told["succeeded"] == told["jobs"]


async def run(storm: Storm) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as place:
        herd, reckoner, promised = await storm_over(Path(place), storm)
    told: dict[str, object] = {
        **counted(herd, reckoner, promised),
        "kills": herd.kills + herd.stops,
        "server_kills": storm.server_kills,
        "killed": herd.kills,
        "stopped": herd.stops,
        "hits": herd.hits,
        "workers": storm.workers,
        "replicas": storm.replicas,
        "seed": storm.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(told))
    return 0 if holds(told) else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos workers")
    parser.add_argument("--quick", action="store_true", help="under 45 s")
    parser.add_argument("--kills", type=int, help="of workers: SIGKILL and SIGSTOP together")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--server-kills", type=int)
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    kills = args.kills or (60 if args.quick else 300)
    storm = Storm(
        kills=kills,
        jobs=args.jobs or max(kills * 20 // 3, 20),
        workers=args.workers or (8 if args.quick else 12),
        server_kills=max(kills // 15, 1) if args.server_kills is None else args.server_kills,
        replicas=args.replicas,
        seed=args.seed,
    )
    telemetry.configure("error", "text")
    return asyncio.run(run(storm))
