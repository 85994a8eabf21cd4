"""One call of a handler: its arguments, its `JobContext`, and the output made of its result.

Arguments and results are JSON texts. Small ones travel in the records themselves; larger ones are
stored as artifacts, and the records name them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, ParamSpec, Protocol, TypeVar, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType

from antiphon.core.families.jobs.ops import DEGRADED, Failure, ScheduleBody
from antiphon.core.manifest import ARGUMENTS, BlobInput, Manifest, stored_arguments
from antiphon.core.proof.output import Output
from antiphon.core.tempo.phases import Phase
from antiphon.core.tempo.score import Waited
from antiphon.errors import GiveUp, Malformed, Misconfigured, Rejected
from antiphon.runtime.artifacts.store import Artifacts, JobName
from antiphon.runtime.executors.executor import Assignment, GivenBack
from antiphon.runtime.executors.run_services import Help, RunServices, Saved, WithoutWorker
from antiphon.runtime.executors.step import WITHIN, Ask, QuestionTerms, Step, Within
from antiphon.runtime.executors.usage_gauge import Seconds, reported
from antiphon.runtime.values.checkpoint_bytes import read_checkpoint, stored_size
from antiphon.runtime.values.later_values import fill, is_place
from antiphon.runtime.values.signature import plain_call, read_call
from antiphon.runtime.values.value_codec import PLAIN
from antiphon.telemetry import LazyLogger

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

RESULT: Final = "result"
JSON: Final = "application/json"
INLINE_BYTES: Final = 64 * 1024
"""Arguments and results up to this size travel in the record itself."""
ROOM_WAIT_S: Final = 300.0
"""How long a job waits for room for its arguments before it is given back; at most half of its
timeout."""


log = LazyLogger(__name__)


class Child(Struct, frozen=True, kw_only=True):
    """A job that this one waited for, and what became of it."""

    kind: str
    job_id: str
    outcome: str
    """`succeeded`, or in one word why it has no result."""
    error: Failure | None = None
    text: str | None = None
    """Its result as JSON."""
    is_answer: bool = False
    """Whether it was a question to people (`JobContext.ask`)."""

    def job_key(self) -> tuple[str, str]:
        """Its kind and its id: named again in `After`, its result comes again."""
        return self.kind, self.job_id

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        why = f": {self.error.name}: {self.error.message}" if self.error is not None else ""
        return f"{self.kind} {self.job_id[:8]}, ended as {self.outcome}{why}"


class Reads(Protocol[R_co]):
    """A task: knows its kind, and what a result's text says."""

    kind: str

    def decode_result(self, text: str | bytes) -> R_co:
        """The value of a result's text."""


class JobFacts(Struct, frozen=True, kw_only=True):
    """What a handler may know about the job it runs, as it is sent to another process."""

    kind: str
    job_id: str
    fence: str
    """Give this to every resource that the handler writes to, which then refuses lower ones."""
    attempt: int
    """1 for the first tenure of this job."""
    children: tuple[Child, ...] = ()
    """The jobs that it waited for last, and what became of each, in the order of `After`."""
    continuations: int = 0
    """How often it has waited for children; 0: it begins."""
    submitter: str = ""
    """For whom the job runs: the party that submitted it, as a did:key."""
    last_checkpoint: bytes | None = None
    """What the job's tenures before this one have stored with `checkpoint`; None: it begins."""


class StreamSoFar(Struct, frozen=True, kw_only=True):
    """What earlier runs of a job have stored of its stream."""

    stored: int = 0
    """How many parts: the next one that is yielded has this number."""
    last: Any = None
    """The last of them."""


