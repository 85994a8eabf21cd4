"""`chaos questions`: jobs ask people while workers, the coordinator and the server are killed.

Each job asks two questions, one after the other. Three people answer, and sometimes take a question
and are gone. A liar tries to have answers counted that nobody gave: without taking the question,
with somebody else's signature, with one over another answer, with none of the choices, as a worker.
Whoever asks tries to answer. Afterwards the log says for each job whether it went on with the
answers that are on its questions' lanes, and its bundle, checked offline, who gave them.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, deque
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly
from antiphon.core import bundle as core_bundle
from antiphon.core.families.jobs.ops import JobComplete, ScheduleBody
from antiphon.core.families.jobs.state import Job, job_key
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.manifest import NonceInput
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.verdict import Verdict
from antiphon.engines.nats import LocalServer
from antiphon.errors import AntiphonError
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.archive.record_source import ReplicaSource
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.step import QuestionTerms
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_lane
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.job_load import RETRY_S, call_job
from chaos.cluster.mesh import SHORT_LEASES, attended
from chaos.cluster.node_candidate import Candidate
from chaos.cluster.worker_pool import WorkerPool
from chaos.cluster.worker_process import ASK_KIND, CHOICES, QUESTION_KIND, WorkerConfig
from chaos.questions.people import Tried, ask_oneself, be_a_liar, be_a_person
from simulator.checks.plain_record import Key

PEOPLE: Final = 3
QUESTIONS_EACH: Final = 2
STRIKE_EVERY_S: Final = 0.3
STOPPED_S: Final = (0.2, 3.0)
DOWN_S: Final = (0.1, 0.6)
BAR_S: Final = 2.0
WORK_MS: Final = 20
PATIENCE_S: Final = 240.0
"""How long nothing may happen."""
SHOWN: Final = 10


class Plan(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    jobs: int
    kills: int
    """Of workers, of the coordinator's node, and of the server, in turn."""
    workers: int
    seed: int
    selves: int
    """Questions that their author tries to answer."""
    bundles: int
    """Jobs whose bundles are checked."""


class Found(Struct, kw_only=True):
    """What the log says afterwards."""

    asked: int = 0
    """By jobs and without one."""
    asked_alone: int = 0
    """Those without a job: more than were wanted if somebody answered one before its author."""
    answered: int = 0
    lost: int = 0
    twice: int = 0
    shown: int = 0
    """Answers that bundles show with whoever gave them, checked offline."""


async def _strike(
    pool: WorkerPool,
    node: Candidate,
    server: LocalServer,
    plan: Plan,
    chance: random.Random,
) -> dict[str, int]:
    struck = Counter[str]()
    for number in range(plan.kills):
        await asyncio.sleep(chance.expovariate(1 / STRIKE_EVERY_S))
        if number % 6 == 2:
            node.kill()
            await asyncio.sleep(chance.uniform(*DOWN_S))
            node.start()
            struck["node"] += 1
        elif number % 6 == 5:
            server.kill()
            await asyncio.sleep(chance.uniform(*DOWN_S))
            await server.start()
            struck["server"] += 1
        elif chance.random() < 0.75:
            pool.kill_one()
            struck["worker"] += 1
        else:
            pool.stop_one(chance.uniform(*STOPPED_S))
            struck["worker"] += 1
    return dict(struck)


async def ask_alone(session: Session, plan: Plan, tried: Tried) -> list[Key]:
    """Ask without a job, and try to answer that; if somebody was faster, ask another."""
    asked: list[Key] = []
    for number in count():
        if tried.refused + tried.accepted >= plan.selves:
            break
        terms = QuestionTerms.of(f"mine {number}?", kind=QUESTION_KIND, choices=CHOICES)
        nonce = NonceInput(nonce=f"{number:016x}", origin="random")
        body = terms.body(nonce, session.wall.now_ms())
        while True:
            try:
                key = await submitted(session, body)
                view = await session.read_lane(*key)
                if view.lane.job is not None and not view.lane.job.is_terminal:
                    await ask_oneself(session, view.lane.job, tried)
            except AntiphonError:
                await asyncio.sleep(RETRY_S)
            else:
                asked.append(key)
                break
    return asked


async def submitted(session: Session, body: ScheduleBody) -> Key:
    """A question that is on the log now, or was before."""
    job = await submission.submit(session, body)
    return job.kind, job.id


