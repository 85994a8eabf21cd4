"""What the coordinator writes about a waiting job: an offer with results, or a cancellation.

It is a pure function of the log up to some record, so every full node can derive it again and
compare (spec §7.3). A false offer can only waste work: who may claim, and which result counts, does
not depend on it.

The coordinator reads other jobs for somebody: for the job's submitter, and for the worker that gave
the job back until its children have ended. Both must be allowed to read what it waits for. If one
of them is not, the job is cancelled, with the same words whether the other job exists, runs or has
ended: otherwise those words would tell.

An offer fits into a record, however many jobs it repeats and whatever their workers wrote: texts
and errors are measured as they are encoded, and share a number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.core.families.jobs.ops import CancelBody, Failure, OfferBody, Result
from antiphon.core.families.jobs.state import State
from antiphon.core.manifest import Manifest, results_read
from antiphon.core.record import codec

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.proof.output import Output

RESULT: Final = "result"
"""The name of the output that is a handler's result."""
INLINE_EACH: Final = 16 * 1024
INLINE_TOTAL: Final = 64 * 1024
"""Bytes of results that travel in the offer itself; larger ones are stored beside the log."""
ERROR_EACH: Final = 2 * 1024
ERRORS_TOTAL: Final = 32 * 1024
"""Bytes of what went wrong in children; each has an equal share, and is cut to it."""
FOUND_AT_ONCE: Final = 64
SHORT_ID: Final = 12
MAX_REASON: Final = 1_000
"""Characters of a reason: some of its words are others' names."""
_CUT: Final = "…"


class Predecessor(Struct, frozen=True):
    """A job that another waits for, as far as the log tells."""

    job: Job
    outputs: tuple[Output, ...] = ()
    error: Failure | None = None
    is_forgotten: bool = False
    """Whether it was forgotten before the other was submitted, which then gets nothing of it."""


Find = Callable[[tuple[str, str]], "Job | None"]
Look = Callable[["Job"], Predecessor]
"""Reads how a job ended; its outputs may be large, so one is read at a time."""
MayRead = Callable[[str, str], bool]
"""`may_read(node, kind)`: whether a node may read the jobs of a kind."""


class Waiter(Struct, frozen=True):
    """A waiting job, and who waits with it."""

    job: Job
    yielded_by: str = ""
    """The worker that gave it back until its children have ended; empty: it has not begun."""

    def unread_kind(self, may_read: MayRead) -> tuple[str, str] | None:
        """Somebody who may not read what the job waits for, and the kind; None: all may."""
        readers = dict.fromkeys((self.job.scheduler, self.yielded_by or self.job.scheduler))
        kinds = dict.fromkeys(kind for kind, _ in self.job.awaited)
        refused = ((who, kind) for kind in kinds for who in readers if not may_read(who, kind))
        return next(refused, None)


class Derived(Struct, frozen=True):
    """What to write, and texts that have to be stored before: they are too long for the offer."""

    body: OfferBody | CancelBody
    to_store: tuple[tuple[tuple[str, str], str], ...] = ()
    """The job and the output that each text is of: all of them at once may be too much."""


def derive(
    waiter: Waiter, manifest: Manifest | None, find: Find, look: Look, may_read: MayRead
) -> Derived | None:
    """What follows for a waiting job; None while it has to wait.

    Its manifest is needed only if it reads results of others (`Job.results_read`).
    """
    steps = derive_in_steps(waiter, manifest, find, look, may_read)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            derived: Derived | None = end.value
            return derived


def derive_in_steps(
    waiter: Waiter, manifest: Manifest | None, find: Find, look: Look, may_read: MayRead
) -> Generator[None, None, Derived | None]:
    """The same, with pauses: there may be a thousand jobs to look up, and to read."""
    job = waiter.job
    unread = waiter.unread_kind(may_read)
    if unread is not None:
        who = "submitter" if unread[0] == job.scheduler else "worker"
        return _cancel(job, f"its {who} may not read jobs of kind {unread[1]}")
    found: dict[tuple[str, str], Job] = {}
    for at, key in enumerate(job.awaited, start=1):
        if at % FOUND_AT_ONCE == 0:
            yield
        before = find(key)
        if before is None or before.scheduled_seq >= job.waiting_seq:
            return _cancel(job, f"{_name(key)} was not submitted before it")
        found[key] = before
    failed = next((one for one in found.values() if _keeps_from_beginning(job, one)), None)
    if failed is not None:
        return _cancel(job, f"{_name((failed.kind, failed.id))} {_end(failed)}")
    if not all(one.is_terminal for one in found.values()):
        return None
    return (yield from _with_results(job, manifest, found, look))


