"""What the coordinator writes about a waiting job: an offer with results, or a cancellation.

It is a pure function of the log up to some record, so every full node can derive it again and
compare (spec §7.3). A false offer can only waste work: who may claim, and which result counts, does
not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct

from antiphon.core.families.jobs.ops import CancelBody, Failure, OfferBody, Result
from antiphon.core.families.jobs.state import State
from antiphon.core.manifest import Manifest, results_read

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.proof.output import Output

RESULT: Final = "result"
"""The name of the output that is a handler's result."""
INLINE_EACH: Final = 16 * 1024
INLINE_TOTAL: Final = 64 * 1024
"""Bytes of results that travel in the offer itself; larger ones are stored beside the log."""
SHORT_ID: Final = 12


class Predecessor(Struct, frozen=True):
    """A job that another waits for, as far as the log tells."""

    job: Job
    outputs: tuple[Output, ...] = ()
    error: Failure | None = None


Look = Callable[[tuple[str, str]], Predecessor | None]
MayRead = Callable[[str, str], bool]
"""`may_read(node, kind)`: whether a node may read the jobs of a kind."""


class Derived(Struct, frozen=True):
    """What to write, and texts that have to be stored before: they are too long for the offer."""

    body: OfferBody | CancelBody
    to_store: tuple[str, ...] = ()


def derive(job: Job, manifest: Manifest, look: Look, may_read: MayRead) -> Derived | None:
    """What follows for a waiting job; None while it has to wait."""
    found: dict[tuple[str, str], Predecessor] = {}
    for key in job.awaited:
        before = look(key)
        if before is None or before.job.scheduled_seq >= job.waiting_seq:
            return _cancel(job, f"{_name(key)} was not submitted before it")
        found[key] = before
    failed = next((one for one in found.values() if _keeps_from_beginning(job, one.job)), None)
    if failed is not None:
        return _cancel(job, f"{_name((failed.job.kind, failed.job.id))} {_end(failed.job)}")
    if not all(one.job.is_terminal for one in found.values()):
        return None
    if job.continuations:
        return _offer(job, [_of_child(found[key]) for key in job.children])
    wanted: list[Output | Result] = []
    for one in results_read(manifest):
        name = RESULT if one.output is UNSET else str(one.output)
        before = found[one.of]
        output = next((each for each in before.outputs if each.name == name), None)
        if output is None:
            state = before.job.outcome if before.job.state is not State.SUCCEEDED else "succeeded"
            return _cancel(job, f"{_name(one.of)} {state} without an output named {name!r}")
        if not may_read(job.scheduler, one.of[0]):
            return _cancel(job, f"its submitter may not read jobs of kind {one.of[0]}")
        wanted.append(output)
    return _offer(job, wanted)


def _keeps_from_beginning(job: Job, before: Job) -> bool:
    if job.after_any_outcome or job.continuations or not before.is_terminal:
        return False
    return before.state is not State.SUCCEEDED


def _end(job: Job) -> str:
    return "was cancelled" if job.outcome == "cancelled" else f"ended as {job.outcome}"


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]} {key[1][:SHORT_ID]}"


def _cancel(job: Job, why: str) -> Derived:
    return Derived(CancelBody(kind=job.kind, job=job.id, reason=f"predecessor: {why}"))


def _of_child(child: Predecessor) -> Output | Result:
    if child.job.state is not State.SUCCEEDED:
        return Result(outcome=child.job.outcome, error=child.error)
    output = next((one for one in child.outputs if one.name == RESULT), None)
    return output or Result(text="null")  # a command has no result, only files


def _offer(job: Job, wanted: Sequence[Output | Result]) -> Derived:
    results, to_store, left = list[Result](), list[str](), INLINE_TOTAL
    for one in wanted:
        if isinstance(one, Result):
            results.append(one)
            continue
        size = one.size
        if one.text is not None and size <= min(INLINE_EACH, left):
            left -= size
            results.append(Result(text=one.text))
            continue
        if one.text is not None:
            to_store.append(one.text)
        results.append(Result(hash=one.hash, size=size))
    body = OfferBody(kind=job.kind, job=job.id, priority=job.priority, results=tuple(results))
    return Derived(body, tuple(to_store))
