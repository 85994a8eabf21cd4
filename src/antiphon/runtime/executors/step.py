"""Steps and questions: what is stored once for a job, so that no later run does it again.

    page = await ctx.step("fetch", fetch, url)

A step has a name, unique in its job. Its result is stored before it is returned, in a record of
the job's own lane. When the job is run again, wherever that is, the step returns what was stored.
Arguments and result are encoded by the function's annotations, as those of a task are. The
arguments are kept as a digest: the same name with other arguments is an error, not a second step.

    answer = await ctx.ask("deploy?", kind="approve.deploy", choices=("yes", "no"))

A question is a job that people answer. While it is open its job waits on the log and holds no
worker: `ask` leaves the handler by `Asking`, which is no `Exception`, so that the handler's own
`except Exception` does not catch it. When the answer is there the handler begins again, and finds
the answer, which is then stored as a step.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec
from blake3 import blake3
from msgspec import Struct

from antiphon.core.families.jobs.ops import MAX_ARTIFACT_NAME, ScheduleBody
from antiphon.core.families.jobs.questions import question_manifest
from antiphon.core.manifest import NonceInput, job_id
from antiphon.core.proof.answer import Question, answer_problem, question_digest, question_problem
from antiphon.core.record.ids import digest
from antiphon.core.record.subjects import check_kind
from antiphon.errors import GiveUp, Malformed, Misconfigured, NoAnswer, StaleFence
from antiphon.runtime.executors.failure import given_up
from antiphon.runtime.executors.handler_exits import in_thread
from antiphon.runtime.executors.run_services import RunServices, StoredStep, WithoutWorker
from antiphon.runtime.values.durations import seconds
from antiphon.runtime.values.signature import CallSignature

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

T = TypeVar("T")

_ADVICE: Final = 'give each step a name of its own, such as f"fetch {url}"'


class StepCaller(Protocol):
    """The handler that takes steps: what a step needs of its `JobContext`."""

    @property
    def run(self) -> RunServices:
        """Where the results are."""

    @property
    def stop(self) -> threading.Event:
        """Set when the job is no longer this worker's."""

    @property
    def open_steps(self) -> set[str]:
        """The names of those that are being computed."""


class Once(Generic[T]):
    """What a job does once: `await` it, or call `wait` in a handler that is a plain function."""

    _is_begun = False
    _word = "step"
    _typed = "ctx.step"

    def __init__(self, caller: StepCaller, name: str, stored_as: str) -> None:
        if not name or len(stored_as) > MAX_ARTIFACT_NAME:
            raise GiveUp(f"a {self._word}'s name is a text of 1 to {MAX_ARTIFACT_NAME} characters")
        self.name = name
        self._stored_as = stored_as
        self._caller = caller

    def __await__(self) -> Generator[Any, None, T]:
        self._is_begun = True
        return self._value().__await__()

    async def _value(self) -> T:
        raise NotImplementedError

    def _begin_in_thread(self) -> None:
        self._is_begun = True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise Misconfigured(
            f"the {self._word} {self.name!r} would block the event loop",
            hint=f'in a coroutine: await {self._typed}("{self.name}", ...)',
        )

    @contextmanager
    def _open(self) -> Iterator[None]:
        caller = self._caller
        if caller.stop.is_set():
            raise StaleFence(
                f"the {self._word} {self.name!r} was not begun: the job is no longer ours"
            )
        if self._stored_as in caller.open_steps:
            raise GiveUp(f"the {self._word} {self.name!r} is running already: {_ADVICE}")
        caller.open_steps.add(self._stored_as)
        try:
            yield
        finally:
            caller.open_steps.discard(self._stored_as)