def _with_results(
    job: Job, manifest: Manifest | None, found: Mapping[tuple[str, str], Job], look: Look
) -> Generator[None, None, Derived]:
    """The offer, once everything that the job waits for has ended."""
    if job.continuations:
        failures = sum(one.state is not State.SUCCEEDED for one in found.values())
        results = _Results(failures)
        for key in job.children:
            is_answer = found[key].question is not None
            child = look(found[key])
            if child.is_forgotten:
                return _cancel(job, f"{_name(key)} was forgotten before it")
            results.add(key, results.of_child(child), is_answer=is_answer)
            yield
        return results.offer(job)
    results = _Results()
    for one in results_read(manifest) if manifest is not None else ():
        name = RESULT if one.output is UNSET else str(one.output)
        before = found[one.of]
        end = look(before)
        if end.is_forgotten:
            return _cancel(job, f"{_name(one.of)} was forgotten before it")
        output = next((each for each in end.outputs if each.name == name), None)
        if output is None:
            state = before.outcome if before.state is not State.SUCCEEDED else "succeeded"
            return _cancel(job, f"{_name(one.of)} {state} without an output named {name!r}")
        results.add(one.of, output)
        yield
    return results.offer(job)


def cannot_be_offered(job: Job, why: str) -> Derived:
    """The end of a job whose offer nobody would accept."""
    return _cancel(job, f"it cannot be offered: {why}")


def _keeps_from_beginning(job: Job, before: Job) -> bool:
    if job.after_any_outcome or job.continuations or not before.is_terminal:
        return False
    return before.state is not State.SUCCEEDED


def _end(job: Job) -> str:
    return "was cancelled" if job.outcome == "cancelled" else f"ended as {job.outcome}"


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]} {key[1][:SHORT_ID]}"


def _cancel(job: Job, why: str) -> Derived:
    reason = f"predecessor: {why}"[:MAX_REASON]
    return Derived(CancelBody(kind=job.kind, job=job.id, reason=reason))


class _Results:
    """The results of an offer, in order, and what is too long for it."""

    def __init__(self, failures: int = 0) -> None:
        self._results: list[Result] = []
        self._to_store: list[tuple[tuple[str, str], str]] = []
        self._left = INLINE_TOTAL
        self._error_room = min(ERROR_EACH, ERRORS_TOTAL // max(failures, 1))

    def of_child(self, child: Predecessor) -> Output | Result:
        """What a job learns about a child."""
        if child.job.state is not State.SUCCEEDED:
            return Result(outcome=child.job.outcome, error=_cut(child.error, self._error_room))
        output = next((one for one in child.outputs if one.name == RESULT), None)
        return output or Result(text="null")  # a command has no result, only files

    def add(self, of: tuple[str, str], one: Output | Result, *, is_answer: bool = False) -> None:
        """The next result, which is an output of this job."""
        if isinstance(one, Result):
            self._results.append(replace(one, is_answer=is_answer) if is_answer else one)
            return
        size = _encoded_size(one.text) if one.text is not None else 0
        if one.text is not None and size <= min(INLINE_EACH, self._left):
            self._left -= size
            self._results.append(Result(text=one.text, is_answer=is_answer))
        else:
            if one.text is not None:
                self._to_store.append((of, one.name))
            self._results.append(Result(hash=one.hash, size=one.size, is_answer=is_answer))

    def offer(self, job: Job) -> Derived:
        """The offer that carries them."""
        results = tuple(self._results)
        body = OfferBody(kind=job.kind, job=job.id, priority=job.priority, results=results)
        return Derived(body, tuple(self._to_store))


def _encoded_size(text: str) -> int:
    """Bytes in a record: a character may take six."""
    return len(codec.encode(text))


def _cut(error: Failure | None, room: int) -> Failure | None:
    """What went wrong in so many bytes, and without its traceback: first of all its name."""
    if error is None:
        return None
    name = _cut_text(error.name, room)
    return Failure(name=name, message=_cut_text(error.message, room - _encoded_size(name)))


def _cut_text(text: str, room: int) -> str:
    """The beginning of a text that takes no more than these bytes, or next to nothing."""
    if not text or _encoded_size(text) <= room:
        return text
    fits, too_many = 0, len(text)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _encoded_size(text[:middle] + _CUT) <= room:
            fits = middle
        else:
            too_many = middle
    return text[:fits] + _CUT
