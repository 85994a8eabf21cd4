"""Attempts to have answers counted that nobody gave, and to answer what one asked oneself."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.completion_proof import answer_statement_of
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobSchedule,
    ScheduleBody,
)
from antiphon.core.families.jobs.questions import question_manifest
from antiphon.core.families.jobs.state import HELD, Job, State
from antiphon.core.manifest import NonceInput, job_id
from antiphon.core.proof.answer import Answered, Question, answer_output
from antiphon.core.proof.statement import PAYLOAD_TYPE, UNSIGNED
from antiphon.core.record import codec
from simulator.actors.people import CHOICES, QUESTION_KIND
from simulator.checks.plain_record import Key
from simulator.hostile.hostile_member import Deed, HostileMember

LEASE_MS: Final = 5_000
TURNS: Final = 5
TURN_S: Final = 12.0
"""Until its lease has ended, and it may take the question again."""


def _is_question(job: Job) -> bool:
    return job.question is not None


def _claim(key: Key, *, answers: bool = True) -> ClaimBody:
    return ClaimBody(kind=key[0], job=key[1], lease_ms=LEASE_MS, begin=True, answers=answers)


def _answer(m: HostileMember, job: Job, said: str, *, meant: str = "") -> CompleteBody:
    """An answer that is signed, or whose signature is over what was `meant`."""
    text = job.question.text if job.question is not None else ""
    body = CompleteBody(
        kind=job.kind,
        job=job.id,
        fence=job.fence or "0" * 16,
        status="succeeded",
        outputs=(answer_output(f'"{said}"'),),
    )
    signed = replace(body, outputs=(answer_output(f'"{meant or said}"'),))
    given = Answered(text=text, at="0" * 16, sig=UNSIGNED)
    payload = codec.encode(answer_statement_of(m.mesh, m.keyring.did, signed, given))
    return replace(body, answered=replace(given, sig=m.keyring.sign(PAYLOAD_TYPE, payload)))


async def answer_of_others(m: HostileMember) -> None:
    """The answer to a question that somebody else has just taken."""
    found = await m.next_job(*HELD, where=_is_question)
    if found is not None:
        key, lane, job = found
        record = m.op(JobComplete, _answer(m, job, "yes"), prev=lane.job_tail, is_plain=True)
        await m.put(m.lane_subject(key), record)


async def false_answer(m: HostileMember) -> None:
    """An answer of its own that is none of the choices, or not what it signed, or no answer."""
    found = await m.next_job(State.PENDING, where=_is_question)
    if found is None:
        return
    key, lane, _ = found
    subject = m.lane_subject(key)
    if m.chance.random() < 0.3:
        await m.put(subject, m.op(JobClaim, _claim(key, answers=False), prev=lane.job_tail))
    await m.put(subject, m.op(JobClaim, _claim(key), prev=m.tail(subject), is_plain=True))
    job = m.referee.lanes[key].job
    if job is None or job.claimer != m.keyring.did:
        return
    lie = m.chance.choice((_no_choice, _not_meant, _not_meant, _unproved))
    await m.put(subject, m.op(JobComplete, lie(m, job), prev=m.tail(subject), is_plain=True))


def _no_choice(m: HostileMember, job: Job) -> CompleteBody:
    return _answer(m, job, "perhaps")


def _not_meant(m: HostileMember, job: Job) -> CompleteBody:
    return _answer(m, job, "yes", meant="no")


def _unproved(m: HostileMember, job: Job) -> CompleteBody:
    return replace(_answer(m, job, "yes"), answered=None)


async def leave_questions(m: HostileMember) -> None:
    """Take a question again and again, and never answer it."""
    found = await m.next_job(State.PENDING, where=_is_question)
    if found is None:
        return
    key = found[0]
    subject = m.lane_subject(key)
    for _ in range(TURNS):
        await m.put(subject, m.op(JobClaim, _claim(key), prev=m.tail(subject), is_plain=True))
        await asyncio.sleep(TURN_S)


async def own_question(m: HostileMember) -> None:
    """A question of its own, which it takes itself."""
    question = Question(text=f"mine {m.chance.random()}?", choices=CHOICES)
    nonce = NonceInput(nonce=m.chance.randbytes(16).hex(), origin="random")
    body = ScheduleBody(
        kind=QUESTION_KIND,
        manifest=question_manifest(question, nonce),
        question=question,
        start_by=m.now_ms() + 60_000,
    )
    key = QUESTION_KIND, job_id(body.manifest)
    await m.put(job_subjects.wait(m.mesh, *key), m.op(JobSchedule, body, prev=0, is_plain=True))
    await m.put(m.lane_subject(key), m.op(JobClaim, _claim(key), prev=0, is_plain=True))


ANSWERS_OF_OTHERS: Final[dict[str, Deed]] = {
    deed.__name__: deed for deed in (answer_of_others, false_answer, leave_questions, own_question)
}