class Step(Once[T]):
    """A step of a job: `await` it, or call `wait` in a handler that is a plain function."""

    def __init__(
        self,
        caller: StepCaller,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Made by `JobContext.step`; nothing is computed yet."""
        super().__init__(caller, name, name)
        self._function = function
        self._args = args
        self._kwargs = kwargs
        with given_up:
            # A task is its function here: it runs in this job, and becomes no job of its own.
            plain = getattr(function, "function", function)
            self._signature = _signature_of(plain, f"the step {name!r}")
            self._of = digest(self._signature.encode(args, kwargs))

    def wait(self) -> T:
        """The same in a thread or a process, blocking; not in a coroutine, which has to `await`."""
        self._begin_in_thread()
        with self._open():
            stored = self._caller.run.find_step(self.name).result()
            if stored is not None:
                return self._read(stored)
            value = self._function(*self._args, **self._kwargs)
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise GiveUp(
                    f"the step {self.name!r} calls a coroutine function, and the handler is a plain"
                    " function: make the handler 'async def' and await the step"
                )
            self._caller.run.store_step(self.name, self._written(value)).result()
            return value  # type: ignore[no-any-return]

    async def _value(self) -> T:
        with self._open():
            stored = await asyncio.wrap_future(self._caller.run.find_step(self.name))
            if stored is not None:
                return self._read(stored)
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(*self._args, **self._kwargs)
            else:
                # In a thread: what blocks must not stop the other jobs of this worker.
                value = await in_thread(partial(self._function, *self._args, **self._kwargs))
                if inspect.isawaitable(value):
                    value = await value
            step = self._written(value)
            await asyncio.wrap_future(self._caller.run.store_step(self.name, step))
            return value  # type: ignore[no-any-return]

    def _read(self, stored: StoredStep) -> T:
        if stored.of != self._of:
            raise GiveUp(
                f"the step {self.name!r} was stored with other arguments than it has now: {_ADVICE}"
            )
        with given_up:
            return self._signature.decode_result(stored.text)  # type: ignore[no-any-return]

    def _written(self, value: Any) -> StoredStep:
        with given_up:
            return StoredStep(of=self._of, text=self._signature.encode_result(value).decode())

    def __del__(self) -> None:
        if not self._is_begun and getattr(self, "_signature", None) is not None:
            warnings.warn(
                f"the step {self.name!r} was never awaited: it did not run",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )


def _signature_of(function: Callable[..., Any], name: str) -> CallSignature:
    try:
        return CallSignature(function, name=name)
    except ValueError:  # a builtin that does not say how it is called
        return CallSignature(_anyhow, name=name)


def _anyhow(*args: Any, **kwargs: Any) -> Any:
    """How a function is called that does not say so: with plain JSON."""


# --- questions ----------------------------------------------------------------------------------

Within = float | timedelta | str
WITHIN: Final = "2d"
_CONTEXT: Final = b"antiphon question\n"
_NONCE_DIGITS: Final = 32


class Asking(BaseException):
    """Leaves a handler whose question has no answer yet; not for handlers to catch."""


class AskedChild(Protocol):
    """A job that this one waited for, and what became of it."""

    @property
    def outcome(self) -> str:
        """`succeeded`, or in one word why it has no result."""

    @property
    def text(self) -> str | None:
        """Its result as JSON."""

    def job_key(self) -> tuple[str, str]:
        """Its kind and its id."""


class AskCaller(StepCaller, Protocol):
    """The handler that asks."""

    @property
    def kind(self) -> str:
        """Of its own job."""

    @property
    def job_id(self) -> str:
        """The same."""

    @property
    def children(self) -> Sequence[AskedChild]:
        """The jobs that it waited for last."""

    @property
    def asked(self) -> list[ScheduleBody]:
        """The questions that it is about to wait for."""


class QuestionTerms(Struct, frozen=True, kw_only=True):
    """A question, whom it is for, and how long it is open."""

    kind: str
    question: Question
    within_s: float
    replicas: int | None = None
    quorum: int | None = None

    @classmethod
    def of(  # noqa: PLR0913 - what a question can say
        cls,
        text: str,
        *,
        kind: str,
        choices: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
        within: Within = WITHIN,
        needs: str | None = None,
        not_by: Sequence[str] = (),
        replicas: int | None = None,
        quorum: int | None = None,
    ) -> QuestionTerms:
        """Checked; `Malformed` if nobody could answer it."""
        check_kind(kind)
        if isinstance(choices, str):
            raise Malformed(f'choices are a list of texts: choices=("{choices}", ...)')
        given = {
            "text": text,
            "choices": tuple(choices),
            "schema": None if schema is None else msgspec.json.encode(schema).decode(),
            "needs": needs,
            "not_by": tuple(not_by),
        }
        try:
            question = msgspec.convert(given, Question)
        except msgspec.ValidationError as wrong:
            raise Malformed(f"this cannot be asked: {wrong}", reason="question") from wrong
        problem = question_problem(question)
        if problem:
            raise Malformed(f"this cannot be asked: {problem}", reason="question")
        return cls(
            kind=kind,
            question=question,
            within_s=seconds(within),
            replicas=replicas,
            quorum=quorum,
        )

    def body(self, nonce: NonceInput, now_ms: int) -> ScheduleBody:
        """What submits it."""
        return ScheduleBody(
            kind=self.kind,
            manifest=question_manifest(self.question, nonce),
            start_by=now_ms + round(self.within_s * 1000),
            replicas=self.replicas,
            quorum=self.quorum,
            question=self.question,
        )


class Ask(Once[Any]):
    """A question of a job: `await` it, or call `wait` in a handler that is a plain function."""

    _word = "question"
    _typed = "ctx.ask"

    def __init__(self, caller: AskCaller, name: str, terms: QuestionTerms) -> None:
        """Made by `JobContext.ask`; nobody is asked yet."""
        super().__init__(caller, name, f"question {name}")
        self._asks = caller
        self._terms = terms
        words = f"{caller.kind}\n{caller.job_id}\n{name}".encode()
        nonce = blake3(_CONTEXT + words).hexdigest()[:_NONCE_DIGITS]
        self._nonce = NonceInput(nonce=nonce, origin="child")
        self._of = question_digest(terms.question)
        manifest = question_manifest(terms.question, self._nonce)
        self._key = (terms.kind, job_id(manifest))

    def wait(self) -> Any:
        """The same in a thread or a process; not in a coroutine, which has to `await`."""
        self._begin_in_thread()
        with self._open():
            stored = self._caller.run.find_step(self._stored_as).result()
            if stored is None:
                stored = self._found()
                if stored is None:
                    self._leave()
                    raise Asking
                self._caller.run.store_step(self._stored_as, stored).result()
            return self._read(stored)

    async def _value(self) -> Any:
        with self._open():
            stored = await asyncio.wrap_future(self._caller.run.find_step(self._stored_as))
            if stored is None:
                stored = self._found()
                if stored is None:
                    self._leave()
                    await asyncio.sleep(0)  # others may be asked at the same time
                    raise Asking
                await asyncio.wrap_future(self._caller.run.store_step(self._stored_as, stored))
            return self._read(stored)

    def _found(self) -> StoredStep | None:
        """What became of the question, if the job has waited for it."""
        for one in self._asks.children:
            if one.job_key() == self._key:
                text = one.text if one.outcome == "succeeded" else None
                said = {"answer": msgspec.json.decode(text)} if text else {"none": one.outcome}
                return StoredStep(self._of, msgspec.json.encode(said).decode())
        return None

    def _leave(self) -> None:
        run = self._caller.run
        if isinstance(run, WithoutWorker):
            raise Misconfigured(
                f"nobody can be asked {self.name!r}: the task was called directly",
                hint="submit it to a mesh",
            )
        self._asks.asked.append(self._terms.body(self._nonce, run.time()[1]))

    def _read(self, stored: StoredStep) -> Any:
        if stored.of != self._of:
            raise GiveUp(
                f"the question {self.name!r} was asked in other words before: give each question"
                ' a name of its own, such as name="second approval"'
            )
        said = msgspec.json.decode(stored.text)
        if "answer" not in said:
            outcome = said["none"]
            why = "in time" if outcome == "expired" else f"(it ended as {outcome})"
            raise NoAnswer(f"nobody answered the question {self.name!r} {why}", reason=outcome)
        problem = answer_problem(self._terms.question, msgspec.json.encode(said["answer"]).decode())
        if problem:
            raise GiveUp(f"the answer to {self.name!r} cannot be used: {problem}")
        return said["answer"]

    def __del__(self) -> None:
        if not self._is_begun and getattr(self, "_key", None) is not None:
            warnings.warn(
                f"the question {self.name!r} was never awaited: nobody was asked",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )


def is_asking(error: BaseException) -> bool:
    """Whether a handler was left by its questions alone."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_asking, error.exceptions))
    return isinstance(error, Asking)
