"""`BlockingMesh`: the SDK's entry point where nothing is awaited.

    mesh = Mesh.open().blocking()           # at the top of a module: connects at its first use

    @mesh.task("example.add")
    def add(a: int, b: int) -> int: ...

    print(add.submit(2, 3).result())

    with Mesh.open().blocking() as mesh:    # or for the length of a block
        ...

Any thread may use it. A forked child opens it again by itself, with another key of the role;
handles from before the fork raise `Forked` there.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from antiphon.errors import Misconfigured
from antiphon.sdk.blocking.blocking_graph import BlockingGraph
from antiphon.sdk.blocking.blocking_handle import BlockingHandle
from antiphon.sdk.blocking.blocking_lock import BlockingLock
from antiphon.sdk.blocking.blocking_messages import BlockingMessageMethods
from antiphon.sdk.blocking.blocking_task import BlockingAsyncTask, BlockingTask
from antiphon.sdk.blocking.loop_thread import OpenContext, entered, forget_after_fork, iterate, run
from antiphon.sdk.defaults import CHANGES_SHOWN, ROLL_CALL_S, STALE_MS
from antiphon.sdk.locks.lock_methods import DEFAULT_SCOPE, TTL_S, WAIT_S
from antiphon.sdk.many.bound_calls import as_completed, gather
from antiphon.sdk.task import AsyncTask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Self, Unpack

    from antiphon.core.authority.rules import Rules
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.manifest import Manifest
    from antiphon.core.presence.cards import Card
    from antiphon.core.proof.output import Output
    from antiphon.core.tempo.messages import StatusClaim, TaskState
    from antiphon.core.tempo.policy import TempoPolicy
    from antiphon.ports import EngineInfo, Record
    from antiphon.runtime.executors.handlers import JobContext
    from antiphon.runtime.executors.hooks import Hook
    from antiphon.runtime.node.coordinator_watch import CoordinatorStatus
    from antiphon.runtime.presence.live_nodes import LiveNode
    from antiphon.runtime.presence.presence_changes import KeptChange
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.runtime.worker.worker import Worker
    from antiphon.sdk.blocking.blocking_task import BlockingTaskDecorator
    from antiphon.sdk.call_options import CallOptions, Duration, Scheduling, TaskOptions
    from antiphon.sdk.costs.cost_report import CostBy, CostReport
    from antiphon.sdk.locks.lock_methods import LockStatus, Ttl
    from antiphon.sdk.many.bound_calls import Call
    from antiphon.sdk.mesh import EngineName, Mesh
    from antiphon.sdk.plans.plan_methods import PlanStatus
    from antiphon.sdk.plans.triggers import Ending, Trigger
    from antiphon.sdk.task import Task
    from antiphon.sdk.tempo.report_methods import KeptReport
    from antiphon.sdk.tempo.tempo_methods import OnBeat, Tempo

P = ParamSpec("P")
R = TypeVar("R")


B = TypeVar("B", bound=BlockingTask[..., Any])


def _over(planned: Callable[[Task[..., Any]], object]) -> Callable[[B], B]:
    """A decorator of async tasks, over blocking ones."""

    def register(task: B) -> B:
        planned(task.unblocked)
        return task

    return register


async def _in_loop(register: Callable[[OnBeat], OnBeat], function: OnBeat) -> OnBeat:
    return register(function)


class BlockingWorker:
    """A worker that runs beside the block; what can be read of it from any thread."""

    def __init__(self, worker: Worker) -> None:
        """Made by `BlockingMesh.worker`."""
        self._worker = worker

    @property
    def done(self) -> int:
        """Jobs whose accepted end this worker has read."""
        return self._worker.done

    @property
    def busy(self) -> int:
        """Slots in use."""
        return self._worker.busy

    @property
    def did(self) -> str:
        """The key that it claims with."""
        return self._worker.did

    @property
    def kinds(self) -> list[str]:
        """The kinds that it runs."""
        return self._worker.kinds


class BlockingMesh(BlockingMessageMethods):
    """A mesh, seen from one process: `Mesh`, whose methods wait."""

    def __init__(self, mesh: Mesh) -> None:
        """Use `Mesh.blocking`."""
        self.mesh = mesh
        """The async mesh. They share tasks and hooks, but no connection."""
        self._is_closed = False
        self.forget()
        forget_after_fork(self)

    # --- life ---------------------------------------------------------------------------------

    def forget(self) -> None:
        """Begin anew, in a forked child: the connection and the lock are the parent's."""
        self._lock = threading.Lock()
        self._opened: OpenContext[Mesh] | None = None

    def __enter__(self) -> Self:
        self._is_closed = False
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Safe twice; `with` opens it again."""
        with self._lock:
            opened, self._opened = self._opened, None
            self._is_closed = True
        if opened is not None:
            opened.close()

    def _open(self) -> OpenContext[Mesh]:
        opened = self._opened
        if opened is not None and opened.is_open:
            return opened
        with self._lock:
            if self._is_closed:
                raise Misconfigured("this mesh is closed", hint="use it inside 'with mesh:'")
            opened = self._opened
            if opened is None or not opened.is_open:
                opened = self._opened = OpenContext(self.mesh.twin())
                opened.open()
            return opened

    @property
    def _here(self) -> Mesh:
        """The async mesh, open in this process."""
        return self._open().value

    @property
    def engine(self) -> EngineName:
        """The engine it uses."""
        return self.mesh.engine

    @property
    def kinds(self) -> list[str]:
        """The kinds that tasks are registered for."""
        return self.mesh.kinds

    @property
    def id(self) -> str:
        """The mesh's id."""
        return self._here.id

    @property
    def did(self) -> str:
        """The key that this process signs with."""
        return self._here.did

    @property
    def alias(self) -> str:
        """This process's alias on the mesh."""
        return self._here.alias

    # --- submitting ---------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> BlockingAsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> BlockingAsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> BlockingTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> BlockingTask[P, R]: ...

    @overload
    def task(self, kind: str = "", /, **options: Unpack[TaskOptions]) -> BlockingTaskDecorator: ...

    def task(self, kind: str | Callable[..., Any] = "", /, **options: Any) -> Any:
        """Register a function as the handler for `kind`, or for its own name: docs/tasks.md."""
        if not isinstance(kind, str):
            return self.wrap(self.mesh.task(kind))
        register = self.mesh.task(kind, **options)
        return lambda function: self.wrap(register(function))

    @overload
    def wrap(self, task: AsyncTask[P, R]) -> BlockingAsyncTask[P, R]: ...

    @overload
    def wrap(self, task: Task[P, R]) -> BlockingTask[P, R]: ...

    def wrap(self, task: Task[P, R]) -> BlockingTask[P, R]:
        """A task that was registered on an async mesh, with a `submit` that waits."""
        made = BlockingAsyncTask if isinstance(task, AsyncTask) else BlockingTask
        return made(self, task)

    def use(self, hook: Hook) -> None:
        """Wrap every run of this process's workers in a hook; the first is the outermost."""
        self.mesh.use(hook)

    def submit(
        self, kind: str, /, *args: object, options: CallOptions | None = None, **kwargs: object
    ) -> BlockingHandle[Any]:
        """Submit a task by its kind, without having its function here: plain JSON both ways."""
        opened = self._open()
        submitting = opened.value.submit(kind, *args, options=options, **kwargs)
        return BlockingHandle(opened, run(submitting))

    def submit_call(
        self,
        kind: str,
        text: bytes,
        scheduling: Scheduling,
        signature: CallSignature | None = None,
    ) -> BlockingHandle[Any]:
        """Submit a call by the text of its arguments; what `BlockingTask.submit` uses."""
        opened = self._open()
        submitting = opened.value.submit_call(kind, text, scheduling, signature)
        return BlockingHandle(opened, run(submitting))

    def submit_manifest(
        self,
        kind: str,
        job: Manifest | Mapping[str, object],
        *,
        options: CallOptions | None = None,
    ) -> BlockingHandle[Any]:
        """Submit a job by its manifest. The same manifest again is the same job."""
        opened = self._open()
        return BlockingHandle(opened, run(opened.value.submit_manifest(kind, job, options=options)))

    def again(self, job: Manifest) -> Manifest:
        """The same content as a new job: a fresh nonce is hashed with it."""
        return self._here.again(job)

    def job(
        self, kind: str, job_id: str = "", signature: CallSignature | None = None
    ) -> BlockingHandle[Any]:
        """A handle on a job, by its kind and id, or by its id alone: `Mesh.job`."""
        opened = self._open()
        return BlockingHandle(opened, opened.value.job(kind, job_id, signature))

    def jobs(
        self, *, state: str | Iterable[str] = (), kind: str = "", limit: int = 20
    ) -> list[Job]:
        """The newest jobs that this machine can read: `Mesh.jobs`."""
        return run(self._here.jobs(state=state, kind=kind, limit=limit))

    # --- many ---------------------------------------------------------------------------------

    def bind(
        self, kind: str, /, *args: object, options: CallOptions | None = None, **kwargs: object
    ) -> Call[Any]:
        """A call that is not submitted yet, of a task by its kind."""
        return self.mesh.bind(kind, *args, options=options, **kwargs)

    def submit_many(self, calls: Iterable[Call[R]]) -> list[BlockingHandle[R]]:
        """Submit jobs that `bind` made, of any tasks; their handles, in the same order."""
        opened = self._open()
        found = run(opened.value.submit_many(list(calls)))
        return [BlockingHandle(opened, handle) for handle in found]

    def map_calls(
        self, calls: Iterable[Call[R]], *, limit: int | None
    ) -> Iterator[BlockingHandle[R]]:
        """Submit calls as there is room; each job as it ends. What `BlockingTask.map` uses."""
        opened = self._open()
        for handle in iterate(opened.value.caller().map(calls, limit=limit)):
            yield BlockingHandle(opened, handle)

    def as_completed(
        self, handles: Iterable[BlockingHandle[R]], *, timeout: Duration | None = None
    ) -> Iterator[BlockingHandle[R]]:
        """Each job as it ends, whatever its end: `antiphon.as_completed`."""
        given = {id(handle.unblocked): handle for handle in handles}
        waiting = as_completed([one.unblocked for one in given.values()], timeout=timeout)
        for ended in iterate(waiting):
            yield given[id(ended)]

    def gather(self, *handles: BlockingHandle[R], timeout: Duration | None = None) -> list[R]:
        """The results of jobs, in the order of the handles: `antiphon.gather`."""
        return run(gather(*(handle.unblocked for handle in handles), timeout=timeout))

    def graph(self) -> BlockingGraph:
        """Steps that use each other's results, submitted at the end of its block: `Mesh.graph`."""
        return BlockingGraph(self._open)

    # --- working ------------------------------------------------------------------------------

    @contextmanager
    def worker(  # noqa: PLR0913 - one argument per thing a person can set
        self,
        *,
        slots: int | None = None,
        labels: Sequence[str] | None = None,
        weight: int | None = None,
        rates: Mapping[str, str] | None = None,
        commands: Sequence[str] = (),
        network: bool = False,
        unsafe_no_sandbox: bool = False,
    ) -> Iterator[BlockingWorker]:
        """Run the registered tasks beside the block; drain at its end. As `Mesh.worker`."""
        working = self._here.worker(
            slots=slots,
            labels=labels,
            weight=weight,
            rates=rates,
            commands=commands,
            network=network,
            unsafe_no_sandbox=unsafe_no_sandbox,
        )
        with entered(working) as worker:
            yield BlockingWorker(worker.value)

    @contextmanager
    def lock(
        self,
        key: str,
        *,
        scope: str = DEFAULT_SCOPE,
        ttl: Ttl = TTL_S,
        wait: Duration | None = WAIT_S,
        agent: str = "",
    ) -> Iterator[BlockingLock]:
        """Hold a lock for the length of the block. As `Mesh.lock`, but nothing ends the block."""
        taken = self._here.lock(key, scope=scope, ttl=ttl, wait=wait, agent=agent)
        with entered(taken) as opened:
            yield BlockingLock(opened.value)

    def locks(self, scope: str = "") -> list[LockStatus]:
        """The locks that are held. As `Mesh.locks`."""
        return run(self._here.locks(scope))

    def break_lock(self, key: str, *, scope: str = DEFAULT_SCOPE, fence: str = "") -> bool:
        """End whoever's hold. As `Mesh.break_lock`."""
        return run(self._here.break_lock(key, scope=scope, fence=fence))

    # --- reading ------------------------------------------------------------------------------

    def cron(self, expression: str, **how: Any) -> Callable[[B], B]:
        """Plan a task at the ticks of a cron expression: `Mesh.cron`."""
        return _over(self.mesh.cron(expression, **how))

    def on(self, ending: Ending, **how: Any) -> Callable[[B], B]:
        """Plan a task for whenever a job of a kind ends so: `Mesh.on`."""
        return _over(self.mesh.on(ending, **how))

    def put_plans(self) -> list[str]:
        """Put every plan of the async mesh's tasks on the mesh; those that changed."""
        return run(self._here.put_plans())

    def put_plan(self, name: str, when: Trigger, call: Call[Any]) -> bool:
        """Put a plan; False if it already stands so."""
        return run(self._here.put_plan(name, when, call))

    def plans(self, name: str = "") -> list[PlanStatus]:
        """The plans that stand, or those of a name, and what each does next."""
        return run(self._here.plans(name))

    def drop_plan(self, name: str, *, kind: str = "") -> str:
        """Drop a plan by its name; its kind."""
        return run(self._here.drop_plan(name, kind=kind))

    def on_beat(self, function: OnBeat) -> OnBeat:
        """Call a function at every beat while the mesh is open, in the loop's thread."""
        return run(_in_loop(self._here.on_beat, function))

    def on_downbeat(self, function: OnBeat) -> OnBeat:
        """Call a function at the first beat of every bar, in the loop's thread."""
        return run(_in_loop(self._here.on_downbeat, function))

    def tempo(self) -> Tempo:
        """The tempo in force: `Mesh.tempo`."""
        return run(self._here.tempo())

    def set_tempo(self, policy: TempoPolicy | Mapping[str, Any]) -> TempoPolicy:
        """Replace the tempo policy; only the owner can."""
        return run(self._here.set_tempo(policy))

    def freeze_tempo(self) -> TempoPolicy:
        """Hold the tempo where it is."""
        return run(self._here.freeze_tempo())

    def unfreeze_tempo(self) -> TempoPolicy:
        """Let the adaptation change the tempo again."""
        return run(self._here.unfreeze_tempo())

    def reports(self, address: str = "", *, last: int = 1) -> list[KeptReport]:
        """What happened in the last bars: `Mesh.reports`."""
        return run(self._here.reports(address, last=last))

    def status(self, state: TaskState, *, task: str, **what: Any) -> StatusClaim:
        """Say what this process is doing, outside of jobs: `Mesh.status`."""
        return run(self._here.status(state, task=task, **what))

    def keep(self, path: Path | str, name: str | None = None) -> Output:
        """Store a file's content, so that jobs can read it; its name, digests and size."""
        return run(self._here.keep(path, name))

    def fetch(
        self, output: Output | str, to: Path | str, *, of: BlockingHandle[Any] | None = None
    ) -> None:
        """Write an output's content to a file; members must name its job."""
        run(self._here.fetch(output, to, of=of.unblocked if of is not None else None))

    @property
    def rules(self) -> Rules:
        """The mesh's rules, as this process read them last."""
        return self._here.rules

    def newest(self) -> Record | None:
        """The newest record on the log; None while there is none."""
        return run(self._here.newest())

    def nodes(self, *, wait_s: float = ROLL_CALL_S) -> list[Card]:
        """The nodes that answer a roll call right now."""
        return run(self._here.nodes(wait_s=wait_s))

    def live_nodes(
        self, stale_threshold_ms: int = STALE_MS, *, wait_s: float = ROLL_CALL_S
    ) -> list[LiveNode]:
        """The nodes whose last heartbeat is not older than this: `Mesh.live_nodes`."""
        return run(self._here.live_nodes(stale_threshold_ms, wait_s=wait_s))

    def presence_changes(self, *, last: int = CHANGES_SHOWN) -> list[KeptChange]:
        """Which nodes came, fell silent and went: `Mesh.presence_changes`."""
        return run(self._here.presence_changes(last=last))

    def cost(
        self, *, by: CostBy = "kind", since: datetime | None = None, kind: str = ""
    ) -> CostReport:
        """What the jobs that ended cost, by kind, node or account (docs/cost.md)."""
        return run(self._here.cost(by=by, since=since, kind=kind))

    def coordinator(self, *, wait_s: float = ROLL_CALL_S) -> CoordinatorStatus:
        """The coordinator, and whether it is online right now."""
        return run(self._here.coordinator(wait_s=wait_s))

    def engine_info(self) -> EngineInfo:
        """What the engine reports about itself."""
        return run(self._here.engine_info())
