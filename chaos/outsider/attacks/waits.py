"""What the outsider has the coordinator write for it: offers, cancellations and jobs of plans.

A job that waits for another is offered by the coordinator, which may read everything. What it
writes there lies on a lane that the outsider reads. And whatever waits is work for the coordinator,
also if nothing can be written about it.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.clock import hlc
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.derivation import Cron
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    Failure,
    JobCancel,
    JobClaim,
    JobComplete,
    JobSchedule,
    JobYield,
    ScheduleBody,
    YieldBody,
)
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import plan_key
from antiphon.core.proof.output import Output, Stored
from antiphon.errors import AntiphonError, Rejected
from antiphon.runtime.executors.proof_writer import Run, prove, python_runner
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from chaos.network.raw_connection import ANSWER_S
from chaos.outsider.attacks.blobs import given_bytes, others_blob
from chaos.outsider.attacks.forgeries import called
from chaos.outsider.attempt import Attempt, Outcome, unknown_job
from chaos.outsider.target import RENDER, SECRET, Breach, TargetMesh

SETTLED_S: Final = ANSWER_S
"""In this time the coordinator has written what it will write about a job."""
LOOK_S: Final = 0.05
CHILDREN: Final = 70
ERROR_LENGTH: Final = 4_096
"""So many errors of this length together are longer than a record may be."""
REPEATED: Final = 80
AT_ONCE: Final = 32
LAST_MS: Final = 2**48 - 1
ODD_ZONES: Final = ("Nowhere/At_All", "A/B/C/D/E/F/G/H", "Zz")
_ID: Final = re.compile(r"[0-9a-f]{12,64}")

Job_ = tuple[str, str]


@asynccontextmanager
async def member(target: TargetMesh, home: StateDirectory) -> AsyncIterator[Session]:
    """A machine of the contractor's, with a client that signs what its rights allow."""
    async with assembly.join(home, "client") as connection:
        await connection.session.sync_control()
        yield connection.session
    target.check_participants()


async def _claims(session: Session, jobs: Sequence[str], kind: str = RENDER) -> list[Draft]:
    """Claims of jobs, one for each; the drafts have the fences."""
    lease_ms = session.control.rules.lease_ms
    drafts = [
        session.draft(
            JobClaim, ClaimBody(kind=kind, job=one, lease_ms=lease_ms, begin=True), prev=0
        )
        for one in jobs
    ]
    await _send(session, drafts)
    return drafts


async def _send(session: Session, drafts: Sequence[Draft]) -> list[int]:
    found: list[int] = []
    for start in range(0, len(drafts), AT_ONCE):
        some = drafts[start : start + AT_ONCE]
        for draft, answer in zip(some, await session.send(some), strict=True):
            if isinstance(answer, int):
                found.append(answer)
            else:
                found.append(await session.commit(draft, told=answer))
    return found


async def _end(session: Session, jobs: Sequence[str], kind: str = RENDER, **how: Any) -> None:
    """Claim and complete jobs, each in the same way."""
    claims = await _claims(session, jobs, kind)
    completions = []
    for job, claim in zip(jobs, claims, strict=True):
        view = await session.read_lane(kind, job)
        if view.submitted_with is None:
            raise Breach("this shows nothing, since a job was not submitted")
        run = Run(
            manifest=view.submitted_with.manifest,
            usage=Usage(wall_ms=1),
            runner=python_runner(),
        )
        body = CompleteBody(kind=kind, job=job, fence=hlc.pack(claim.op.hlc), exit=0, **how)
        draft = session.draft(JobComplete, prove(session, body, run), prev=view.lane.job_tail)
        completions.append(draft)
    await _send(session, completions)


async def _wait_for(session: Session, job: str, after: Sequence[Job_]) -> None:
    """Claim a job, and give it back until others have ended."""
    (claim,) = await _claims(session, [job])
    view = await session.read_lane(RENDER, job)
    body = YieldBody(
        kind=RENDER, job=job, fence=hlc.pack(claim.op.hlc), reason="after", after=tuple(after)
    )
    draft = session.draft(JobYield, body, prev=view.lane.job_tail)
    seq = await session.commit(draft)
    verdict = (await session.read_lane(RENDER, job, at_least=seq)).verdict_of(draft.op_id)
    if verdict is None or not verdict.is_accepted:
        raise Rejected("refused", reason=str(verdict))


