"""Graphs as plain code: steps that use the results of other steps, submitted together.

    async with mesh.graph() as g:
        page = g.add(fetch, "https://example.org")
        words = g.add(count, page)              # begins when the page is there
        total = g.add(combine, g.map(count, pages))
    print(await g.result(total))

Adding a step checks it and sends nothing. The end of the block submits everything, predecessors
first; an error inside the block submits nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, overload

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core.manifest import MAX_INPUTS, BlobInput, Input, Manifest, ResultInput, job_id
from antiphon.core.proof.output import Output
from antiphon.core.record.subjects import check_kind
from antiphon.errors import AntiphonError, Misconfigured, PartlySubmitted
from antiphon.runtime.executors.handler_call import inline_arguments, keep_arguments
from antiphon.runtime.values.later_values import LaterValue, encode_call
from antiphon.sdk.call_options import Scheduling, fresh_nonce, merged
from antiphon.sdk.command_job import command, with_inputs
from antiphon.sdk.defaults import TIMEOUT_S
from antiphon.sdk.graphs.step import CommandStep, Plan, Step, StepOutput, plan_of
from antiphon.sdk.manifests.authored_manifest import again
from antiphon.sdk.many.bound_calls import Caller, gather

if TYPE_CHECKING:
    from typing import Self

    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.call_options import CallOptions, Duration
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.many.bound_calls import Call

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)

MAX_RESULTS: Final = MAX_INPUTS - 2
"""Results that one step can use; the other two inputs are its nonce and large arguments."""


class AnyTask(Protocol[P, R_co]):
    """A task, of a mesh or of a blocking one."""

    kind: str
    signature: CallSignature
    scheduling: Scheduling

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """A call that is not submitted yet."""


class TaskOfOne(Protocol[A_contra, R_co]):
    """A task that takes one argument."""

    kind: str
    signature: CallSignature
    scheduling: Scheduling

    def bind(self, item: A_contra, /) -> Call[R_co]:
        """A call that is not submitted yet."""


class _Called(Plan):
    """A step that calls a task: its arguments, and where results belong among them."""

    text: bytes
    places: Mapping[str, Plan]


class _Commanded(Plan):
    """A step that runs a command: its manifest without inputs, and the inputs by name."""

    content: Manifest
    files: Mapping[str, object]


class GraphPlan:
    """The steps of a graph: what adding them means, whoever submits them."""

    def __init__(self) -> None:
        """Begin empty."""
        self._steps: list[_Called | _Commanded] = []
        self._state: Literal["open", "submitted", "abandoned"] = "open"

    def add(self, task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """A step that calls a task; stands for its result in the arguments of further steps.

        Options are the task's own: `g.add(render.options(priority="high"), page)`.
        """
        step: R = self._call(task, args, kwargs)
        return step

    def map(self, task: TaskOfOne[A, R], items: Iterable[A]) -> list[R]:
        """One step for each item, in their order: results of other steps, or values."""
        if isinstance(items, Step):
            raise Misconfigured(
                f"{items!r} has no items yet, so there cannot be a step for each of them",
                hint="do it in a task that ends with 'raise After([task.bind(one) for one in …])'",
            )
        return [self._call(task, (item,), {}) for item in items]

    def command(  # noqa: PLR0913 - one argument per field of a manifest
        self,
        kind: str,
        words: Sequence[str],
        *,
        inputs: Mapping[str, object] | None = None,
        outputs: Sequence[str] = (),
        secrets: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        network: bool = False,
        timeout: int | str = TIMEOUT_S,
        options: CallOptions | None = None,
    ) -> CommandStep:
        """A step that runs a command (docs/do/commands.md).

        `inputs` are by the name under which the command finds them: the path of a file, an output
        of another command (`build.output("app.tar")`, or `build` if it has that name there), or a
        step, whose result it finds as JSON. It is tried once, unless `options` say otherwise.
        """
        chosen = Scheduling.of(merged({"attempts": 1}, options or {}))
        step = _Commanded(self, self._next(), check_kind(kind), chosen)
        step.files = dict(inputs or {})
        for name, given in step.files.items():
            plan = plan_of(given.step if isinstance(given, StepOutput) else given)
            if plan is not None:
                self._check_own(step, plan, f"input {name!r}")
            elif not isinstance(given, (str, Path, Output)):
                raise TypeError(
                    f"input {name!r} of {step.name} is a file, an output or a step, not {given!r}"
                )
        try:
            step.content = command(
                words,
                outputs=outputs,
                secrets=secrets,
                env=env,
                cwd=cwd,
                network=network,
                timeout=timeout,
            )
        except AntiphonError as problem:
            problem.message = f"{step.name}: {problem.message}"
            problem.args = (problem.message,)
            raise
        self._keep(step, len(step.files))
        return CommandStep(step)

    def __len__(self) -> int:
        """How many steps it has."""
        return len(self._steps)

    # --- checks -------------------------------------------------------------------------------

    def _call(self, task: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        _check_task(task)
        plan = _Called(self, self._next(), task.kind, task.scheduling, task.signature)
        named: dict[str, Plan] = {}

        def later(where: str, value: object) -> object:
            if isinstance(value, CommandStep):
                raise TypeError(f"{where} of {plan.name}: {value!r} makes files, and no value")
            if isinstance(value, Step):
                return _later(self._check_own(plan, value.__plan__, where), named)
            if isinstance(value, (list, tuple)) and any(isinstance(one, Step) for one in value):
                return [later(where, one) for one in value]
            return value

        given = [later(f"argument {at}", one) for at, one in enumerate(args, start=1)]
        by_name = {name: later(f"argument {name!r}", one) for name, one in kwargs.items()}
        try:
            plan.text, places = encode_call(task.signature, given, by_name)
        except TypeError as wrong:
            raise TypeError(
                f"{plan.name}: {_explained(wrong, (*args, *kwargs.values()))}"
            ) from None
        plan.places = {place: named[value.job_id] for place, value in places.items()}
        self._keep(plan, len(places))
        return Step(plan)

    def _next(self) -> int:
        if self._state != "open":
            raise Misconfigured(
                f"this graph is {self._state}, so no step can be added to it",
                hint="add steps inside the block of a new graph",
            )
        return len(self._steps) + 1

    def _check_own(self, step: Plan, used: Plan, where: str) -> Plan:
        if used.graph is not self:
            raise Misconfigured(
                f"{where} of {step.name} is {used.name} of another graph",
                hint="add it to this graph, or take its result first: await other.result(step)",
            )
        return used

    def _keep(self, step: _Called | _Commanded, results: int) -> None:
        if results > MAX_RESULTS:
            raise Misconfigured(
                f"{step.name} uses {results:,} results; one step can use {MAX_RESULTS:,}",
                hint="combine them in groups, and then the groups",
            )
        for one in step.scheduling.after:
            plan = plan_of(one)
            if plan is not None and not plan.id:
                self._check_own(step, plan, "'after'")
        self._steps.append(step)

    def _plan(self, step: object) -> Plan:
        plan = plan_of(step)
        if plan is None:
            raise TypeError(f"{step!r} is not a step of a graph")
        if plan.graph is not self:
            raise Misconfigured(f"{plan.name} is a step of another graph")
        if self._state == "abandoned":
            raise Misconfigured(f"{plan.name} was not submitted: its block ended with an error")
        return plan

    def _handle(self, step: object) -> JobHandle[Any]:
        plan = self._plan(step)
        if plan.handle is None:
            plan.job_key()
            raise Misconfigured(f"{plan.name} was not submitted: the graph was in part only")
        return plan.handle

    async def _result(self, step: R, limit: Duration | None) -> R:
        """The result of a step, or of each step of a list."""
        given: Any = step
        found: Any
        if isinstance(given, list):
            found = await gather(*(self._handle(one) for one in given), timeout=limit)
        else:
            found = await self._handle(given).result(limit)
        return found  # type: ignore[no-any-return]

    # --- submitting ---------------------------------------------------------------------------

    async def submit(self, connection: Connection) -> None:
        """Store what the steps need and put all of them on the log; done by the block's end."""
        self._next()
        self._state = "submitted"
        bodies = []
        for step in self._steps:
            try:
                bodies.append(await self._body(step, connection))
            except AntiphonError as problem:
                problem.message = f"{step.name}: {problem.message}"
                problem.args = (problem.message,)
                raise
        caller = Caller(connection)
        try:
            found = await caller.submit_bodies(bodies)
        except PartlySubmitted as problem:
            known = {(one.kind, one.id): one for one in problem.submitted}
            for step in self._steps:
                there = known.get((step.kind, step.id))
                if there is not None:
                    step.handle = caller.handle_of(there, step.signature)
            problem.submitted = [one.handle for one in self._steps if one.handle is not None]
            raise
        for step, submitted in zip(self._steps, found, strict=True):
            step.handle = caller.handle_of_either(submitted, step.signature)

    async def _body(self, step: _Called | _Commanded, connection: Connection) -> ScheduleBody:
        if isinstance(step, _Called):
            content = await _call_manifest(step, connection)
        else:
            content = await _command_manifest(step, connection)
        step.id = job_id(content)
        now_ms = connection.session.wall.now_ms()
        return step.scheduling.body(step.kind, content, now_ms=now_ms)

    def abandon(self) -> None:
        """The block ended with an error: nothing is submitted."""
        self._state = "abandoned"


