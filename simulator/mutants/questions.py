"""Bugs in who may answer questions, what counts as an answer, and how jobs go on with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.families.jobs import completion_proof, questions, table
from antiphon.core.families.jobs.ops import JobExpire
from antiphon.core.families.jobs.state import HELD, Job
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.executors.step import Ask
from simulator.patch import patched


@contextmanager
def askers_answer() -> Iterator[None]:
    """Whoever asked may answer."""
    really = questions.claim_fault

    def fault(job: Job, op: Any, at: Any) -> Any:
        found = really(job, op, at)
        return None if found is Verdict.SELF else found

    with patched(questions, "claim_fault", fault):
        yield


@contextmanager
def questions_run() -> Iterator[None]:
    """A question can be claimed as any other job."""
    really = questions.claim_fault

    def fault(job: Job, op: Any, at: Any) -> Any:
        found = really(job, op, at)
        return None if found is Verdict.QUESTION else found

    with patched(questions, "claim_fault", fault):
        yield


@contextmanager
def answers_unread() -> Iterator[None]:
    """Any answer is one."""

    def nothing(_: Job, __: Any) -> None:
        return None

    with patched(questions, "answer_fault", nothing):
        yield


@contextmanager
def answers_unsigned() -> Iterator[None]:
    """The signature of an answer is not looked at."""
    really = completion_proof.is_proved

    def proved(body: Any, author: str, at: Any) -> bool:
        return body.answered is not None or really(body, author, at)

    with patched(completion_proof, "is_proved", proved):
        yield


@contextmanager
def questions_used_up() -> Iterator[None]:
    """Somebody who takes a question and leaves uses up one of its attempts."""
    row: Any = table.TRANSITIONS[JobExpire]
    really = table._expire_held  # noqa: SLF001 - the rule that is broken

    def expire(job: Job, op: Any, at: Any) -> Any:
        found = really(replace(job, question=None), op, at)
        return replace(found, question=job.question) if isinstance(found, Job) else found

    claimed, running = sorted(HELD)
    with patched(row, claimed, expire), patched(row, running, expire):
        yield


@contextmanager
def asked_anew() -> Iterator[None]:
    """Each run of a job asks a question of its own."""
    really = Ask.__init__

    def init(self: Ask, caller: Any, name: str, terms: Any) -> None:
        really(self, caller, f"{name} under {caller.fence}", terms)

    with patched(Ask, "__init__", init):
        yield


@contextmanager
def answers_swapped() -> Iterator[None]:
    """A job goes on with an answer that nobody gave."""
    really = Ask._read  # noqa: SLF001 - what is broken

    def read(self: Ask, stored: Any) -> Any:
        said = really(self, stored)
        return "yes" if said == "no" else said

    with patched(Ask, "_read", read):
        yield


@contextmanager
def answers_by_kind() -> Iterator[None]:
    """A job takes any answer of the kind that it asked last for that of its first question."""
    init = Ask.__init__

    def begin(self: Ask, caller: Any, name: str, terms: Any) -> None:
        init(self, caller, name, terms)
        for child in caller.children:
            if child.kind == terms.kind:
                self._key = child.job_key()
        self._stored_as = f"{self._stored_as} under {caller.fence}"

    with patched(Ask, "__init__", begin):
        yield


MUTANTS: Final = (
    askers_answer,
    questions_run,
    answers_unread,
    answers_unsigned,
    questions_used_up,
    asked_anew,
    answers_swapped,
    answers_by_kind,
)
