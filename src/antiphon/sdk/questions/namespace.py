"""`mesh.questions`: questions to people, asked and answered (docs/do/questions.md).

for question in await mesh.questions.open():
    print(question.text)
await mesh.questions.answer(question.kind, question.job_id, "yes")

A job asks with `ctx.ask`. A program outside of a job asks with `mesh.questions.ask` and waits for
the answer as for any job's result.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core.authority.grant_tree import trace
from antiphon.core.families.jobs.columns import QUESTION
from antiphon.core.families.jobs.ops import JOB
from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.core.manifest import NonceInput
from antiphon.core.record.ids import short_node
from antiphon.core.tempo.time_text import time_text
from antiphon.errors import Rejected
from antiphon.runtime.caller import answers, submission
from antiphon.runtime.caller.answers import Asker
from antiphon.runtime.caller.erasure import forgotten
from antiphon.runtime.executors.step import WITHIN, QuestionTerms, Within
from antiphon.runtime.replica.job_pages import EVERYTHING
from antiphon.runtime.replica.lane_lists import LaneList, Lists, kind_and_below
from antiphon.runtime.replica.replica_erasures import ReplicaErasures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.handle import JobHandle

MOST_LISTED: Final = 1_000
NONCE_BYTES: Final = 16


OPEN_QUESTIONS: Final = LaneList[Job]("jobs", JobLane, JOB, "needs", value=QUESTION)
"""Questions that nobody has answered, the oldest first."""


class OpenQuestion(Struct, frozen=True, kw_only=True):
    """A question that nobody has answered yet, for people."""

    kind: str
    job_id: str
    text: str
    choices: tuple[str, ...]
    schema: Any
    """The JSON Schema of the answer; None without one."""
    asked_by: str
    """Who asks: an alias, or the end of a key's id."""
    asked: str
    """ISO 8601, in UTC; so is the next."""
    until: str
    """When it is no longer open."""
    people: int
    """How many people are asked; 0: one, whoever comes first."""
    quorum: int
    """How many of them have to agree."""
    is_taken: bool
    """Whether somebody is answering it right now."""


class GivenAnswer(Struct, frozen=True, kw_only=True):
    """An answer that was given."""

    job: Job
    """The question afterwards; of one to several people, the part that was answered."""
    signed_by: str
    """The key that signed it, whose answer it is on the log."""
    is_new: bool
    """False if this key had given the same answer already."""


class Questions:
    """The questions of a mesh."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.questions`."""
        self._connection = connection

    async def open(self, *, kind: str = "") -> list[OpenQuestion]:
        """The questions that this machine can read and nobody has answered, the oldest first.

        `kind` stands for the kinds below it, too. Of more than 1,000, parties share the list.
        """
        among, control = kind_and_below(kind), self._connection.session.control
        async with self._connection.replica() as replica:
            found = Lists(replica, control).shared(OPEN_QUESTIONS, limit=MOST_LISTED, among=among)
        return shown_questions(self._connection, [one.state for one in found.rows])

    async def find(self, text: str, *, kinds: Sequence[str] = EVERYTHING) -> OpenQuestion:
        """The question with this id, or beginning of an id; `Rejected` if there is none."""
        from antiphon.sdk.jobs.job_lookup import one_job

        async with self._connection.replica() as replica:
            job = one_job(replica, text, kinds=kinds)
            order = replica.ask(ReplicaErasures).about(job)
        if job.question is None:
            raise Rejected(
                f"{job.kind} {job.id[:8]} is a job, not a question",
                reason="question",
                hint="'antiphon questions' lists those that are open",
            )
        if order is not None and job.is_terminal:  # else somebody has to answer it
            raise forgotten(order, job.id)
        return shown_questions(self._connection, [job])[0]

    async def answer(self, kind: str, job_id: str, value: Any) -> Job:
        """Answer a question with this process's key: a choice, or what its schema describes.

        `Malformed` if it is no answer, `Rejected` if the question is closed or this key may not
        answer it, `Held` while somebody else does.
        """
        return await answers.answer(self._connection.session, kind, job_id, value)

    async def answer_once(
        self, kind: str, job_id: str, value: Any, *, asker: Asker | None = None
    ) -> GivenAnswer:
        """The same, for interfaces: the same answer again is no error, and changes nothing.

        This process's key signs. `asker` is whoever had it answered, if that is somebody else: a
        party that asks the question, or is excluded from it, cannot answer through this process.
        """
        session = self._connection.session
        is_new = True
        try:
            job = await answers.answer(session, kind, job_id, value, asker=asker)
        except Rejected as refused:
            found = None
            if refused.reason in {"finished", "already"}:
                found = await answers.given(session, kind, job_id, value)
            if found is None:
                raise
            job, is_new = found, False
        return GivenAnswer(job=job, signed_by=session.author.did, is_new=is_new)

    async def ask(  # noqa: PLR0913 - what a question can say
        self,
        text: str,
        /,
        *,
        kind: str,
        choices: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
        needs: str | None = None,
        within: Within = WITHIN,
        not_by: Sequence[str] = (),
        replicas: int | None = None,
        quorum: int | None = None,
    ) -> JobHandle[Any]:
        """Ask people, outside of a job; the result of the handle is the answer.

        `needs` is the one choice with which it succeeds: with any other it fails, and jobs that
        wait for it are cancelled. The rest is as for `ctx.ask`.
        """
        from antiphon.sdk.many.bound_calls import Caller

        terms = QuestionTerms.of(
            text,
            kind=kind,
            choices=choices,
            schema=schema,
            needs=needs,
            within=within,
            not_by=not_by,
            replicas=replicas,
            quorum=quorum,
        )
        session = self._connection.session
        nonce = NonceInput(nonce=session.entropy.token(NONCE_BYTES).hex(), origin="random")
        body = terms.body(nonce, session.wall.now_ms())
        submitted = await submission.submit(session, body)
        return Caller(self._connection).handle_of(submitted)


def shown_questions(connection: Connection, jobs: Sequence[Job]) -> list[OpenQuestion]:
    """Questions as people see them."""
    session = connection.session
    names = trace(session.control, session.wall.now_ms() // 1000).names
    return [_shown(job, names, is_taken=answers.is_taken(session, job)) for job in jobs]


def _shown(job: Job, names: Mapping[str, str], *, is_taken: bool) -> OpenQuestion:
    question = job.question
    if question is None:
        raise ValueError("only questions are shown")
    return OpenQuestion(
        kind=job.kind,
        job_id=job.id,
        text=question.text,
        choices=question.choices,
        schema=None if question.schema is None else json.loads(question.schema),
        asked_by=names.get(job.scheduler) or short_node(job.scheduler),
        asked=time_text(job.scheduled_ms),
        until=time_text(job.start_by_ms),
        people=job.replicas,
        quorum=job.quorum,
        is_taken=is_taken,
    )


__all__ = ["Asker", "GivenAnswer", "OpenQuestion", "Questions"]
