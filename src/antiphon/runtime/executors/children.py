"""Children: jobs that a handler asks for and whose results its job continues with (spec §7.3).

    pages = ctx.results(fetch)
    if pages is None:
        raise After([fetch.bind(link) for link in links])

The worker submits them and gives the job back until they have ended. A child's id follows from its
parent, from how often the parent has waited before, and from its place in the list. So a worker
that is killed between submitting and giving back leaves nothing that would run twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from blake3 import blake3

from antiphon.core.families.jobs.ops import MAX_AFTER, JobKey, ScheduleBody
from antiphon.core.manifest import NonceInput, job_id
from antiphon.errors import GiveUp
from antiphon.runtime.executors.handler_call import (
    Child,
    JobContext,
    JobFacts,
    inline_arguments,
    last_checkpoint_of,
    read_stored,
)

if TYPE_CHECKING:
    from antiphon.errors import After
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.executors.executor import Assignment

_CONTEXT: Final = b"antiphon child\n"
_NONCE_DIGITS: Final = 32
_SHORT_ID: Final = 12

Keep = Callable[[bytes], Awaitable[Mapping[str, Any]]]
"""Stores large arguments; the fields of a manifest that name them."""
Awaited = ScheduleBody | JobKey
"""What a job waits for: a job to be submitted, or one that was."""


class PlannedCall(Protocol):
    """A call that is not submitted yet; what `Task.bind` makes."""

    @property
    def kind(self) -> str:
        """Its task's kind."""

    @property
    def text(self) -> bytes:
        """Its arguments."""

    def schedule(self, where: Mapping[str, Any], *, nonce: NonceInput, now_ms: int) -> ScheduleBody:
        """The op's body that submits it, given where its arguments are."""


async def children_of(assignment: Assignment, artifacts: Artifacts | None) -> tuple[Child, ...]:
    """The children that the last tenure waited for, with the texts of their results."""
    found = []
    for (kind, name), result in zip(assignment.children, assignment.child_results, strict=True):
        text = result.text
        if result.hash is not None:
            job = (assignment.kind, assignment.job_id)
            text = (await read_stored(result.hash, result.size or 0, artifacts, job)).decode()
        outcome = result.outcome or "succeeded"
        found.append(
            Child(
                kind=kind,
                job_id=name,
                outcome=outcome,
                error=result.error,
                text=text,
                is_answer=result.is_answer,
            )
        )
    return tuple(found)


async def facts_of(assignment: Assignment, artifacts: Artifacts | None) -> JobFacts:
    """What the handler's context says of its job."""
    return JobFacts(
        kind=assignment.kind,
        job_id=assignment.job_id,
        fence=assignment.fence,
        attempt=assignment.attempt,
        children=await children_of(assignment, artifacts),
        continuations=assignment.continuations,
        submitter=assignment.submitter,
        last_checkpoint=await last_checkpoint_of(assignment, artifacts),
    )


async def to_await(
    after: After, parent: JobContext, keep: Keep | None, now_ms: int
) -> tuple[Awaited, ...]:
    """What a handler's job waits for. Large arguments are kept first; in a process they cannot be.

    `parent` is the context of the handler that asked.
    """
    found = list[Awaited]()
    for at, one in enumerate(after.children):
        if (key := _key(one)) is not None:
            found.append(key)
            continue
        call = cast("PlannedCall", one)
        where: Mapping[str, Any] | None = inline_arguments(call.text)
        if where is None:
            if keep is None:
                raise GiveUp(
                    f"the arguments of child {at + 1} ({call.kind}) are too large to be submitted"
                    ' from a process: leave out run_in="process", or store them with'
                    " mesh.artifacts.keep(path)"
                )
            where = await keep(call.text)
        nonce = child_nonce(parent.kind, parent.job_id, parent.continuations, at)
        found.append(call.schedule(where, nonce=nonce, now_ms=now_ms))
    return _bounded(found)


def answers_to_await(context: JobContext) -> tuple[Awaited, ...]:
    """What a handler's job waits for that asks people: their answers.

    And what it waited for before, so that it finds those results again.
    """
    before = [one.job_key() for one in context.children if not one.is_answer]
    return _bounded([*before, *context.asked])


def open_until_ms(awaited: Iterable[Awaited]) -> int | None:
    """Until when the questions among these are open; None if there are none."""
    asked = [one for one in awaited if isinstance(one, ScheduleBody) and one.question is not None]
    return max((one.start_by or 0 for one in asked), default=None)


def child_nonce(kind: str, name: str, continuations: int, at: int) -> NonceInput:
    """Makes a child a job of its own: the same again if its parent begins again."""
    words = f"{kind}\n{name}\n{continuations}\n{at}".encode()
    nonce = blake3(_CONTEXT + words).hexdigest()[:_NONCE_DIGITS]
    return NonceInput(nonce=nonce, origin="child")


def continuable(kind: str, context: JobContext | None) -> JobContext:
    """The context; `GiveUp` for a handler that could not tell its second call from its first."""
    if context is None:
        raise GiveUp(
            f"the handler of {kind} raised After, but takes no ctx: JobContext, in which it would"
            " find the results"
        )
    return context


def key_of(awaited: Awaited) -> JobKey:
    """The job that this is or will be."""
    if isinstance(awaited, ScheduleBody):
        return awaited.kind, job_id(awaited.manifest)
    return awaited


def _key(one: Any) -> JobKey | None:
    """The job of a handle; None for a call, which is none yet."""
    return one.job_key() if hasattr(one, "job_key") else None


def _bounded(found: list[Awaited]) -> tuple[Awaited, ...]:
    if len(found) > MAX_AFTER:
        raise GiveUp(f"a job can wait for {MAX_AFTER:,} jobs at once; these are {len(found):,}")
    keys = Counter(map(key_of, found))
    twice = next((key for key, count in keys.items() if count > 1), None)
    if twice is not None:
        raise GiveUp(f"After names {twice[0]} {twice[1][:_SHORT_ID]} twice: name each job once")
    return tuple(found)
