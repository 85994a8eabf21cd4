"""`chaos coordinator`: the coordinator is killed and another named, under load, with plans.

Three full nodes in processes of their own take turns. Again and again, at a random moment, the
owner names another one; the one before is killed, or stopped and resumed later, when it still
believes that it coordinates. All the while two cron plans have ticks every second and every two
seconds, jobs are submitted and run, a reaction answers every one of them, and a second reaction
answers those. At the end every tick and every cause must have exactly one accepted job, by its id
(`derived_jobs.py`).
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.families.jobs.derivation import Cron, Reaction, Trigger
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import Plan, PlanLane, plan_key
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from antiphon.runtime.worker.worker import WorkerSettings
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.mesh import SHORT_LEASES, attended
from chaos.cluster.node_candidate import Candidate
from chaos.coordinator.derived_jobs import Counted, DerivedJobs

LOAD, ANSWER, SECOND = "load.work", "answer.work", "second.work"
TICK_KINDS: Final = {"tick.one": 1, "tick.two": 2}
"""The kinds of the cron plans, and the seconds between their ticks."""
RULES: Final = replace(SHORT_LEASES, derived_per_minute=60_000)
"""The rate is not what this is about, and every job that is submitted has two reactions."""
CANDIDATES: Final = 3
TURN_S: Final = (0.3, 2.2)
STOPPED_S: Final = (0.5, 3.0)
SETTLED_WITHIN_S: Final = 90.0
MISSING_AFTER_MS: Final = 20_000


class Run(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    redesignations: int
    per_s: float
    """Jobs that are submitted in a second."""
    seed: int


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run left behind."""

    counted: Counted
    kills: int
    stops: int
    load: int
    told: list[str]


def planned(kind: str, trigger: Trigger) -> PlanBody:
    return PlanBody(kind=kind, name="chaos", manifest=a_call(kind), trigger=trigger)


def a_call(kind: str, *args: object) -> manifest.Manifest:
    return manifest.author({"command": [f"@{kind}"], "args": [call_text(args, {})], "timeout": 60})


async def put(session: Session, body: PlanBody) -> Plan:
    """Put a plan; its state."""
    await write_one(session, Intent(PlanPut, body, PlanLane()))
    plan = (await session.read(plan_key(body.kind, body.name))).lane.state
    if not isinstance(plan, Plan):
        raise TypeError("the plan was not accepted")
    return plan


async def submit_load(session: Session, run: Run, chance: random.Random) -> int:
    """Submit jobs until cancelled; how many."""
    number = 0
    try:
        while True:
            await submission.submit(session, ScheduleBody(kind=LOAD, manifest=a_call(LOAD, number)))
            number += 1
            await asyncio.sleep(chance.expovariate(run.per_s))
    except asyncio.CancelledError:
        return number


class Turns:
    """Names one candidate after the other, and strikes the one before."""

    def __init__(self, owner: Session, candidates: list[Candidate], chance: random.Random) -> None:
        self.owner = owner
        self.candidates = candidates
        self.chance = chance
        self.kills = self.stops = 0

    async def name(self, candidate: Candidate) -> None:
        body = CoordinatorBody(node=candidate.did)
        await write_one(self.owner, Intent(MeshCoordinator, body), BEHIND)

    async def take(self, turns: int) -> None:
        """The first of the candidates coordinates already."""
        chance, now = self.chance, self.candidates[0]
        for turn in range(turns):
            await asyncio.sleep(chance.uniform(*TURN_S))
            then = chance.choice([one for one in self.candidates if one is not now])
            if chance.random() < 0.3:
                now.stop_for(chance.uniform(*STOPPED_S))
                self.stops += 1
                await self.name(then)
            elif chance.random() < 0.5:
                now.kill()
                await asyncio.sleep(chance.uniform(0.0, 0.5))
                await self.name(then)
                now.start()
                self.kills += 1
            else:
                await self.name(then)
                now.kill()
                now.start()
                self.kills += 1
            now = then
            if turn % 10 == 9:
                say(f"{turn + 1} of {turns} turns, {self.kills} killed, {self.stops} stopped")


