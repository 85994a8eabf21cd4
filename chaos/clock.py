"""`chaos clock`: the clocks of workers, callers and full nodes jump and drift while jobs run.

Every process but the conductor's has a wall clock that is set from outside (`clock_faking.py`):
forwards and back by seconds to weeks, too fast, too slow, and right again after a while. Some are
suspended. Sometimes all jump together, which looks to them as if the server's clock had jumped the
other way: on the server itself libfaketime has no hold. Nothing may be lost, accepted twice or run
under a used fence; and whoever was wrong must go on by itself once its clock is right.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly, telemetry
from antiphon.core.reasons import Reason
from antiphon.runtime.home import Home
from antiphon.runtime.node import Applied
from antiphon.runtime.peer import Peer
from antiphon.runtime.replica import Replica
from antiphon.testing.simulation.facts import Key
from chaos import clock_faking
from chaos.clock_ensemble import Ensemble, Player
from chaos.clock_jumps import Jump, draw
from chaos.reckoning import Reckoner, reckon
from chaos.servers import found, running_servers
from chaos.witness import boot_ns
from chaos.worker_process import KINDS
from chaos.workers import CALM_WITHIN_S, RULES, call, say

PAUSE_S: Final = (0.05, 0.4)
DRIFT_STEP_S: Final = 0.05
RECOVERY_WITHIN_S: Final = 20.0
SAID_AFTER_S: Final = 1.0
"""A process whose clock is wrong for at least so long has met the rules, as a rule."""
SAID_SHARE: Final = 0.6
"""Of those, how many must have said so: some had nothing to do meanwhile."""
BACKLOG_PER_WORKER: Final = 4
WORK_MS: Final = (40, 250)
ABOUT_THE_CLOCK: Final = re.compile(r"clock is .+ (ahead of|behind) the mesh's")


class Weather(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    jumps: int
    workers: int
    at_once: int
    """Processes that may be wrong at the same time."""
    seed: int


class Stamps:
    """Every stamp that anybody signed, as a full node with a right clock hears them."""

    def __init__(self) -> None:
        self._signed: dict[tuple[str, int, int], str] = {}
        self.twice: list[str] = []
        """Two ops of one author under one stamp: a fence that two runs could share."""
        self.verdicts: dict[str, int] = {}

    def hear(self, applied: Applied) -> None:
        verdict = applied.verdict.value
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        op = applied.entry.op
        if op is None or applied.verdict in {Reason.SIGNATURE, Reason.MALFORMED}:
            return
        stamp = (op.author, *op.hlc)
        first = self._signed.setdefault(stamp, applied.entry.op_id)
        if first != applied.entry.op_id:
            self.twice.append(f"{op.author} signed two ops at {op.hlc}: {applied.entry.seq}")


class Trial(Struct, kw_only=True):
    """What came of one jump for one process."""

    player: str
    jump: Jump
    recovery_s: float | None = None
    """From setting its clock right to its next accepted op; None: it had not come in time."""
    said: bool | None = None
    """Whether it said what is wrong with its clock; None: it need not have noticed."""


class Conductor:
    """Sets clocks wrong and right again, and watches what becomes of their processes."""

    def __init__(self, ensemble: Ensemble, weather: Weather, chance: random.Random) -> None:
        self.ensemble, self.weather, self._chance = ensemble, weather, chance
        self.trials: list[Trial] = []
        self._wrong: set[str] = set()
        self.begun = self.together = 0

    @property
    def progress(self) -> float:
        return self.begun / self.weather.jumps

    async def perform(self) -> None:
        """All jumps, a few at a time; never so many that nobody is left to work."""
        async with asyncio.TaskGroup() as tasks:
            while self.begun < self.weather.jumps:
                jump = draw(self._chance)
                while jump.everybody and self._wrong:
                    await asyncio.sleep(0.02)
                players = self._whom(jump)
                if players:
                    self.begun += 1
                    self.together += jump.everybody
                    self._wrong |= {player.name for player in players}
                    tasks.create_task(self._try(players, jump))
                await asyncio.sleep(self._chance.uniform(*PAUSE_S))
                while len(self._wrong) >= self.weather.at_once:
                    await asyncio.sleep(0.02)

    def _whom(self, jump: Jump) -> list[Player]:
        right = [one for one in self.ensemble.players if one.name not in self._wrong]
        if jump.everybody:
            return right
        if jump.how == "suspend" or jump.reborn:
            right = [one for one in right if one.role == "worker"]
        return [self._chance.choice(right)] if right else []

    async def _try(self, players: Sequence[Player], jump: Jump) -> None:
        heard = {player.name: len(player.words()) for player in players}
        if jump.how == "suspend":
            await self.ensemble.suspend(players[0], jump.wrong_s)
        elif jump.how == "drift":
            await self._drift(players, jump)
        else:
            for player in players:
                player.clock.set(jump.by_s)
            if jump.reborn:
                await self.ensemble.start_again(players[0])
                await self.ensemble.all_up()
            await asyncio.sleep(jump.wrong_s)
        right_ns = boot_ns()
        for player in players:
            player.clock.set(0.0)
        async with asyncio.TaskGroup() as tasks:
            for player in players:
                tasks.create_task(self._recover(player, jump, right_ns, heard[player.name]))

    async def _drift(self, players: Sequence[Player], jump: Jump) -> None:
        begun = time.monotonic()
        while (for_s := time.monotonic() - begun) < jump.wrong_s:
            for player in players:
                player.clock.set(for_s * jump.by_s)
            await asyncio.sleep(DRIFT_STEP_S)

    async def _recover(self, player: Player, jump: Jump, right_ns: int, heard: int) -> None:
        trial = Trial(player=player.name, jump=jump)
        self.trials.append(trial)
        if player.role == "node":
            # Whether it still writes depends on whether there is anything for it to write.
            trial.recovery_s = 0.0
        deadline = time.monotonic() + RECOVERY_WITHIN_S
        while trial.recovery_s is None and time.monotonic() < deadline:
            when_ns = self.ensemble.begun_after(player, right_ns)
            if when_ns is not None:
                trial.recovery_s = (when_ns - right_ns) / 1e9
                break
            await asyncio.sleep(0.05)
        if jump.is_refused and jump.wrong_s >= SAID_AFTER_S and player.role != "node":
            trial.said = ABOUT_THE_CLOCK.search(player.words()[heard:]) is not None
        self._wrong.discard(player.name)
        if trial.recovery_s is None:
            say(f"{player.name}, {jump}: has not gone on after {RECOVERY_WITHIN_S:g} s")


async def keep_calling(
    peer: Peer, replica: Replica, conductor: Conductor, chance: random.Random, called: list[Key]
) -> None:
    """Always a little more work than the workers can do, so that each could begin at any time."""
    most = BACKLOG_PER_WORKER * conductor.weather.workers
    while True:
        open_jobs = sum(replica.counts().get(state, 0) for state in ("pending", "running"))
        if open_jobs < most:
            number = len(called)
            kind = KINDS[number % len(KINDS)]
            called.append(await call(peer, kind, number, chance.randint(*WORK_MS)))
        else:
            await asyncio.sleep(0.02)


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run left behind."""

    ensemble: Ensemble
    conductor: Conductor
    stamps: Stamps
    reckoner: Reckoner
    promised: list[Key]


