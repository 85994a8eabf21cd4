"""What the coordinator writes about a waiting job: an offer with results, or a cancellation.

It is a pure function of the log up to some record, so every full node can derive it again and
compare (spec §7.3). A false offer can only waste work: who may claim, and which result counts, does
not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

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


Find = Callable[[tuple[str, str]], "Job | None"]
Look = Callable[["Job"], Predecessor]
"""Reads how a job ended; its outputs may be large, so one is read at a time."""
MayRead = Callable[[str, str], bool]
"""`may_read(node, kind)`: whether a node may read the jobs of a kind."""


class Derived(Struct, frozen=True):
    """What to write, and texts that have to be stored before: they are too long for the offer."""

    body: OfferBody | CancelBody
    to_store: tuple[tuple[tuple[str, str], str], ...] = ()
    """The job and the output that each text is of: all of them at once may be too much."""


def derive(
    job: Job, manifest: Manifest, find: Find, look: Look, may_read: MayRead
) -> Derived | None:
    """What follows for a waiting job; None while it has to wait."""
    found: dict[tuple[str, str], Job] = {}
    for key in job.awaited:
        before = find(key)
        if before is None or before.scheduled_seq >= job.waiting_seq:
            return _cancel(job, f"{_name(key)} was not submitted before it")
        found[key] = before
    failed = next((one for one in found.values() if _keeps_from_beginning(job, one)), None)
    if failed is not None:
        return _cancel(job, f"{_name((failed.kind, failed.id))} {_end(failed)}")
    if not all(one.is_terminal for one in found.values()):
        return None
    results = _Results()
    if job.continuations:
        for key in job.children:
            results.add(key, _of_child(look(found[key])))
        return results.offer(job)
    for one in results_read(manifest):
        name = RESULT if one.output is UNSET else str(one.output)
        before = found[one.of]
        output = next((each for each in look(before).outputs if each.name == name), None)
        if output is None:
            state = before.outcome if before.state is not State.SUCCEEDED else "succeeded"
            return _cancel(job, f"{_name(one.of)} {state} without an output named {name!r}")
        if not may_read(job.scheduler, one.of[0]):
            return _cancel(job, f"its submitter may not read jobs of kind {one.of[0]}")
        results.add(one.of, output)
    return results.offer(job)


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
        return Result(outcome=child.job.outcome, error=_brief(child.error))
    output = next((one for one in child.outputs if one.name == RESULT), None)
    return output or Result(text="null")  # a command has no result, only files


def _brief(error: Failure | None) -> Failure | None:
    """Without its traceback: an offer has room for the errors of many children."""
    return None if error is None else replace(error, traceback="")


class _Results:
    """The results of an offer, in order, and what is too long for it."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._to_store: list[tuple[tuple[str, str], str]] = []
        self._left = INLINE_TOTAL

    def add(self, of: tuple[str, str], one: Output | Result) -> None:
        """The next result, which is an output of this job."""
        if isinstance(one, Result):
            self._results.append(one)
        elif one.text is not None and one.size <= min(INLINE_EACH, self._left):
            self._left -= one.size
            self._results.append(Result(text=one.text))
        else:
            if one.text is not None:
                self._to_store.append((of, one.name))
            self._results.append(Result(hash=one.hash, size=one.size))

    def offer(self, job: Job) -> Derived:
        results = tuple(self._results)
        body = OfferBody(kind=job.kind, job=job.id, priority=job.priority, results=results)
        return Derived(body, tuple(self._to_store))
