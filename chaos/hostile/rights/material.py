"""What the owner puts on the mesh for the hostile member: jobs, results, questions, a bundle."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from antiphon.core.clock import hlc
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import ClaimBody, CompleteBody, JobClaim, JobComplete
from antiphon.runtime.executors.proof_writer import Run, prove, python_runner
from antiphon.runtime.log.session import Session
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.proofs import bundles
from chaos.hostile.rights.member import KIND
from chaos.hostile.rights.tenures import QUESTION

JOBS: Final = 240
"""Jobs, or questions, for a member that may claim or answer them at the engine."""
LISTED: Final = 60
"""Jobs and questions for a member that attacks over HTTP."""
RENEWALS: Final = 600
"""Records on each of two long lanes. The bundle of one has about as many bytes as a node checks."""
LARGE: Final = 2_000_000
"""Characters of a result that is stored apart from the log."""
SEALED_S: Final = 60.0
DONE: Final = "render.done"
"""A kind that only the owner's worker claims."""


class Material(Struct, frozen=True, kw_only=True):
    """What a member knows of the mesh that it attacks."""

    others: str
    """The address of somebody else's inbox."""
    jobs: tuple[str, ...] = ()
    """Jobs of its kind; over HTTP, the first has a long lane."""
    ended: tuple[str, ...] = ()
    """Jobs with results, one of which is stored and large; and one with a long lane."""
    questions: tuple[str, ...] = ()
    bundle: bytes = b""
    """A bundle with hundreds of signatures."""

    def for_right(self, right: str) -> tuple[str, ...]:
        """What a member with this right may hold: jobs, or questions."""
        return self.questions if right == "answer" else self.jobs


async def for_engine(owner: Mesh, right: str, others: str) -> Material:
    """What a right needs at the engine: somebody's jobs to claim, or questions to answer."""
    jobs = await _jobs(owner, JOBS) if right == "claim" else ()
    questions = await _questions(owner, JOBS) if right == "answer" else ()
    return Material(others=others, jobs=jobs, questions=questions)


async def for_http(owner: Mesh, others: str) -> Material:
    """The same for every right, since most of them open lists and streams."""
    await owner.connection.session.sync_control()
    long, sealed, *jobs = await _jobs(owner, LISTED)
    await _renewed(owner.connection.session, long)
    await _completed(owner.connection.session, sealed)
    return Material(
        others=others,
        jobs=(long, *jobs),
        ended=(*await _done(owner), sealed),
        questions=await _questions(owner, LISTED),
        bundle=await bundles.export(owner, KIND, sealed, wait_s=SEALED_S),
    )


async def _jobs(owner: Mesh, count: int) -> tuple[str, ...]:
    handles = await owner.submit_many([owner.bind(KIND, number) for number in range(count)])
    return tuple(one.id for one in handles)


async def _questions(owner: Mesh, count: int) -> tuple[str, ...]:
    asked = [owner.questions.ask(QUESTION, kind=KIND) for _ in range(count)]
    return tuple(one.id for one in await asyncio.gather(*asked))


async def _done(owner: Mesh) -> tuple[str, ...]:
    """Two jobs that a worker of the owner has done: a small result and a large one."""

    @owner.task(DONE)
    async def repeat(length: int) -> str:
        return "x" * length

    async with owner.worker():
        handles = [await repeat.submit(length) for length in (8, LARGE)]
        for one in handles:
            await one.result()
    return tuple(one.id for one in handles)


async def _renewed(session: Session, job: str) -> tuple[str, int]:
    """Claim a job and renew its lease again and again; its fence, and the last record."""
    lease_ms = session.control.rules.lease_ms
    body = ClaimBody(kind=KIND, job=job, lease_ms=lease_ms, begin=True)
    draft = session.draft(JobClaim, body, prev=0)
    seq, fence = await session.commit(draft), hlc.pack(draft.op.hlc)
    for _ in range(RENEWALS):
        body = ClaimBody(kind=KIND, job=job, lease_ms=lease_ms, fence=fence)
        seq = await session.commit(session.draft(JobClaim, body, prev=seq))
    return fence, seq


async def _completed(session: Session, job: str) -> None:
    """Renew a job, and complete it."""
    fence, seq = await _renewed(session, job)
    view = await session.read_lane(KIND, job)
    if view.submitted_with is None:
        raise SystemExit(f"the job {job} is gone")
    run = Run(manifest=view.submitted_with.manifest, usage=Usage(wall_ms=1), runner=python_runner())
    body = CompleteBody(kind=KIND, job=job, fence=fence, status="succeeded", exit=0)
    await session.commit(session.draft(JobComplete, prove(session, body, run), prev=seq))