async def perform(place: Path, weather: Weather, preload: Path) -> Outcome:
    """The whole run."""
    chance = random.Random(weather.seed)
    home, stamps = Home(place / "home"), Stamps()
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(place, 1))
        await found(home, servers, RULES)
        caller = await stack.enter_async_context(assembly.join(home, "client"))
        await caller.peer.sync_control()
        keeper = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, keeper)
        )
        node = await stack.enter_async_context(
            assembly.replicating(keeper, replica, caretaking=True)
        )
        node.watchers.append(stamps.hear)
        ensemble = await stack.enter_async_context(Ensemble(place / "players", home.path, preload))
        for number in range(weather.workers):
            await ensemble.start("worker", f"worker-{number + 1}")
        far_caller = await ensemble.start("caller", "caller-1")
        await ensemble.start("node", "node-1")
        await ensemble.all_up()
        conductor = Conductor(ensemble, weather, chance)
        called: list[Key] = []
        calling = asyncio.ensure_future(
            keep_calling(caller.peer, replica, conductor, chance, called)
        )
        telling = asyncio.ensure_future(tell_progress(conductor, replica))
        try:
            await conductor.perform()
        finally:
            for task in (calling, telling):
                task.cancel()
            await asyncio.wait([calling, telling])
        await ensemble.end_one(far_caller)
        promised = called + [(one.kind, one.job) for one in far_caller.acked()]
        await all_ended(replica, promised)
        await ensemble.end()
        reckoner = await reckon(home)
    return Outcome(
        ensemble=ensemble,
        conductor=conductor,
        stamps=stamps,
        reckoner=reckoner,
        promised=promised,
    )