class Graph(GraphPlan):
    """A graph of a `Mesh`: `async with mesh.graph() as g`."""

    def __init__(self, connection: Connection) -> None:
        """Made by `Mesh.graph`."""
        super().__init__()
        self._connection = connection

    async def __aenter__(self) -> Self:
        self._next()
        _ = self._connection.opened  # not open: say so before anything is added
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.abandon()
            return
        await self.submit(self._connection)

    @overload
    def handle(self, step: CommandStep) -> JobHandle[None]: ...

    @overload
    def handle(self, step: R) -> JobHandle[R]: ...

    def handle(self, step: Any) -> JobHandle[Any]:
        """The handle of a step's job, after the block."""
        return self._handle(step)

    async def result(self, step: R, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - it says for what
        """Wait for a step's result, or for those of a list of steps, after the block.

        `JobFailed` if there is none, TimeoutError if it comes too late.
        """
        return await self._result(step, timeout)


def _check_task(task: object) -> None:
    """`Misconfigured` for what is no task, with what to write instead."""
    if all(hasattr(task, name) for name in ("kind", "scheduling", "signature")):
        return
    if inspect.iscoroutine(task):
        called = task.__name__
        task.close()
        raise Misconfigured(
            f"a step takes a task and its arguments, not a call: {called}(...) has begun already",
            hint=f"g.add({called}, ...)",
        )
    name = getattr(task, "__name__", None)
    if not callable(task) or name is None:
        raise Misconfigured(f"a step calls a task, and {task!r} is none", hint="g.add(task, ...)")
    raise Misconfigured(
        f"{name} is a plain function and no task, so no worker could run it",
        hint=f"""register it first: step = mesh.task("example.step")({name}), then"""
        " g.add(step, ...); or call it inside a task",
    )


def _later(plan: Plan, named: dict[str, Plan]) -> LaterValue:
    """A value for the encoder; which job it is of is known only when the graph is submitted."""
    named.setdefault(plan.name, plan)
    return LaterValue(plan.kind, plan.name)


def _explained(wrong: TypeError, values: Iterable[object]) -> str:
    if any(_is_deep(one, depth=0) for one in values):
        return (
            f"{wrong}. A step can be an argument, or an item of a list that is one and has nothing"
            " else in it"
        )
    return str(wrong)


DEEPEST: Final = 8


def _is_deep(value: object, *, depth: int) -> bool:
    """Whether a step is somewhere inside a value."""
    if isinstance(value, Step):
        return depth > 0
    if depth > DEEPEST:
        return False
    if isinstance(value, Mapping):
        return any(_is_deep(one, depth=depth + 1) for one in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_is_deep(one, depth=depth + 1) for one in value)
    return False


# --- manifests --------------------------------------------------------------------------------


async def _call_manifest(step: _Called, connection: Connection) -> Manifest:
    where = inline_arguments(step.text) or await keep_arguments(step.text, connection.artifacts)
    nonce = fresh_nonce(connection.session.entropy)
    content = step.scheduling.handler_call(step.kind, where, nonce)
    read = [ResultInput(of=one.job_key(), name=place) for place, one in step.places.items()]
    return _with(content, read)


async def _command_manifest(step: _Commanded, connection: Connection) -> Manifest:
    files, read = list[tuple[Path, str]](), list[Input]()
    for name, given in step.files.items():
        if isinstance(given, (str, Path)):
            files.append((Path(given), name))
        elif isinstance(given, Output):
            read.append(BlobInput(algo="blake3", hash=given.hash, size=given.size, name=name))
        elif isinstance(given, StepOutput):
            key = given.step.job_key()
            read.append(ResultInput(of=key, name=name, output=given.name))
        elif isinstance(given, CommandStep):
            read.append(ResultInput(of=given.job_key(), name=name, output=name))
        elif isinstance(given, Step):
            read.append(ResultInput(of=given.job_key(), name=name))
    content = await with_inputs(connection.artifacts, step.content, files)
    if not step.scheduling.once:
        content = again(content, fresh_nonce(connection.session.entropy).nonce)
    return _with(content, read)


def _with(content: Manifest, more: Sequence[Input]) -> Manifest:
    before = () if content.inputs is UNSET else tuple(content.inputs)
    return replace(content, inputs=(*before, *more)) if more else content


__all__ = ["MAX_RESULTS", "Graph", "GraphPlan"]
