"""`Mesh`: the entry point of the SDK.

    mesh = Mesh.open()                      # the mesh of this directory, or of ANTIPHON_HOME
    mesh = Mesh.open(engine="memory")       # a mesh inside this process

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int: ...

    async with mesh:                        # connects
        handle = await add.submit(2, 3)
        print(await handle.result())

Opening is lazy, so that tasks can be declared at import time; nothing connects before
`async with`. Jobs are on `Mesh` itself; everything else has a namespace: `mesh.messages.send(…)`.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, overload

from antiphon.core import manifest as manifests
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.record.ids import DEFAULT_AGENT, check_agent
from antiphon.core.record.subjects import check_kind
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.executors.handler_call import JobContext
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.call_options import Scheduling, split_options
from antiphon.sdk.connection.connection import Connection, EngineName, HttpNode
from antiphon.sdk.connection.namespace import Namespace
from antiphon.sdk.environment import read_environment
from antiphon.sdk.task import AsyncTask, StreamTask, Task, kind_of

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from typing import Self, Unpack

    from antiphon.core.history.story import Line as Line  # noqa: PLC0414 - interfaces
    from antiphon.core.presence.cards import Card as Card  # noqa: PLC0414 - interfaces
    from antiphon.runtime.attention.attention_table import Attention as Attention  # noqa: PLC0414 - interfaces
    from antiphon.runtime.executors.hooks import Hook
    from antiphon.runtime.node.coordinator_watch import CoordinatorStatus as CoordinatorStatus  # noqa: PLC0414 - interfaces
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.replica.replica import Replica
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.runtime.worker.worker import Worker
    from antiphon.sdk.artifacts.namespace import Artifacts
    from antiphon.sdk.authority.namespace import Authority
    from antiphon.sdk.blocking.blocking_mesh import BlockingMesh
    from antiphon.sdk.call_options import CallOptions, TaskOptions
    from antiphon.sdk.costs.cost_report import CostBy, CostReport
    from antiphon.sdk.dismissals.namespace import Dismissals
    from antiphon.sdk.graphs.graph import Graph
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.locks.lock import Lock
    from antiphon.sdk.locks.namespace import LockOptions, Locks
    from antiphon.sdk.log_watch import Event as Event  # noqa: PLC0414 - interfaces
    from antiphon.sdk.log_watch import Events as Events  # noqa: PLC0414 - interfaces
    from antiphon.sdk.many.bound_calls import Call, Caller
    from antiphon.sdk.memory.namespace import Memory
    from antiphon.sdk.messages.namespace import Messages
    from antiphon.sdk.outbox.namespace import Outbox
    from antiphon.sdk.plans.namespace import PlanOptions, Plans
    from antiphon.sdk.plans.triggers import Ending, Missed
    from antiphon.sdk.presence.namespace import Presence
    from antiphon.sdk.queries.job_query import JobFilters
    from antiphon.sdk.queries.namespace import Queries
    from antiphon.sdk.queries.page import Page
    from antiphon.sdk.questions.namespace import Questions
    from antiphon.sdk.task import TaskDecorator
    from antiphon.sdk.tempo.namespace import Tempo

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])
HTTP_HOME: Final = ".antiphon-http"
"""Where a program that connects over HTTP keeps its key."""


class Mesh:
    """A mesh, seen from one process."""

    artifacts: Namespace[Artifacts] = Namespace("antiphon.sdk.artifacts.namespace.Artifacts")
    authority: Namespace[Authority] = Namespace("antiphon.sdk.authority.namespace.Authority")
    locks: Namespace[Locks] = Namespace("antiphon.sdk.locks.namespace.Locks")
    outbox: Namespace[Outbox] = Namespace("antiphon.sdk.outbox.namespace.Outbox")
    memory: Namespace[Memory] = Namespace("antiphon.sdk.memory.namespace.Memory")
    messages: Namespace[Messages] = Namespace("antiphon.sdk.messages.namespace.Messages")
    plans: Namespace[Plans] = Namespace("antiphon.sdk.plans.namespace.Plans")
    dismissals: Namespace[Dismissals] = Namespace("antiphon.sdk.dismissals.namespace.Dismissals")
    questions: Namespace[Questions] = Namespace("antiphon.sdk.questions.namespace.Questions")
    queries: Namespace[Queries] = Namespace("antiphon.sdk.queries.namespace.Queries")
    presence: Namespace[Presence] = Namespace("antiphon.sdk.presence.namespace.Presence")
    tempo: Namespace[Tempo] = Namespace("antiphon.sdk.tempo.namespace.Tempo")

    def __init__(self, connection: Connection) -> None:
        """Use `Mesh.open`."""
        self._connection = connection
        self._blocking: BlockingMesh | None = None

    @classmethod
    def open(
        cls,
        *,
        engine: EngineName | None = None,
        home: Path | str | None = None,
        role: str = "client",
        key: str | None = None,
        agent: str | None = None,
        offline: bool = False,
    ) -> Self:
        """Describe which mesh; `async with` connects to it.

        `engine` is `nats`, or `memory`: a mesh in this process, without a server. Where no `home`
        is given, `ANTIPHON_ENGINE=memory` says the same. `home` is the state directory (default:
        `ANTIPHON_HOME`, or the nearest `.antiphon`). `role` names the keys that this process may
        use; `key` names exactly one, and so does `ANTIPHON_NODE`. `agent` tells agents apart that
        share a key; else `ANTIPHON_AGENT`, else `main`. With `offline`, it opens also while the
        engine cannot be reached, and what is written then waits on disk: docs/do/offline.md.
        """
        if engine is None:
            engine = "memory" if home is None and read_environment().is_in_memory else "nats"
        if home is None:
            home = read_environment().home
        path = Path(home) if home is not None else None
        agent = check_agent(agent or read_environment().agent or DEFAULT_AGENT)
        return cls._of(
            Connection(engine=engine, home=path, role=role, key=key, agent=agent, offline=offline)
        )

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        mesh: str,
        home: Path | str = HTTP_HOME,
        ca: Path | str | None = None,
        agent: str | None = None,
    ) -> Self:
        """Describe a mesh that is reached through a node's HTTP interface; docs/reference/http.md.

        `mesh` is its id. `home` keeps this program's key, to which somebody has to delegate, and
        its replica. `ca` is a file with the certificates of the authority that the node's comes
        from; without it the system's count. Programs can submit, wait, read, lock and plan; there
        are no work queues, messages or stored artifacts.
        """
        agent = check_agent(agent or read_environment().agent or DEFAULT_AGENT)
        node = HttpNode(url, mesh, Path(ca) if ca is not None else None)
        return cls._of(
            Connection(
                engine="http", home=Path(home), role="client", key=None, agent=agent, node=node
            )
        )

    @classmethod
    def _of(cls, connection: Connection) -> Self:
        async def archived(kind: str, job_id: str) -> bool:
            from antiphon.sdk.archive.archived_end import archived_end

            return await archived_end(connection.home.path, kind, job_id) is not None

        connection.archived = archived
        return cls(connection)

    # --- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._connection.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    @property
    def connection(self) -> Connection:
        """What the SDK's own parts work with. Programs need it for nothing."""
        return self._connection

    @property
    def engine(self) -> EngineName:
        """The engine it uses."""
        return self._connection.engine_name

    @property
    def home(self) -> StateDirectory:
        """The state directory; only meshes on a server have one."""
        return self._connection.home

    @property
    def id(self) -> str:
        """The mesh's id."""
        return self._connection.session.mesh

    @property
    def did(self) -> str:
        """The key that this process signs with."""
        return self._connection.did

    @property
    def alias(self) -> str:
        """This process's alias on the mesh."""
        return self._connection.opened.alias

    @property
    def agent(self) -> str:
        """The name of this process's agent on its node."""
        return self._connection.agent

    @property
    def kinds(self) -> list[str]:
        """The kinds that tasks are registered for."""
        return self._connection.declared.handlers.kinds

    # --- submitting -------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(
        self, function: Callable[Concatenate[JobContext, P], AsyncIterator[R]], /
    ) -> StreamTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, AsyncIterator[R]], /) -> StreamTask[P, R]: ...

    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, kind: str = "", /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, kind: str | Callable[..., Any] = "", /, **options: Any) -> Any:
        """Register a function as the handler for `kind`, or for its own name: docs/do/tasks.md.

        `TypeError` if a value of an annotation could not be carried: docs/reference/values.md.
        """
        if not isinstance(kind, str):
            return self.task()(kind)
        if kind:
            check_kind(kind)
        calls, how = split_options(options)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            name = kind or kind_of(function)
            declared = self._connection.declared
            signature = declared.handlers.register(name, function, how)
            declared.options[name] = calls
            made: type[Task[..., Any]] = Task
            if signature.is_stream:
                made = StreamTask
            elif inspect.iscoroutinefunction(function):
                made = AsyncTask
            return made(self._connection, name, function, signature, calls)

        return register

    def cron(
        self,
        expression: str,
        *,
        zone: str = "UTC",
        missed: Missed = "last",
        **plan: Unpack[PlanOptions],
    ) -> Callable[[T], T]:
        """Plan a task at the ticks of a cron expression; `mesh.plans.put_all` puts it on the mesh.

        @mesh.cron("0 3 * * *", zone="Europe/Berlin")
        @mesh.task("report.daily")
        async def report() -> None: ...
        """
        from antiphon.sdk.plans.triggers import cron

        return self.plans.plan_task(cron(expression, zone=zone, missed=missed), **plan)

    def on(self, ending: Ending, *, kind: str, **plan: Unpack[PlanOptions]) -> Callable[[T], T]:
        """Plan a task for whenever a job of a kind ends so; `mesh.plans.put_all` as with `cron`."""
        from antiphon.sdk.plans.triggers import on

        return self.plans.plan_task(on(ending, kind=kind), **plan)

    def use(self, hook: Hook) -> None:
        """Wrap every run of this process's workers in a hook; the first is the outermost."""
        self._connection.declared.handlers.hooks.append(hook)

    async def submit(
        self,
        what: str | Call[Any],
        /,
        *args: object,
        options: CallOptions | None = None,
        **kwargs: object,
    ) -> JobHandle[Any]:
        """Submit a task by its kind, with or without its function here: plain JSON both ways.

        Or a call that `bind` made.
        """
        call = self.bind(what, *args, options=options, **kwargs) if isinstance(what, str) else what
        return await self._caller().submit(call)

    def bind(
        self, kind: str, /, *args: object, options: CallOptions | None = None, **kwargs: object
    ) -> Call[Any]:
        """A call that is not submitted yet, of a task by its kind."""
        from antiphon.sdk.many.bound_calls import Call

        given: Any = {**self._connection.declared.options.get(kind, {}), **(options or {})}
        return Call.of(kind, args, kwargs, given)

    async def submit_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Submit jobs that `bind` made, of any tasks; their handles, in the same order."""
        return await self._caller().submit_many(calls)

    async def submit_manifest(
        self,
        kind: str,
        job: manifests.Manifest | Mapping[str, object],
        *,
        options: CallOptions | None = None,
    ) -> JobHandle[Any]:
        """Submit a job by its manifest. The same manifest again is the same job."""
        content = job if isinstance(job, manifests.Manifest) else manifests.author(job)
        now_ms = self._connection.session.wall.now_ms()
        body = Scheduling.of(options or {}).body(kind, content, now_ms=now_ms)
        return await self._caller().submit_body(body)

    def _caller(self) -> Caller:
        from antiphon.sdk.many.bound_calls import Caller

        return Caller(self._connection)

    def graph(self) -> Graph:
        """Steps that use each other's results, submitted when its block ends: docs/do/graphs.md.

        async with mesh.graph() as g:
            page = g.add(fetch, url)
            words = g.add(count, page)
        """
        from antiphon.sdk.graphs.graph import Graph

        return Graph(self._connection)

    def lock(self, key: str, **how: Unpack[LockOptions]) -> Lock:
        """A lock to use with `async with`: waits for it, keeps it, releases it (docs/do/locks.md).

        `scope` is what the key belongs to. `ttl` is how long the lock outlives its holder;
        `"phase"` and `"bar"` end with one of the mesh's tempo. `wait` is how long to wait for it,
        None without end: then `Held` is raised. `agent` is who holds it, this process's agent
        unless you run several.
        """
        return self.locks.hold(key, **how)

    # --- working ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(  # noqa: PLR0913 - one argument per thing a person can set
        self,
        *,
        slots: int | None = None,
        labels: Sequence[str] | None = None,
        weight: int | None = None,
        rates: Mapping[str, str] | None = None,
        commands: Sequence[str] = (),
        network: bool = False,
        unsafe_no_sandbox: bool = False,
    ) -> AsyncIterator[Worker]:
        """Run the registered tasks while the block runs; drain at its end.

        For the kinds in `commands` it runs any command, sandboxed (docs/do/commands.md). `labels`
        (`"gpu=a100"`) say which jobs with requirements it can run, `weight` how large its share is
        where jobs are drawn for (docs/do/selection.md); both come from the settings if not given.
        `rates` (`{"example.add": "10/s"}`) override those of the tasks (docs/do/tasks.md).
        """
        from antiphon.sdk.worker import answering, command_terms, worker_settings

        connection = self._connection
        async with AsyncExitStack() as stack:
            home = connection.home_of_files
            terms = None
            if commands:
                terms = command_terms(commands, home, network=network, unsafe=unsafe_no_sandbox)
            joined = await connection.join_worker(stack, {*self.kinds, *commands})
            how = worker_settings(slots=slots, labels=labels, weight=weight, rates=rates)
            answers = answering(joined, connection.declared.handlers, home, how, terms)
            yield await stack.enter_async_context(answers)

    @asynccontextmanager
    async def node(self, *, seal_every_s: float = 32.0) -> AsyncIterator[FullNode]:
        """Be a full node while the block runs: verify everything, expire jobs, offer them again.

        Where it is the coordinator, it seals the log at most every `seal_every_s` seconds.
        """
        from antiphon.assembly import owned_replica, replicating

        async with AsyncExitStack() as stack:
            key = read_environment().key_for("node")
            joined = await self._connection.join(stack, "node", key)
            home = self.home
            replica = await stack.enter_async_context(owned_replica(home.replica, home, joined))
            metrics = self._connection.tempo_metrics
            chosen = read_environment()
            node = replicating(
                joined,
                replica,
                caretaking=True,
                bar_s=seal_every_s,
                metrics=metrics,
                archive=chosen.archive,
                is_purging=chosen.purge,
            )
            yield await stack.enter_async_context(node)

    # --- reading ----------------------------------------------------------------------------------

    def job(
        self, kind: str, job_id: str = "", signature: CallSignature | None = None
    ) -> JobHandle[Any]:
        """A handle on a job: `mesh.job("example.add", id)`, or `mesh.job("ab12")` by its id alone.

        The id may be cut off, as on the command line, or be the job's alias. Then it is looked up
        when the handle is first used: `Rejected` if there is no such job, or several.
        """
        from antiphon.sdk.jobs.job_lookup import handle_on

        return handle_on(self._connection, kind, job_id, signature)

    async def jobs(
        self,
        *,
        overdue: bool = False,
        claimable_by: str = "",
        limit: int = 20,
        after: str = "",
        **filters: Unpack[JobFilters],
    ) -> Page[Job]:
        """The newest jobs that this machine can read, as `antiphon jobs` lists them.

        `state` is one of `waiting`, `pending`, `claimed`, `running`, `succeeded`, `failed` and
        `aborted`, or several; `kind` stands for the kinds below it, too. `since`, `until`, `by`,
        `worker`, `label`, `plan`, `text` and `graph`: docs/do/queries.md. `after` is the `next` of
        the page before. `overdue`: those past their deadline, the longest first. `claimable_by`:
        pending jobs that the routes let this node (a did:key, an alias) claim now, oldest first.
        Both can be combined with `kind` alone.
        """
        if not overdue and not claimable_by:
            return await self.queries.jobs(limit=limit, after=after, **filters)
        from antiphon.sdk.queries.due_jobs import due_jobs

        return await due_jobs(
            self._connection, filters, claimable_by=claimable_by, overdue=overdue, limit=limit
        )

    def replica(self) -> AbstractAsyncContextManager[Replica]:
        """The local replica, up to date: all reads from it stay on this machine."""
        return self._connection.replica()

    async def cost(
        self, *, by: CostBy = "kind", since: datetime | None = None, kind: str = ""
    ) -> CostReport:
        """What the jobs that ended cost, by kind, node or account (docs/do/cost.md)."""
        from antiphon.sdk.costs.cost_report import cost_report

        since_ms = 0 if since is None else round(since.timestamp() * 1000)
        return await cost_report(self.replica(), by=by, since_ms=since_ms, kind=kind)

    def watching(
        self, *, per_s: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Events]]:
        """Everything that is written to the log from now on, judged, in words.

        With `per_s`, at most so many records a second; how many more there were is counted.
        """
        from antiphon.sdk.log_watch import watching

        return watching(self._connection.session, per_s=per_s)

    # --- without await ------------------------------------------------------------------------

    def blocking(self) -> BlockingMesh:
        """This mesh for code that does not await: docs/do/blocking.md. Always the same object.

        It has a connection of its own, whether or not this mesh is open.
        """
        if self._blocking is None:
            from antiphon.sdk.blocking.blocking_mesh import BlockingMesh

            self._blocking = BlockingMesh(self)
        return self._blocking


__all__ = [
    "EngineName",
    "Job",
    "Mesh",
    "State",
    "StateDirectory",
    "Verdict",
]
