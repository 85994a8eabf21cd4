"""`chaos hostile`: a worker with a real login for the kind, and no good intentions.

Beside one honest worker it

    acks     asks for more announcements than anybody else, and acknowledges every one
    idles    claims what it is handed for as long as it may, and does nothing
    floods   writes junk on the lanes of open jobs

    buries   claims a job, and buries its lane before anybody else can

for a while, and is gone then, as if its login had been revoked. Jobs may be late by what the rules
allow, which is printed beside what was measured; none may be lost. A member that may only read has
a scene of its own: `--only reader` (`hostile_reader`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon import telemetry
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.subjects import queue_name
from antiphon.core.reasons import Reason
from antiphon.core.standoff import LONGEST_S
from antiphon.errors import AntiphonError
from antiphon.ports import WorkQueue
from antiphon.runtime.author import Draft
from antiphon.runtime.peer import Peer
from antiphon.testing.simulation.facts import Key
from chaos import hostile_reader
from chaos.hostile_scene import KIND, RULES, SLOTS, Scene, scene
from chaos.outsider_line import Line, frame
from chaos.reckoning import Reckoner, reckon

CALLS_PER_S: Final = 5
STAYS_S: Final = 4.0
GREEDY_QUEUES: Final = 32
"""Each keeps requests of its own waiting: most announcements go where most requests wait."""
GREED: Final = 512
JUNK_PER_BURST: Final = 40
FLOODED_WITH: Final = 3_000
"""Records on one lane at most; see `BURIED_UNDER`."""
BURIED_UNDER: Final = 20_000
COPIES: Final = 1_000
HEAVY: Final = 100
HEAVY_BYTES: Final = 200_000
"""What a lane is buried under: junk, copies of a record that is signed rightly, and weight."""
ROUNDS_S: Final = 4.0
"""A full node looks once a second or so, and a colleague gives it its turn."""
PATIENCE_S: Final = 150.0
READ_S: Final = 10.0
"""Reading what `buries` wrote, once in each process that looks at the job; measured at 1 to 2 s."""

OFFER_S: Final = RULES.offer_after_ms / 1000
LEASE_S: Final = RULES.lease_ms_max / 1000
POINTED_S: Final = OFFER_S + RULES.claim_window_ms / 1000 + ROUNDS_S
"""Until full nodes call a job again and point to it, and somebody honest looks there."""


def _calls(on: Scene) -> tuple[str, str]:
    mesh = on.hostile.peer.mesh
    return job_subjects.calls_of(mesh, 1, KIND, below=False), queue_name(KIND, 1)


async def acknowledge_everything(on: Scene, _called: list[Key]) -> None:
    """Take every announcement away from those who would answer it."""
    calls, name = _calls(on)

    async def drink(queue: WorkQueue) -> None:
        queue.grant(GREED)
        while True:
            (await queue.next()).ack()
            queue.grant(1)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for _ in range(GREEDY_QUEUES):
            work = on.hostile.peer.log.work(calls, name=name)
            tasks.create_task(drink(await stack.enter_async_context(work)))


async def claim_and_idle(on: Scene, _called: list[Key]) -> None:
    """Hold what others could do; what cannot be held now is kept from them as well."""
    peer = on.hostile.peer
    calls, name = _calls(on)

    async with peer.log.work(calls, name=name) as queue, asyncio.TaskGroup() as tasks:
        queue.grant(GREED)
        while True:
            delivery = await queue.next()
            tasks.create_task(_hold(peer, delivery.record.subject[-64:]))
            queue.grant(1)


async def _hold(peer: Peer, job: str) -> Draft | None:
    """Claim a job; the claim, unless somebody was faster."""
    body = ClaimBody(kind=KIND, job=job, lease_ms=RULES.lease_ms_max, begin=True)
    with suppress(AntiphonError):
        view = await peer.read_lane(KIND, job)
        draft = peer.draft(JobClaim, body, prev=view.lane.job_tail)
        seq = await peer.commit(draft, timeout_s=1)
        view = await peer.read_lane(KIND, job, at_least=seq)
        return draft if view.verdict_of(draft.op_id) is Reason.OK else None
    return None


async def _hold_any(on: Scene) -> tuple[str, Draft]:
    """Take announcements until one of their jobs could be claimed."""
    calls, name = _calls(on)
    async with on.hostile.peer.log.work(calls, name=name) as queue:
        queue.grant(GREED)
        while True:
            delivery = await queue.next()
            job = delivery.record.subject[-64:]
            claim = await _hold(on.hostile.peer, job)
            if claim is not None:
                return job, claim
            delivery.nak()


async def flood_lanes(on: Scene, called: list[Key]) -> None:
    """Junk on the lanes of open jobs in bursts: whoever writes there loses races."""
    line = await Line.open(on.hostile_home)
    junk: Counter[str] = Counter()
    try:
        while True:
            open_jobs = [job for _, job in called if not has_ended(on, job)]
            for job in [job for job in open_jobs if junk[job] < FLOODED_WITH][:SLOTS]:
                await _junk(line, on, job, junk[job], JUNK_PER_BURST)
                junk[job] += JUNK_PER_BURST
            await asyncio.sleep(0.02)
    finally:
        await line.close()


async def _junk(line: Line, on: Scene, job: str, first: int, count: int) -> None:
    subject = job_subjects.job(on.hostile.peer.mesh, KIND, job)
    await line.send(*(frame(subject, b"junk %d" % (first + n)) for n in range(count)))


async def bury_lanes(on: Scene, _called: list[Key]) -> None:
    """Hold a job for as long as it takes to write more on its lane than anybody likes to read."""
    line = await Line.open(on.hostile_home)
    try:
        job, claim = await _hold_any(on)
        for first in range(0, BURIED_UNDER, 100):
            await _junk(line, on, job, first, 100)
        for _ in range(0, COPIES, 100):
            await line.send(*[frame(claim.subject, claim.payload)] * 100)
        for _ in range(HEAVY):
            await line.send(frame(claim.subject, bytes(HEAVY_BYTES)))
        await line.flush()
        await asyncio.sleep(3600)
    finally:
        await line.close()


def has_ended(on: Scene, job: str) -> bool:
    known = on.node.replica.job(KIND, job)
    return known is not None and known.is_terminal


class Mode(Struct, frozen=True):
    """One way of being hostile, and how late the rules let it make a job."""

    name: str
    act: Callable[[Scene, list[Key]], Awaitable[None]]
    bound_s: Callable[[float], float]
    """From how long it was there."""
    stays_s: float = STAYS_S
    """How long it is at it after the last call."""


def _until_called_again(there_s: float) -> float:
    """Pauses between calls double, so the next comes after twice the time, and one pause more."""
    return 2 * there_s + 2 * OFFER_S + ROUNDS_S


MODES: Final = (
    # It is there for longer than its bound: what helps is a pointer, not that it goes.
    Mode("acks", acknowledge_everything, lambda _: POINTED_S, stays_s=POINTED_S + 2),
    Mode("idles", claim_and_idle, lambda there_s: _until_called_again(there_s) + LEASE_S),
    Mode("floods", flood_lanes, lambda there_s: there_s + LONGEST_S + LEASE_S + ROUNDS_S),
    # Its tenure ends by itself, the job is called again, and the lane is read once.
    Mode("buries", bury_lanes, lambda _: LEASE_S + OFFER_S + READ_S + ROUNDS_S),
)


async def trial(mode: Mode, jobs: int) -> dict[str, Any]:
    """One mesh, one mode; what came of it."""
    with tempfile.TemporaryDirectory(prefix="antiphon-hostile-") as place:
        async with scene(Path(place)) as on:
            called: list[Key] = []
            acting = asyncio.ensure_future(mode.act(on, called))
            begun = time.monotonic()
            try:
                await asyncio.sleep(0.3)  # it is there first
                for number in range(jobs):
                    handle = await on.owner.submit(KIND, number)
                    called.append((KIND, handle.id))
                    await asyncio.sleep(1 / CALLS_PER_S)
                await asyncio.sleep(mode.stays_s)
                if acting.done():
                    acting.result()
            finally:
                while not acting.done():  # nats-py may swallow a cancellation
                    acting.cancel()
                    await asyncio.wait([acting], timeout=0.5)
            there_s = time.monotonic() - begun
            bound_s = mode.bound_s(there_s)
            await _until_all_ended(on, called, min(bound_s, PATIENCE_S))
            told = await reckon(on.home, strangers=[on.hostile.peer.author.did])
    return _told(told, called, there_s, bound_s)


async def _until_all_ended(on: Scene, called: list[Key], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and not all(has_ended(on, job) for _, job in called):
        await asyncio.sleep(0.1)


def _told(told: Reckoner, called: list[Key], there_s: float, bound_s: float) -> dict[str, Any]:
    delays = [(told.ended[key] - told.called[key]) / 1000 for key in called if key in told.ended]
    return {
        "jobs": len(called),
        # A job that was given up is lost to whoever called it.
        "lost": len(called) - told.succeeded,
        "delayed_max_s": round(max(delays, default=0.0), 2),
        "bound_s": round(bound_s, 1),
        "there_s": round(there_s, 1),
        "accepted_twice": len(told.accepted_twice),
        "records": told.records,
        "claims": told.deeds["job.claim"],
        "expiries": told.deeds["job.expire"],
        "calls_again": told.deeds["job.offer"],
    }


def holds(told: dict[str, Any]) -> bool:
    is_in_time = told["delayed_max_s"] <= told["bound_s"]
    return bool(is_in_time) and not told["lost"] and not told["accepted_twice"]


async def run(names: list[str], jobs: int) -> int:
    said: dict[str, Any] = {}
    chosen = [mode for mode in MODES if mode.name in names] if names else MODES
    for mode in chosen:
        said[mode.name] = await trial(mode, jobs)
        print(f"{mode.name}: {said[mode.name]}", file=sys.stderr, flush=True)
    print(json.dumps(said))
    return 0 if all(holds(told) for told in said.values()) else 1


async def run_reader(plan: hostile_reader.Plan) -> int:
    told = await hostile_reader.trial(plan)
    print(json.dumps(told))
    return 0 if hostile_reader.holds(told) else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos hostile")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int)
    modes = [mode.name for mode in MODES]
    parser.add_argument("--only", action="append", default=[], choices=[*modes, "reader"])
    args = parser.parse_args(argv)
    telemetry.configure("error", "text")
    if "reader" in args.only:
        if len(args.only) > 1:
            parser.error("the reader has a scene of its own: --only reader, and nothing beside it")
        return asyncio.run(run_reader(hostile_reader.QUICK if args.quick else hostile_reader.FULL))
    return asyncio.run(run(args.only, args.jobs or (10 if args.quick else 60)))