async def settled(replica: Replica, plans: dict[str, Plan], now_ms: int) -> None:
    """Wait until every tick up to now is derived, and nothing is left to react to."""
    async with asyncio.timeout(SETTLED_WITHIN_S):
        while True:
            ticks = [
                replica.ask(ReplicaPlans).newest_tick(plans[kind].op_id) or 0 for kind in TICK_KINDS
            ]
            loaded = replica.ask(ReplicaJobs).jobs(kind=LOAD, limit=1_000_000)
            answered = replica.ask(ReplicaPlans).derived(plans[ANSWER].op_id, limit=1_000_000)
            ended = [one for one in answered if one.is_terminal]
            seconds = replica.ask(ReplicaPlans).derived(plans[SECOND].op_id, limit=1_000_000)
            is_answered = len(answered) >= len(loaded) and len(seconds) >= len(ended)
            if min(ticks) >= now_ms and is_answered and len(ended) == len(answered):
                return
            if min(ticks) >= now_ms + MISSING_AFTER_MS:
                return  # something is missing: the comparison says what
            await asyncio.sleep(0.2)


async def trial(directory: Path, run: Run) -> Outcome:
    """The whole run, and the comparison."""
    chance = random.Random(run.seed)
    home = StateDirectory(directory / "home")
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, RULES)
        owner = await stack.enter_async_context(assembly.join(home, "owner", key="owner"))
        await owner.session.sync_control()
        candidates = [Candidate(home, directory, number) for number in range(CANDIDATES)]
        for one in candidates:
            stack.callback(one.kill)
            one.start()
        turns = Turns(owner.session, candidates, chance)
        beside = await stack.enter_async_context(attended(home))
        handlers = Handlers()
        for kind in (LOAD, ANSWER, SECOND, *TICK_KINDS):
            handlers.register(kind, _work)
        worker = await stack.enter_async_context(assembly.join(home, "worker"))
        await stack.enter_async_context(
            assembly.working(worker, handlers.executors(), WorkerSettings(slots=8, drain_s=1.0))
        )
        await asyncio.gather(*(one.wait_until_ready() for one in candidates))
        await turns.name(candidates[0])
        caller = beside.caller
        plans = {
            kind: await put(
                caller, planned(kind, Cron(at=f"*/{every_s} * * * * *", zone="UTC", missed="all"))
            )
            for kind, every_s in TICK_KINDS.items()
        }
        after = {ANSWER: LOAD, SECOND: ANSWER}
        for kind, of in after.items():
            plans[kind] = await put(caller, planned(kind, Reaction(on="succeeded", kinds=of)))
        loading = asyncio.ensure_future(submit_load(caller, run, chance))
        stack.callback(loading.cancel)
        await turns.take(run.redesignations)
        loading.cancel()
        load = await loading
        until_ms = int(time.time()) * 1000
        await settled(beside.replica, plans, until_ms)
        until_seq = beside.node.applied
        found = DerivedJobs()
        for seq in range(1, until_seq + 1):
            stored = beside.replica.record(seq)
            if stored is not None:
                found.add(stored.record, stored.verdict)
        cron = {
            plans[kind].op_id: (plans[kind].put_ms, every_s, until_ms)
            for kind, every_s in TICK_KINDS.items()
        }
        reactions = {
            plans[kind].op_id: (plans[kind].put_seq, of, until_seq) for kind, of in after.items()
        }
        told = [line for one in candidates for line in one.told()]
    counted = found.compare(cron, reactions)
    return Outcome(counted=counted, kills=turns.kills, stops=turns.stops, load=load, told=told)


async def _work(*_: object) -> int:
    await asyncio.sleep(0.01)
    return 1


async def execute(run: Run) -> int:
    begun = time.monotonic()
    with run_directory() as directory:
        outcome = await trial(directory, run)
    counted = outcome.counted
    for line in outcome.told[:10]:
        say(line)
    summary = {
        "redesignations": run.redesignations,
        "ticks": counted.ticks,
        "fired_twice": counted.fired_twice,
        "missed": counted.missed,
        "reactions": counted.reactions,
        "unasked": counted.unasked,
        "refused": counted.refused,
        "mismatches_told": len(outcome.told),
        "load": outcome.load,
        "killed": outcome.kills,
        "stopped": outcome.stops,
        "seed": run.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    wrong = counted.fired_twice + counted.missed + counted.unasked + len(outcome.told)
    return report(summary, holds=bool(not wrong and counted.ticks and counted.reactions))


def main(argv: list[str]) -> int:
    parser = parser_for("coordinator", "under 45 s")
    parser.add_argument("--redesignations", type=int)
    parser.add_argument("--per-s", type=float, default=5.0, help="jobs submitted in a second")
    args = parser.parse_args(argv)
    turns = args.redesignations or (10 if args.quick else 50)
    return run_to_end(execute(Run(redesignations=turns, per_s=args.per_s, seed=args.seed)))
