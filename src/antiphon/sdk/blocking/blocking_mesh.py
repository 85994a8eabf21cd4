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
from antiphon.sdk.blocking.blocking_task import BlockingAsyncTask, BlockingTask
from antiphon.sdk.blocking.loop_thread import OpenContext, entered, forget_after_fork, iterate, run
from antiphon.sdk.blocking.waiting import BlockingNamespaces
from antiphon.sdk.many.bound_calls import Caller, as_completed, gather
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.task import AsyncTask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import Self, Unpack

    from antiphon.core.families.jobs.state import Job
    from antiphon.core.manifest import Manifest
    from antiphon.runtime.executors.handler_call import JobContext
    from antiphon.runtime.executors.hooks import Hook
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.runtime.worker.worker import Worker
    from antiphon.sdk.blocking.blocking_task import BlockingTaskDecorator
    from antiphon.sdk.blocking.waiting import BlockingLock
    from antiphon.sdk.call_options import CallOptions, Duration, TaskOptions
    from antiphon.sdk.costs.cost_report import CostBy, CostReport
    from antiphon.sdk.locks.namespace import LockOptions
    from antiphon.sdk.many.bound_calls import Call
    from antiphon.sdk.mesh import EngineName
    from antiphon.sdk.plans.namespace import PlanOptions
    from antiphon.sdk.plans.triggers import Ending, Missed
    from antiphon.sdk.queries.job_query import JobFilters
    from antiphon.sdk.queries.page import Page
    from antiphon.sdk.task import Task

P = ParamSpec("P")
R = TypeVar("R")


B = TypeVar("B", bound=BlockingTask[..., Any])


def _over(planned: Callable[[Task[..., Any]], object]) -> Callable[[B], B]:
    """A decorator of async tasks, over blocking ones."""

    def register(task: B) -> B:
        planned(task.unblocked)
        return task

    return register


class BlockingMesh(BlockingNamespaces, of=Mesh):
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
                opened = self._opened = OpenContext(Mesh(self.mesh.connection.twin()))
                opened.open()
            return opened

    @property
    def unblocked(self) -> Mesh:
        """The async mesh behind this one, open: for `run`."""
        return self._open().value

    def run(self, awaited: Coroutine[Any, Any, R]) -> R:
        """Wait for something of the async mesh: `mesh.run(mesh.unblocked.submit(…))`."""
        return run(awaited)

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
        return self.unblocked.id

    @property
    def did(self) -> str:
        """The key that this process signs with."""
        return self.unblocked.did

    @property
    def agent(self) -> str:
        """The name of this process's agent on its node."""
        return self.mesh.agent

    @property
    def alias(self) -> str:
        """This process's alias on the mesh."""
        return self.unblocked.alias

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
        """Register a function as the handler for `kind`, or for its own name: docs/do/tasks.md."""
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
        self,
        what: str | Call[Any],
        /,
        *args: object,
        options: CallOptions | None = None,
        **kwargs: object,
    ) -> BlockingHandle[Any]:
        """Submit a task by its kind, without having its function here: plain JSON both ways."""
        opened = self._open()
        return BlockingHandle(
            opened, run(opened.value.submit(what, *args, options=options, **kwargs))
        )

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

    def job(
        self, kind: str, job_id: str = "", signature: CallSignature | None = None
    ) -> BlockingHandle[Any]:
        """A handle on a job, by its kind and id, or by its id alone: `Mesh.job`."""
        opened = self._open()
        return BlockingHandle(opened, opened.value.job(kind, job_id, signature))

    def jobs(self, *, limit: int = 20, after: str = "", **filters: Unpack[JobFilters]) -> Page[Job]:
        """The newest jobs that this machine can read: `Mesh.jobs`."""
        return run(self.unblocked.jobs(limit=limit, after=after, **filters))

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
        for handle in iterate(Caller(opened.value.connection).map(calls, limit=limit)):
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
    ) -> Iterator[Worker]:
        """Run the registered tasks beside the block; drain at its end. As `Mesh.worker`."""
        working = self.unblocked.worker(
            slots=slots,
            labels=labels,
            weight=weight,
            rates=rates,
            commands=commands,
            network=network,
            unsafe_no_sandbox=unsafe_no_sandbox,
        )
        with entered(working) as worker:
            yield worker.value

    def lock(self, key: str, **how: Unpack[LockOptions]) -> BlockingLock:
        """A lock to use with `with`. As `Mesh.lock`, but nothing ends the block.

        Nothing can stop a thread in the middle of its work. So a lock that is lost does not end
        the block: `check` says so, and so does the end of the block, with `LockLost`.
        """
        return self.locks.hold(key, **how)

    def cron(
        self,
        expression: str,
        *,
        zone: str = "UTC",
        missed: Missed = "last",
        **plan: Unpack[PlanOptions],
    ) -> Callable[[B], B]:
        """Plan a task at the ticks of a cron expression: `Mesh.cron`."""
        return _over(self.mesh.cron(expression, zone=zone, missed=missed, **plan))

    def on(self, ending: Ending, *, kind: str, **plan: Unpack[PlanOptions]) -> Callable[[B], B]:
        """Plan a task for whenever a job of a kind ends so: `Mesh.on`."""
        return _over(self.mesh.on(ending, kind=kind, **plan))

    # --- reading ------------------------------------------------------------------------------

    def cost(
        self, *, by: CostBy = "kind", since: datetime | None = None, kind: str = ""
    ) -> CostReport:
        """What the jobs that ended cost, by kind, node or account (docs/do/cost.md)."""
        return run(self.unblocked.cost(by=by, since=since, kind=kind))