async def all_ended(replica: Replica, promised: Sequence[Key]) -> None:
    """Wait for these jobs' ends, not for ever; others may be there whose call nobody saw through.

    A caller that is killed leaves such a one behind.
    """
    deadline, left = time.monotonic() + CALM_WITHIN_S, list(promised)
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        found = [(key, replica.job(*key)) for key in left]
        left = [key for key, job in found if job is None or not job.is_terminal]
    for key in left[:10]:
        say(f"not ended in {CALM_WITHIN_S:g} s: {key}")


def succeeded(reckoner: Reckoner, promised: Sequence[Key]) -> int:
    """Of these jobs, how many have an accepted result that says so."""
    return sum(
        any(one.status == "succeeded" for one in reckoner.accepted.get(key, ()))
        for key in set(promised)
    )


async def tell_progress(conductor: Conductor, replica: Replica) -> None:
    while True:
        await asyncio.sleep(10)
        say(f"{conductor.begun} of {conductor.weather.jumps} jumps; {replica.counts()}")


def summary(outcome: Outcome) -> dict[str, Any]:
    """What it comes to, in the words of docs/evidence.md."""
    reckoner, tally = outcome.reckoner, outcome.ensemble.tally
    trials, stamps = outcome.conductor.trials, outcome.stamps
    same_fence = tally.twice_under_one_fence()
    for violation in reckoner.broken:
        say(f"broken: {violation}")
    for twice in stamps.twice[:10]:
        say(twice)
    recoveries = [one.recovery_s for one in trials if one.recovery_s is not None]
    hows: dict[str, int] = {}
    for one in trials:
        hows[one.jump.how] = hows.get(one.jump.how, 0) + 1
    return {
        "trials": outcome.conductor.begun,
        "acked": len(set(outcome.promised)),
        "lost": len(reckoner.lost(outcome.promised)),
        "fence_reuse": len(same_fence) + len(stamps.twice),
        "recovery_s_max": round(max(recoveries, default=0.0), 2),
        "stuck": sum(one.recovery_s is None for one in trials),
        "to_say": sum(one.said is not None for one in trials),
        "said": sum(one.said is True for one in trials),
        "accepted_twice": len(reckoner.accepted_twice),
        "succeeded": succeeded(reckoner, outcome.promised),
        "executions": len(tally.executions),
        "overlapped": len(tally.overlapped()),
        "expiries": reckoner.deeds["job.expire"],
        "refused": {
            name: count
            for name, count in sorted(stamps.verdicts.items())
            if name in {"drift", "stale", "too_old", "fence", "lease_over"}
        },
        "unwitnessed": len(reckoner.unwitnessed(tally)),
        "broken_laws": reckoner.broken_count,
        "crashed": len(outcome.ensemble.crashed),
        "records": reckoner.records,
        "jumps": hows,
        "together": outcome.conductor.together,
        "reborn": sum(one.jump.reborn for one in trials),
    }


NEVER: Final = (
    "lost",
    "fence_reuse",
    "stuck",
    "accepted_twice",
    "unwitnessed",
    "broken_laws",
    "crashed",
)


def holds(told: dict[str, Any]) -> bool:
    """Whether nothing happened that must not."""
    in_words = told["said"] >= told["to_say"] * SAID_SHARE
    return in_words and not any(told[name] for name in NEVER) and told["succeeded"] == told["acked"]


async def run(weather: Weather) -> int:
    preload = clock_faking.library()
    if preload is None:
        say(clock_faking.MISSING)
        print(json.dumps({"skipped": clock_faking.MISSING}))
        return 2
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as place:
        told = summary(await perform(Path(place), weather, preload))
    told |= {
        "workers": weather.workers,
        "seed": weather.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(told))
    return 0 if holds(told) else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos clock")
    parser.add_argument("--quick", action="store_true", help="under 45 s")
    parser.add_argument("--jumps", type=int, help="clocks set wrong, and right again")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    weather = Weather(
        jumps=args.jumps or (24 if args.quick else 100),
        workers=args.workers or (4 if args.quick else 6),
        at_once=3 if args.quick else 4,
        seed=args.seed,
    )
    telemetry.configure("error", "text")
    return asyncio.run(run(weather))
