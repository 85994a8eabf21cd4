"""Who answers, and who pretends to: with real sessions, against the questions that are open now."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobOp,
)
from antiphon.core.families.jobs.state import HELD, Job, State
from antiphon.core.proof.answer import answer_output
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.caller.answers import answer
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, Policy, give_up, own_record, write_one
from antiphon.runtime.replica.lane_lists import Lists
from antiphon.runtime.replica.replica import Replica
from antiphon.sdk.questions.namespace import OPEN_QUESTIONS
from chaos.cluster.worker_process import CHOICES
from simulator.checks.plain_record import Key

LOOK_S: Final = 0.05
LEAVES: Final = 0.15
"""How often somebody takes a question and is gone."""
PLAINLY: Final = Policy(again=give_up, look=own_record, insists=False)
"""Written whatever would become of it, as a liar does."""


class Tried(Struct, kw_only=True):
    """What was tried against the rules."""

    refused: int = 0
    accepted: int = 0
    seqs: list[int] = []

    def add(self, verdict: Verdict, seq: int) -> None:
        """One attempt that is on the log."""
        self.seqs.append(seq)
        if verdict.is_accepted:
            self.accepted += 1
        else:
            self.refused += 1


def open_questions(session: Session, replica: Replica) -> list[Job]:
    """The questions that nobody has answered, as a node knows it."""
    replica.flush()
    found = Lists(replica, session.control).shared(OPEN_QUESTIONS, limit=1_000)
    return [one.state for one in found.rows]


async def be_a_person(
    session: Session, replica: Replica, chance: random.Random, given: dict[Key, str]
) -> None:
    """Answer what is open, again and again; sometimes take a question and leave it."""
    while True:
        await asyncio.sleep(chance.expovariate(1 / (4 * LOOK_S)))
        found = [one for one in open_questions(session, replica) if one.state is State.PENDING]
        if not found:
            continue
        job = chance.choice(found)
        try:
            if chance.random() < LEAVES:
                await _written(session, job, JobClaim, claim_of(job))
                continue
            said = chance.choice(CHOICES)
            await answer(session, job.kind, job.id, said)
            given[job.kind, job.id] = said
        except AntiphonError:
            continue  # somebody else was faster, or the server is away


def claim_of(job: Job, *, answers: bool = True) -> ClaimBody:
    """A claim of a question."""
    return ClaimBody(kind=job.kind, job=job.id, lease_ms=job.lease_ms, answers=answers, begin=True)


def completion_of(job: Job, said: str, fence: str = "") -> CompleteBody:
    """The completion of a question, without a signature."""
    return CompleteBody(
        kind=job.kind,
        job=job.id,
        fence=fence or job.fence or "0" * 16,
        status="succeeded",
        outputs=(answer_output(f'"{said}"'),),
    )


async def be_a_liar(
    session: Session, beside: Session, replica: Replica, chance: random.Random, tried: Tried
) -> None:
    """Try to have answers counted that nobody gave."""
    forgeries = (_without_taking, _of_another, _unsigned, _none_of_the_choices, _as_a_worker)
    while True:
        await asyncio.sleep(chance.expovariate(1 / (8 * LOOK_S)))
        found = open_questions(session, replica)
        if not found:
            continue
        job = chance.choice(found)
        try:
            for verdict, seq in await chance.choice(forgeries)(session, beside, job):
                tried.add(verdict, seq)
        except AntiphonError:
            continue


Attempts = list[tuple[Verdict, int]]


async def _without_taking(session: Session, _: Session, job: Job) -> Attempts:
    """An answer of its own, to a question that somebody else has, or nobody."""
    now = (await session.read_lane(job.kind, job.id)).lane.job
    if now is None or now.claimer == session.author.did:
        return []  # it took this one before: its answer would be no forgery
    body = session.author.answer(completion_of(job, "yes"), _text(job))
    return await _written(session, job, JobComplete, body)


async def _of_another(session: Session, beside: Session, job: Job) -> Attempts:
    """A question that it took, with the signature of somebody else."""
    return await _after_taking(
        session, job, lambda now: beside.author.answer(completion_of(now, "yes"), _text(now))
    )


async def _unsigned(session: Session, _: Session, job: Job) -> Attempts:
    """The same with a signature over another answer."""

    def lie(now: Job) -> CompleteBody:
        signed = session.author.answer(completion_of(now, "no"), _text(now))
        return replace(completion_of(now, "yes"), answered=signed.answered)

    return await _after_taking(session, job, lie)


async def _none_of_the_choices(session: Session, _: Session, job: Job) -> Attempts:
    """An answer that is none, truly signed."""
    return await _after_taking(
        session, job, lambda now: session.author.answer(completion_of(now, "perhaps"), _text(now))
    )


async def _as_a_worker(session: Session, _: Session, job: Job) -> Attempts:
    """As a worker would take a job."""
    if job.state is not State.PENDING:
        return []
    return await _written(session, job, JobClaim, claim_of(job, answers=False))


async def _after_taking(session: Session, job: Job, lie: Callable[[Job], CompleteBody]) -> Attempts:
    await _written(session, job, JobClaim, claim_of(job))
    view = await session.read_lane(job.kind, job.id)
    now = view.lane.job
    if now is None or now.state not in HELD or now.claimer != session.author.did:
        return []
    return await _written(session, now, JobComplete, lie(now))


async def _written(session: Session, job: Job, op: type[JobOp], body: Struct) -> Attempts:
    view = await session.read_lane(job.kind, job.id)
    if view.lane.job is None or view.lane.job.is_terminal:
        return []
    done = await write_one(session, Intent(op, body, view.lane), PLAINLY)
    return [] if done.verdict is None or not done.seq else [(done.verdict, done.seq)]


def _text(job: Job) -> str:
    return job.question.text if job.question is not None else ""


async def ask_oneself(session: Session, job: Job, tried: Tried) -> None:
    """Try to take a question with the key that asked it."""
    for verdict, seq in await _written(session, job, JobClaim, claim_of(job)):
        tried.add(verdict, seq)