class JobContext(JobFacts, frozen=True, kw_only=True):
    """What a handler may know about the job it runs, tell its worker, and ask of it."""

    run: RunServices = msgspec.field(default_factory=WithoutWorker)
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when the job is no longer this worker's; `stop.wait(seconds)` is a sleep that it ends."""
    stream: StreamSoFar = StreamSoFar()
    """For a handler that is an async generator: where the last run came to (docs/do/streams.md)."""
    open_steps: set[str] = msgspec.field(default_factory=set)
    """The names of the steps that are being computed."""
    asked: list[ScheduleBody] = msgspec.field(default_factory=list)
    """The questions that the job is about to wait for."""

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted: cancelled, timed out, or lost.

        Coroutines and processes are stopped. A thread cannot be, and should check this.
        """
        return self.stop.is_set()

    def results(self, task: Reads[R]) -> list[R] | None:
        """The results of the children of this task, in the order of `After`.

        None if the job has not waited for children yet. `GiveUp` if one of them ended without a
        result; `children` says how each of them ended.
        """
        if all(one.is_answer for one in self.children):
            return None
        own = [(at, one) for at, one in enumerate(self.children, 1) if one.kind == task.kind]
        for at, one in own:
            if one.text is None:
                raise GiveUp(f"child {at}, {one.ending}")
        return [task.decode_result(one.text or "") for _, one in own]

    def progress(self, done: float, note: str = "") -> None:
        """Report the job's progress, from 0 to 1; from any thread, as often as you like.

        It is not stored, and only the newest is sent.
        """
        self.run.progress(done, note)

    def used(self, *, gpu_sec: Seconds | None = None, accel_sec: Seconds | None = None) -> None:
        """Say what the job has used since you last said so, in seconds by device class.

        Only the handler knows how long it had a GPU or another accelerator, so this is kept as
        reported, not as measured; it counts against the job's budget and is part of its cost.
        `ValueError` if a class or a time cannot be right.
        """
        self.run.reported(reported(gpu_sec, accel_sec))

    # --- work so far ------------------------------------------------------------------------------

    def checkpoint(self, data: bytes) -> Saved:
        """Store what is done so far: the job's next tenure finds it in `last_checkpoint`.

        `await` the result to know that it is stored; in a thread or process call its `wait`. At
        most one is written in a beat, and then the newest. From any thread.
        """
        return self.run.checkpoint(data)

    @overload
    def step(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Step[T]: ...

    @overload
    def step(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Step[T]: ...

    def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Step[Any]:
        """Call a function and store its result: no later run of this job calls it again.

        `await` it; in a handler that is a plain function call its `wait`. Each step needs a name
        of its own: docs/do/steps.md.
        """
        return Step(self, name, function, args, kwargs)

    def ask(  # noqa: PLR0913 - what a question can say
        self,
        text: str,
        /,
        *,
        kind: str,
        name: str = "",
        choices: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
        within: Within = WITHIN,
        not_by: Sequence[str] = (),
        replicas: int | None = None,
        quorum: int | None = None,
    ) -> Ask:
        """Ask people, and wait for their answer without a worker; `NoAnswer` if there is none.

        `await` it; in a handler that is a plain function call its `wait`. The handler begins again
        when the answer is there. `kind` says who may answer, `name` tells the questions of one job
        apart (by default the kind), `within` is how long to wait. Choices, or a JSON Schema; else
        any text. `not_by` are parties that may not answer, besides this worker's own. For answers
        of several people `replicas` are asked, and `quorum` have to agree: docs/do/questions.md.
        """
        terms = QuestionTerms.of(
            text,
            kind=kind,
            choices=choices,
            schema=schema,
            within=within,
            not_by=not_by,
            replicas=replicas,
            quorum=quorum,
        )
        return Ask(self, name or kind, terms)

    def save_with(self, saver: Callable[[], bytes]) -> None:
        """Have this function asked for a checkpoint when the run is cut or given back.

        It is called in the worker's event loop, so it has to be quick, and must not wait for the
        handler.
        """
        self.run.save_with(saver)

    # --- time (docs/do/scores.md) -----------------------------------------------------------------

    @property
    def beat(self) -> int:
        """The present beat of the bar, from 1."""
        time, now_ms = self.run.time()
        return time.beat(now_ms)

    @property
    def phase(self) -> Phase:
        """`plan`, `work` or `review`: of the job's score, or without one of the bar."""
        time, now_ms = self.run.time()
        return time.phase(now_ms)

    @property
    def beats_left(self) -> int:
        """Beats until this run is cut; without a score, until the bar ends."""
        time, now_ms = self.run.time()
        return time.beats_left(now_ms)

    def next_phase(self) -> Phase:
        """Move on to the next phase of the score; the phase it is in then.

        From the first call on each phase has its own beats only: a run that uses them up is cut.
        """
        return self.run.next_phase()

    async def wait_for(self, awaited: Awaitable[T], budget: Waited = "io", *, name: str = "") -> T:
        """Wait no longer than the score's budget allows; `WaitExhausted` when it is used up.

        `io` is for each wait, `help` for all waits of a phrase together. Without a score there is
        no limit. Only in coroutines that run in the event loop.
        """
        return await self.run.wait_for(awaited, budget, name)

    def help(self, about: str) -> Help:
        """Ask whoever works on this kind for help, and work on; `await` it for the answer."""
        return self.run.help(about)