async def _ends(replica: Replica, keys: list[Key]) -> None:
    """Wait for all of them, as long as one ends now and then: people answer one after another."""
    left, ended, since_s = deque(keys), 0, time.monotonic()
    while True:
        while left and _job(replica, left[0]).is_terminal:
            left.popleft()
        if not left:
            return
        by_state = replica.sizes.by_state()
        now = sum(by_state.get(state, 0) for state in ("succeeded", "failed", "aborted"))
        if now > ended:
            ended, since_s = now, time.monotonic()
        elif time.monotonic() - since_s > PATIENCE_S:
            raise TimeoutError(f"no job has ended for {PATIENCE_S:g} s: {by_state}, {left[0]}")
        await asyncio.sleep(0.2)


def _job(replica: Replica, key: Key) -> Job:
    found = job_lane(replica, *key).job
    if found is None:
        raise LookupError(f"{key} is not on the log")
    return found


def compare(replica: Replica, called: list[Key], alone: list[Key], given: dict[Key, str]) -> Found:
    """What became of each job and each question."""
    found = Found()
    for key in called:
        job = _job(replica, key)
        said = [_answer(replica, one) for one in _questions_of(replica, job)]
        found.asked += len(said)
        found.answered += sum(one is not None for one in said)
        if len(said) > QUESTIONS_EACH:
            _say(f"{key}: waited for {_texts(replica, job)}", found.twice)
        found.twice += max(len(said) - QUESTIONS_EACH, 0)
        result = _result(replica, key)
        if len(said) < QUESTIONS_EACH or result != said[-QUESTIONS_EACH:]:
            _say(f"{key}: returned {result}, answered was {said}", found.lost)
            found.lost += 1
    for key in alone:
        found.asked += 1
        found.asked_alone += 1
        found.answered += _answer(replica, key) is not None
    for key, value in given.items():
        if _answer(replica, key) != value:
            _say(f"{key}: {value} was given", found.lost)
            found.lost += 1
    return found


def _questions_of(replica: Replica, job: Job) -> list[Key]:
    """The questions that a job waited for, each once, in the order in which they were asked."""
    every = replica.ask(ReplicaJobs).jobs(kind=QUESTION_KIND, limit=1_000_000)
    ids = {one.id: one.scheduled_seq for one in every}
    named = {name for kind, name in _awaited(replica, job) if kind == QUESTION_KIND}
    return [(QUESTION_KIND, name) for name in sorted(named, key=lambda one: ids[one])]


def _texts(replica: Replica, job: Job) -> list[str]:
    """What its questions asked, so that one too many says where it is from."""
    asked = [_job(replica, one).question for one in _questions_of(replica, job)]
    return [one.text for one in asked if one is not None]


def _awaited(replica: Replica, job: Job) -> set[Key]:
    found: set[Key] = set()
    for stored in replica.lane_records(job_key(job.kind, job.id)):
        body = json.loads(stored.record.payload.split(b"\n")[0])["body"]
        if stored.verdict is Verdict.OK:
            found |= {(kind, name) for kind, name in body.get("after", ())}
    return found


def _result(replica: Replica, key: Key) -> object:
    op = _ending(replica, key)
    return json.loads(op.body.outputs[0].text or "null") if op is not None else None


def _answer(replica: Replica, key: Key) -> str | None:
    said = _result(replica, key)
    return said if isinstance(said, str) else None


def _ending(replica: Replica, key: Key) -> JobComplete | None:
    """The accepted completion; `LookupError` if there are two."""
    ends = [
        one
        for one in replica.lane_records(job_key(*key))
        if one.verdict is Verdict.OK and b'"type":"job.complete"' in one.record.payload
    ]
    if len(ends) > 1:
        raise LookupError(f"{key} was completed {len(ends)} times")
    if not ends:
        return None
    op = PROTOCOL.decoder.decode(ends[0].record.payload.split(b"\n")[0])
    return op if isinstance(op, JobComplete) else None


async def _shown(replica: Replica, keys: list[Key]) -> int:
    """Answers that the bundles of these jobs show, checked as anybody can who has the file."""
    shown = 0
    async with asyncio.timeout(PATIENCE_S):
        for key in keys:
            while (made := await assembled(ReplicaSource(replica), job_key(*key))) is None:
                await asyncio.sleep(0.2)
            read = core_bundle.read(core_bundle.write(made))
            answers = core_bundle.check(PROTOCOL, read).answers
            asks = _job(replica, key).claimer
            shown += sum(bool(one.by) and asks not in one.by for one in answers)
    return shown