async def _settled(session: Session, job: str) -> tuple[Job | None, str]:
    """A job once the coordinator has written about it, and the reason of a cancellation."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        view = await session.read_lane(RENDER, job)
        found = view.lane.job
        waits = found is None or found.state is State.WAITING
        if not waits or time.monotonic() > deadline:
            break
        await asyncio.sleep(LOOK_S)
    ops = (one.opened.op for one in view.history)
    reasons = [op.body.reason for op in ops if isinstance(op, JobCancel)]
    return found, reasons[-1] if reasons else ""


async def _hidden(target: TargetMesh, text: str, *, failed: bool = False) -> str:
    """A job of a kind out of the outsider's reach, which has ended with this text.

    Its id is no secret: the outsider names it itself, on lanes that it reads.
    """
    handle = await target.owner.submit(SECRET, os.urandom(4).hex())
    if failed:
        error = Failure(name="Fault", message=text)
        await _end(
            target.owner.connection.session, [handle.id], SECRET, status="failed", error=error
        )
        return handle.id
    content = f'"{text}"'
    output = Output(name="result", text=content)
    await _end(
        target.owner.connection.session, [handle.id], SECRET, status="succeeded", outputs=(output,)
    )
    return handle.id


async def _results_by_yield(target: TargetMesh) -> Outcome:
    """A claimer of one kind names jobs of another in its yield: results and errors of others."""
    told = []
    async with member(target, target.contractor) as session:
        for failed in (False, True):
            secret = target.canary()
            hidden = await _hidden(target, secret, failed=failed)
            own = await called(target)
            try:
                await _wait_for(session, own, [(SECRET, hidden)])
            except Rejected as refused:
                told.append(f"the yield is {refused.reason}")
                continue
            job, reason = await _settled(session, own)
            results = () if job is None else job.child_results
            shown = repr(results) + reason
            if secret in shown or any(one.has_value or one.error for one in results):
                raise Breach(f"the offer has another kind's {'error' if failed else 'result'}")
            told.append(f"{'no job' if job is None else job.state.value} {reason}".strip())
    return Outcome("harmless", f"nothing of the other job: {', '.join(dict.fromkeys(told))}"[:120])


async def _content_by_offer(target: TargetMesh) -> Outcome:
    """Content whose digest it knows: a lie about its own job, repeated in an offer to itself."""
    wanted = (await others_blob(target)).hash
    first, second = await called(target), await called(target)
    async with member(target, target.contractor) as session:
        output = Output(name="result", stored=Stored(hash=wanted, size=1))
        await _end(session, [first], status="succeeded", outputs=(output,))
        try:
            await _wait_for(session, second, [(RENDER, first)])
        except Rejected as refused:
            return Outcome("rules", refused.reason)
        await _settled(session, second)
    for job in (first, second):
        if await given_bytes(target, wanted, kind=RENDER, job=job):
            raise Breach("the gate gave others' content, since an offer names its digest")
    return Outcome("gate", "an offer repeats what a completion says, and that was its own")


async def _outcome_by_reason(target: TargetMesh) -> Outcome:
    """How others' jobs ended, and whether they exist, by what becomes of its own after them."""
    home = await target.join(f"caller-{os.urandom(2).hex()}", can="schedule")
    hidden = {
        "succeeded": await _hidden(target, "x"),
        "failed": await _hidden(target, "x", failed=True),
        "unknown": unknown_job(),
    }
    seen = {}
    async with member(target, home) as session:
        for how, job in hidden.items():
            plain = manifest.author({"command": ["true"], "timeout": 30})
            content = manifest.with_nonce(plain, os.urandom(16).hex(), "random")
            body = ScheduleBody(kind=RENDER, manifest=content, after=((SECRET, job),))
            await session.commit(session.draft(JobSchedule, body, prev=0))
            found, reason = await _settled(session, manifest.job_id(content))
            state = "none" if found is None else found.state.value
            seen[how] = f"{state} {_ID.sub('…', reason)}".strip()
    if len(set(seen.values())) > 1:
        raise Breach(f"its own jobs tell how others' ended: {seen}"[:300])
    return Outcome("harmless", f"always the same: {seen['unknown']}"[:120])


async def _unwritable_offer(target: TargetMesh) -> Outcome:
    """A job that waits for many that failed at length, and one that names a failure many times."""
    handles = [await called(target) for _ in range(CHILDREN)]
    states = []
    async with member(target, target.contractor) as session:
        error = Failure(name="Fault", message="x" * ERROR_LENGTH)
        await _end(session, handles, status="failed", error=error)
        for after in (
            [(RENDER, one) for one in handles],
            [(RENDER, handles[0])] * REPEATED,
        ):
            parent = await called(target)
            try:
                await _wait_for(session, parent, after)
            except Rejected as refused:
                states.append(refused.reason)
                continue
            job, reason = await _settled(session, parent)
            if job is None or job.state is State.WAITING:
                raise Breach(f"a job waits for an offer of {len(after)} errors, and none comes")
            states.append(f"{job.state.value} {reason}".strip())
    return Outcome("harmless", f"what is too long is cut or said: {', '.join(states)}"[:120])


async def _plan_at_the_end_of_time(target: TargetMesh) -> Outcome:
    """Plans that begin when the calendar ends, and in zones that do not exist."""
    home = await target.join(f"planner-{os.urandom(2).hex()}", can="schedule")
    content = manifest.author({"command": [f"@{RENDER}"], "args": ["{}"], "timeout": 30})
    verdicts = set()
    triggers = [
        Cron(at="0 3 * * *", zone="UTC", from_ms=LAST_MS),
        Cron(at="* * * * * *", zone="Pacific/Apia", from_ms=LAST_MS, missed="all"),
        *(Cron(at="* * * * * *", zone=zone, from_ms=0) for zone in ODD_ZONES),
    ]
    async with member(target, home) as session:
        for number, trigger in enumerate(triggers):
            name = f"odd-{number}"
            body = PlanBody(kind=RENDER, manifest=content, name=name, trigger=trigger)
            lane = (await session.read(plan_key(RENDER, name))).lane
            try:
                written = await write_one(session, Intent(PlanPut, body, lane), BEHIND)
                verdicts.add("none" if written.verdict is None else written.verdict.value)
            except Rejected as refused:
                verdicts.add(refused.reason)
            except AntiphonError:
                await asyncio.sleep(1.0)  # until whoever ended has ended
                target.check_participants()
                raise
            await asyncio.sleep(LOOK_S)
            target.check_participants()
    await target.check_work()
    return Outcome("rules", f"{', '.join(sorted(verdicts))}; and the plan runner goes on")


WAITS: Final = [
    Attempt("others' results and errors by a yield", _results_by_yield),
    Attempt("others' content by an offer to itself", _content_by_offer),
    Attempt("how others' jobs ended, by what becomes of its own", _outcome_by_reason),
    Attempt("offers that are too long to be written", _unwritable_offer),
    Attempt("plans at the end of time and in no zone", _plan_at_the_end_of_time),
]