# --- arguments --------------------------------------------------------------------------------


def call_text(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """The arguments of a call, plain JSON, as the one argument of a manifest."""
    return plain_call(args, kwargs).decode()


def call_of(manifest: Manifest) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from a manifest that has them, as plain JSON."""
    if len(manifest.args) != 1:
        raise Malformed("a handler takes exactly one JSON argument", reason="manifest")
    try:
        call = read_call(manifest.args[0])
    except TypeError as wrong:
        raise Malformed(str(wrong), reason="manifest") from None
    named = {name: PLAIN.decode(raw) for name, raw in call.kwargs.items()}
    return [PLAIN.decode(raw) for raw in call.args], named


def inline_arguments(text: bytes) -> dict[str, Any] | None:
    """The fields of a manifest that has a call's arguments in it; None if they are too large."""
    return {"args": [text.decode()]} if len(text) <= INLINE_BYTES else None


async def keep_arguments(text: bytes, artifacts: Artifacts | None) -> dict[str, Any]:
    """The fields of a manifest that names a call's arguments, which are an artifact."""
    if artifacts is None:
        raise _no_artifacts()
    check_size(len(text), "the arguments have", artifacts.value_bytes)
    kept = await artifacts.keep_bytes(text, ARGUMENTS, media_type=JSON)
    given = {"kind": "blobptr", "algo": "blake3", "hash": kept.hash, "size": kept.size}
    return {"args": [], "inputs": [{**given, "name": ARGUMENTS}]}


def plain_arguments(assignment: Assignment) -> str | None:
    """The text of a job's arguments, if all of it is in its schedule and takes no room."""
    manifest = assignment.manifest
    is_plain = manifest.inputs is UNSET and assignment.checkpoint is None
    return manifest.args[0] if is_plain and len(manifest.args) == 1 else None


@asynccontextmanager
async def arguments_of(
    assignment: Assignment, artifacts: Artifacts | None, room: ValueRoom
) -> AsyncIterator[str | bytes]:
    """The text of a job's arguments, with the results of other jobs in their places.

    What is stored outside the log takes room while the block runs.
    """
    manifest, job = assignment.manifest, (assignment.kind, assignment.job_id)
    call = stored_arguments(manifest)
    if call is None and len(manifest.args) != 1:
        raise Malformed("a handler takes exactly one JSON argument", reason="manifest")
    given = () if isinstance(manifest.inputs, UnsetType) else manifest.inputs
    later = [one for one in given if isinstance(one, BlobInput) and is_place(one.name)]
    stored = [one for one in (call, *later) if one is not None]
    stored = [one for one in stored if one.hash not in assignment.texts]
    wait_s = manifest.timeout / 2 if manifest.timeout else ROOM_WAIT_S
    texts: dict[str, str | bytes] = dict(assignment.texts)
    async with AsyncExitStack() as stack:
        size = sum(map(_size, stored))
        if stored:
            if artifacts is None:
                raise _no_artifacts()
            check_size(size, "the arguments have", artifacts.value_bytes)
        if assignment.checkpoint is not None:
            size += assignment.checkpoint.size
        if size:
            await stack.enter_async_context(room.hold(size, wait_s=wait_s))
        if artifacts is not None:
            for one in stored:
                texts[one.hash] = await artifacts.read(one.hash, job=job, max_bytes=_size(one))
        text = manifest.args[0] if call is None else texts[call.hash]
        values = {str(one.name): texts[one.hash] for one in later}
        yield fill(text, values) if values else text


async def last_checkpoint_of(assignment: Assignment, artifacts: Artifacts | None) -> bytes | None:
    """What the tenures before have stored; None if there is nothing that can be used.

    A worker can name anything as a checkpoint. What is not stored, too large or no checkpoint of
    this job is left out, with a warning: then the job begins anew.
    """
    named, job = assignment.checkpoint, (assignment.kind, assignment.job_id)
    if named is None:
        return None
    if artifacts is None:
        raise _no_artifacts()
    most = stored_size(*job, artifacts.value_bytes)
    try:
        if named.size > most:
            raise Malformed(f"it has {named.size:,} bytes, the limit here is {most:,}")
        return read_checkpoint(*job, await artifacts.read(named.hash, job=job, max_bytes=most))
    except Rejected as problem:
        log.warning("checkpoint_not_usable", kind=job[0], job=job[1], problem=problem.message)
        return None


def _size(stored: BlobInput) -> int:
    if isinstance(stored.size, UnsetType):
        raise GiveUp(f"the input named {stored.name} does not say its size")
    return stored.size


# --- results ----------------------------------------------------------------------------------


async def keep_result(text: bytes, artifacts: Artifacts | None) -> Output:
    """The output that is a handler's result."""
    if len(text) <= INLINE_BYTES:
        return inline_output(RESULT, text.decode(), JSON)
    if artifacts is None:
        raise _no_artifacts()
    check_size(len(text), "the result has", artifacts.value_bytes)
    return await artifacts.keep_bytes(text, RESULT, media_type=JSON)


async def result_of(
    outputs: Sequence[Output], artifacts: Callable[[], Artifacts | None], *, job: JobName
) -> str | bytes | None:
    """The text of a handler's result; None for a command, which has none."""
    for output in outputs:
        # A command's file may have this name, too; that is not a result in JSON.
        if output.name == RESULT and output.type == JSON:
            if output.text is not None:
                return output.text
            return await read_stored(output, output.size, artifacts(), job)
    return None


def degraded_output(why: str, fallback: str = "") -> Output:
    """Says beside a result that it is not what the handler would have made in its own time."""
    by = f"the fallback {fallback}" if fallback else "the handler itself"
    return inline_output(DEGRADED, f"{why}; the result is by {by}", "text/plain")


def inline_output(name: str, text: str, media_type: str) -> Output:
    """A small output that travels inside the completion."""
    return Output(name=name, type=media_type, text=text)


# --- size -------------------------------------------------------------------------------------


def check_size(size: int, what: str, limit: int, form: str = " as JSON") -> None:
    """`Malformed` for a value that is too large to be one."""
    if size > limit:
        raise Malformed(
            f"{what} {size:,} bytes{form}; the limit here is {limit:,}",
            reason="value_size",
            hint="store the data as a file with mesh.artifacts.keep(path) and pass on its hash;"
            " the limit is ANTIPHON_VALUE_MB",
        )


class ValueRoom:
    """The bytes of stored arguments that one worker holds at once; whoever comes first is first."""

    def __init__(self, total: int) -> None:
        """`total` is at least the limit of one value."""
        self._total, self._held = total, 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    @asynccontextmanager
    async def hold(self, size: int, *, wait_s: float = ROOM_WAIT_S) -> AsyncIterator[None]:
        """Wait for room and take it while the block runs; `GivenBack` if none comes in time."""
        size = min(size, self._total)
        try:
            async with asyncio.timeout(min(wait_s, ROOM_WAIT_S)), self._turn:
                while self._held + size > self._total:
                    self._freed.clear()
                    await self._freed.wait()
                self._held += size
        except TimeoutError:
            raise GivenBack("the arguments of other jobs take up this worker's memory") from None
        try:
            yield
        finally:
            self._held -= size
            self._freed.set()


async def read_stored(
    found: Output | str, size: int, artifacts: Artifacts | None, job: JobName
) -> bytes:
    """The text of a value that is an artifact, of this size at most."""
    if artifacts is None:
        raise _no_artifacts()
    check_size(size, "the result has", artifacts.value_bytes)
    return await artifacts.read(found, job=job, max_bytes=size)


def _no_artifacts() -> Misconfigured:
    return Misconfigured("this value is stored as an artifact, and no artifact store is known here")