def _say(what: str, before: int) -> None:
    if before < SHOWN:
        say(what)


async def trial(directory: Path, plan: Plan) -> dict[str, Any]:
    """The whole run: mesh, workers, people, strikes, and what the log says."""
    chance = random.Random(plan.seed)
    home, logs = StateDirectory(directory / "home"), directory / "logs"
    logs.mkdir()
    forged, selves, given = Tried(), Tried(), dict[Key, str]()
    async with AsyncExitStack() as stack:
        (server,) = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, [server], SHORT_LEASES)
        owner = await stack.enter_async_context(assembly.join(home, "owner", key="owner"))
        await owner.session.sync_control()
        node = Candidate(home, directory, 0, bar_s=BAR_S)
        stack.callback(node.kill)
        node.start()
        named = Intent(MeshCoordinator, CoordinatorBody(node=node.did))
        await write_one(owner.session, named, BEHIND)
        beside = await stack.enter_async_context(attended(home))
        people = [
            (await stack.enter_async_context(assembly.join(home, "client"))).session
            for _ in range(PEOPLE + 1)
        ]
        config = WorkerConfig(home=home.path, journal=directory / "journal", log=logs)
        pool = await stack.enter_async_context(WorkerPool([config], plan.workers, chance))
        await asyncio.gather(pool.wait_until_ready(), node.wait_until_ready())
        acting = [
            asyncio.ensure_future(be_a_person(one, beside.replica, chance, given))
            for one in people[1:]
        ]
        lying = be_a_liar(people[0], people[1], beside.replica, chance, forged)
        acting.append(asyncio.ensure_future(lying))
        for task in acting:
            stack.callback(task.cancel)
        striking = asyncio.ensure_future(_strike(pool, node, server, plan, chance))
        stack.callback(striking.cancel)
        called = [
            await call_job(beside.caller, ASK_KIND, number, WORK_MS) for number in range(plan.jobs)
        ]
        alone = await ask_alone(beside.caller, plan, selves)
        struck = await striking
        await _ends(beside.replica, [*called, *alone])
        for task in acting:
            task.cancel()
        beside.replica.flush()
        tried = [*forged.seqs, *selves.seqs]
        stored = [beside.replica.record(seq) for seq in tried]
        believed = sum(one is not None and one.verdict.is_accepted for one in stored)
        found = compare(beside.replica, called, alone, given)
        checked = called[: plan.bundles]
        found.shown = await _shown(beside.replica, checked)
    return {
        "asked": found.asked,
        "asked_alone": found.asked_alone,
        "answered": found.answered,
        "forged_refused": forged.refused,
        "self_refused": selves.refused,
        "lost": found.lost + (QUESTIONS_EACH * len(checked) - found.shown),
        "twice": found.twice,
        "believed": believed + forged.accepted + selves.accepted,
        "shown_offline": found.shown,
        "jobs": len(called),
        "kills": struck,
        "crashed": len(pool.crashed),
    }


async def run(plan: Plan) -> int:
    """Run it and say what was found."""
    begun = time.monotonic()
    with run_directory() as directory:
        summary = await trial(directory, plan)
    summary |= {"seed": plan.seed, "seconds": round(time.monotonic() - begun, 1)}
    wrong = ("lost", "twice", "believed", "crashed")
    wanted = QUESTIONS_EACH * plan.jobs + summary["asked_alone"]
    right = summary["asked"] == summary["answered"] == wanted and bool(summary["self_refused"])
    return report(summary, holds=right and not any(summary[name] for name in wrong))


def main(argv: list[str]) -> int:
    parser = parser_for("questions", "24 kills")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--kills", type=int, help="of workers, node and server together")
    args = parser.parse_args(argv)
    kills = args.kills or (24 if args.quick else 300)
    plan = Plan(
        jobs=args.jobs or 2 * kills,
        kills=kills,
        workers=4 if args.quick else 8,
        seed=args.seed,
        selves=5 if args.quick else 20,
        bundles=3 if args.quick else 20,
    )
    return run_to_end(run(plan))
