"""`Mesh`: the entry point of the SDK.

    mesh = Mesh.open()                      # the mesh of this directory, or of ANTIPHON_HOME
    mesh = Mesh.open(engine="memory")       # a mesh inside this process

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int: ...

    async with mesh:                        # connects
        handle = await add.submit(2, 3)
        print(await handle.result())

Opening is lazy, so that tasks can be declared at import time; nothing connects before
`async with`.
"""

from __future__ import annotations

import inspect
import os
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from antiphon.assembly import mesh_connection
from antiphon.core import manifest as manifests
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.policy.circuit_breaker import CircuitBreaker
from antiphon.core.proof.output import Output
from antiphon.core.record.ids import DEFAULT_AGENT, check_agent
from antiphon.core.record.subjects import check_kind
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Held, Misconfigured
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import inline_arguments, keep_arguments
from antiphon.runtime.executors.handlers import Handlers, JobContext
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
from antiphon.runtime.values.signature import plain_call
from antiphon.sdk.agents.agent_methods import AgentMethods
from antiphon.sdk.call_options import Scheduling, fresh_nonce, split_options
from antiphon.sdk.defaults import ROLL_CALL_S
from antiphon.sdk.environment import read_environment
from antiphon.sdk.handle import MOVE_INTO_BLOCK, JobHandle, ResultReader
from antiphon.sdk.jobs.job_methods import JobMethods
from antiphon.sdk.locks.lock_methods import LockMethods
from antiphon.sdk.many.many_methods import ManyMethods
from antiphon.sdk.memory.memory_methods import MemoryMethods
from antiphon.sdk.messages.message_methods import MessageMethods
from antiphon.sdk.plans.plan_methods import PlanMethods, Planned
from antiphon.sdk.task import AsyncTask, Task, kind_of
from antiphon.sdk.tempo.help_methods import HelpMethods
from antiphon.sdk.tempo.report_methods import ReportMethods
from antiphon.sdk.tempo.tempo_methods import BeatCalls, TempoMethods

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Collection,
        Coroutine,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from typing import Self, Unpack

    from antiphon.assembly import MemoryMesh, MeshConnection
    from antiphon.core.authority.control import AnnouncedProtocol
    from antiphon.core.authority.rules import Rules
    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.presence.cards import Card as Card  # noqa: PLC0414 - interfaces
    from antiphon.core.story import Line as Line  # noqa: PLC0414 - interfaces
    from antiphon.ports import EngineInfo, Record
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.attention.attention_table import Attention as Attention  # noqa: PLC0414 - interfaces
    from antiphon.runtime.executors.hooks import Hook
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.node.coordinator_watch import CoordinatorStatus as CoordinatorStatus  # noqa: PLC0414 - interfaces
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.node.replica import Replica
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.runtime.worker.worker import Worker
    from antiphon.sdk.blocking.blocking_mesh import BlockingMesh
    from antiphon.sdk.call_options import CallOptions, TaskOptions
    from antiphon.sdk.costs.cost_report import CostBy, CostReport
    from antiphon.sdk.graphs.graph import Graph
    from antiphon.sdk.log_watch import Event as Event  # noqa: PLC0414 - interfaces
    from antiphon.sdk.log_watch import Events as Events  # noqa: PLC0414 - interfaces
    from antiphon.sdk.many.bound_calls import Call
    from antiphon.sdk.task import TaskDecorator

P = ParamSpec("P")
R = TypeVar("R")

EngineName = Literal["nats", "memory"]


class Mesh(
    JobMethods,
    AgentMethods,
    ManyMethods,
    MessageMethods,
    MemoryMethods,
    PlanMethods,
    LockMethods,
    TempoMethods,
    ReportMethods,
    HelpMethods,
):
    """A mesh, seen from one process."""

    def __init__(
        self, *, engine: EngineName, home: Path | None, role: str, key: str | None, agent: str
    ) -> None:
        """Use `Mesh.open`."""
        self._engine: EngineName = engine
        self._explicit_home = home
        self._role = role
        self._key = key
        self._agent = agent
        self._handlers = Handlers()
        self._task_options: dict[str, dict[str, Any]] = {}
        self._stack = AsyncExitStack()
        self._connection: MeshConnection | None = None
        self._memory: MemoryMesh | None = None
        self._given_memory: MemoryMesh | None = None  # a test's
        self._artifacts: Artifacts | None = None
        self._breaker: CircuitBreaker | None = CircuitBreaker()
        self._blocking: BlockingMesh | None = None
        self._planned: list[Planned] = []
        self._clock = None
        self._beat_calls = BeatCalls()
        self.tempo_metrics = TempoMetrics()
        """The numbers of the pulse and the reverb that run beside this mesh's node."""
        self._was_open = False
        self._pid = os.getpid()
        self._of_parent: tuple[object, ...] = ()

    @classmethod
    def open(
        cls,
        *,
        engine: EngineName | None = None,
        home: Path | str | None = None,
        role: str = "client",
        key: str | None = None,
        agent: str | None = None,
    ) -> Self:
        """Describe which mesh; `async with` connects to it.

        `engine` is `nats`; where no `home` is given, `ANTIPHON_MESH=off` and
        `ANTIPHON_ENGINE=memory` make it `memory`: in this process, without a server. `home` is
        the state directory (default: `ANTIPHON_HOME`, or the nearest `.antiphon`). `role` names the
        keys that this process may use; `key` names exactly one, and so does `ANTIPHON_NODE`.
        `agent` tells agents apart that share a key; else `ANTIPHON_AGENT`, else `main`.
        """
        if engine is None:
            engine = "memory" if home is None and read_environment().is_in_memory else "nats"
        if home is None:
            home = read_environment().home
        path = Path(home) if home is not None else None
        agent = check_agent(agent or read_environment().agent or DEFAULT_AGENT)
        return cls(engine=engine, home=path, role=role, key=key, agent=agent)

    # --- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._leave_to_parent()
        if self._connection is not None:
            raise Misconfigured("this mesh is already open; use 'async with' once")
        chosen = read_environment()
        self._breaker = chosen.make_breaker()
        try:
            if self._engine == "memory":
                await self._enter_memory()
            else:
                chosen.require_only_mesh(self.home)
                key = self._key or chosen.node
                self._connection = await self._join(self._stack, self._role, key)
            await self.session.sync_control()
            await self._announce(self._stack)
        except BaseException:
            self._connection = None
            await self._stack.aclose()
            raise
        self._beat_calls.begin(self.clock)
        return self

    async def _join(
        self, stack: AsyncExitStack, role: str, key: str | None, kinds: Collection[str] = ()
    ) -> MeshConnection:
        try:
            joined = await stack.enter_async_context(
                mesh_connection.join(
                    self.home,
                    role,
                    key=key,
                    kinds=sorted(kinds),
                    token=read_environment().token,
                )
            )
            return self._named(joined)
        except Held as held:
            if key is None:
                raise
            hint = "give each process its own name in ANTIPHON_NODE, or unset it"
            if key == self._key:
                hint = "leave out key=, so that each process takes a key of its own"
            raise Held(held.message, hint=hint) from held

    async def _enter_memory(self) -> None:
        from antiphon.assembly import MemoryMesh, owned_replica, replicating

        self._memory = self._given_memory or MemoryMesh()
        owner = self._memory.connection("owner", self._memory.owner)
        self._connection = self._named(await self._stack.enter_async_context(owner))
        # In one process there is no other node to expire leases, offer jobs again or coordinate.
        replica = await self._stack.enter_async_context(
            owned_replica(":memory:", None, self._connection)
        )
        self._memory_replica = replica
        node = replicating(self._connection, replica, caretaking=True, metrics=self.tempo_metrics)
        await self._stack.enter_async_context(node)

    def _leave_to_parent(self) -> None:
        """In a forked child: forget what is open. Ending it would touch the parent's sockets."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._of_parent += (self._stack, self._connection, self._memory)
            self._stack = AsyncExitStack()
            self._connection = self._artifacts = self._memory = self._clock = None
            self._beat_calls.forget()

    async def __aexit__(self, *_: object) -> None:
        self._leave_to_parent()
        await self._beat_calls.end()
        if self._connection is not None:
            self._connection.session.is_over = self._was_open = True
        self._connection = self._artifacts = self._clock = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    @property
    def engine(self) -> EngineName:
        """The engine it uses."""
        return self._engine

    @property
    def home(self) -> StateDirectory:
        """The state directory; only meshes on a server have one."""
        return read_environment().state_directory(self._explicit_home)

    @property
    def connection(self) -> MeshConnection:
        """This process's connection to the mesh."""
        if self._connection is None:
            if self._was_open:
                raise Misconfigured("the mesh is closed: its block has ended", hint=MOVE_INTO_BLOCK)
            raise Misconfigured(
                "the mesh is not open",
                hint="use it inside 'async with mesh:'; in a test, say mesh.use(MODULE.mesh) first",
            )
        return self._connection

    @property
    def session(self) -> Session:
        """The session that reads and writes the log."""
        return self.connection.session

    @property
    def id(self) -> str:
        """The mesh's id."""
        return self.session.mesh

    @property
    def did(self) -> str:
        """The key that this process signs with."""
        return self.connection.keyring.did

    @property
    def alias(self) -> str:
        """This process's alias on the mesh."""
        return self.connection.alias

    @property
    def kinds(self) -> list[str]:
        """The kinds that tasks are registered for."""
        return self._handlers.kinds

    # --- submitting -------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, kind: str = "", /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, kind: str | Callable[..., Any] = "", /, **options: Any) -> Any:
        """Register a function as the handler for `kind`, or for its own name: docs/tasks.md.

        `TypeError` if a value of one of its annotations could not be carried: docs/values.md.
        """
        if not isinstance(kind, str):
            return self.task()(kind)
        if kind:
            check_kind(kind)
        calls, how = split_options(options)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            name = kind or kind_of(function)
            signature = self._handlers.register(name, function, how)
            self._task_options[name] = calls
            made = AsyncTask if inspect.iscoroutinefunction(function) else Task
            return made(self, name, function, signature, calls)

        return register

    def use(self, hook: Hook) -> None:
        """Wrap every run of this process's workers in a hook; the first is the outermost."""
        self._handlers.hooks.append(hook)

    async def submit(
        self, kind: str, /, *args: object, options: CallOptions | None = None, **kwargs: object
    ) -> JobHandle[Any]:
        """Submit a task by its kind, with or without its function here: plain JSON both ways."""
        body = await self._plain_body(kind, args, kwargs, options)
        return self._handle(await submission.submit(self.session, body, breaker=self._breaker))

    async def submit_arguments(
        self,
        kind: str,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        options: CallOptions | None = None,
    ) -> JobHandle[Any]:
        """The same with the arguments as values, so that they cannot clash with `options`."""
        body = await self._plain_body(kind, args, kwargs, options)
        return self._handle(await submission.submit(self.session, body, breaker=self._breaker))

    async def submit_call(
        self,
        kind: str,
        text: bytes,
        scheduling: Scheduling,
        signature: CallSignature | None = None,
    ) -> JobHandle[Any]:
        """Submit a call by the text of its arguments; what `Task.submit` uses."""
        from antiphon.sdk.many.bound_calls import Call

        body = await self._call_body(Call(kind, text, scheduling))
        submitted = await submission.submit(self.session, body, breaker=self._breaker)
        return self._handle(submitted, signature)

    async def _plain_body(
        self,
        kind: str,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        options: CallOptions | None,
    ) -> ScheduleBody:
        from antiphon.sdk.many.bound_calls import Call

        scheduling = Scheduling.of({**self._task_options.get(kind, {}), **(options or {})})
        return await self._call_body(Call(kind, plain_call(args, kwargs), scheduling))

    async def _call_body(self, call: Call[Any]) -> ScheduleBody:
        where = inline_arguments(call.text) or await keep_arguments(call.text, self.artifacts)
        nonce = fresh_nonce(self.session.entropy)
        return call.schedule(where, nonce=nonce, now_ms=self.session.wall.now_ms())

    def _handle(
        self, submitted: submission.Submitted, signature: CallSignature | None = None
    ) -> JobHandle[Any]:
        return JobHandle.of(
            self.session, submitted, ResultReader(signature, lambda: self.artifacts)
        )

    async def submit_manifest(
        self,
        kind: str,
        job: manifests.Manifest | Mapping[str, object],
        *,
        options: CallOptions | None = None,
    ) -> JobHandle[Any]:
        """Submit a job by its manifest. The same manifest again is the same job."""
        content = job if isinstance(job, manifests.Manifest) else manifests.author(job)
        now_ms = self.session.wall.now_ms()
        body = Scheduling.of(options or {}).body(kind, content, now_ms=now_ms)
        return self._handle(await submission.submit(self.session, body, breaker=self._breaker))

    def again(self, job: manifests.Manifest) -> manifests.Manifest:
        """The same content as a new job: a fresh nonce is hashed with it."""
        from antiphon.sdk.manifests.authored_manifest import again

        return again(job, fresh_nonce(self.session.entropy))

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

        For the kinds in `commands` it runs any command, in a sandbox (docs/commands.md). `labels`
        (`"gpu=a100"`) say which jobs with requirements it can run, `weight` how large its share is
        where jobs are drawn for (docs/selection.md); both come from the settings if not given.
        `rates` (`{"example.add": "10/s"}`) override those of the tasks (docs/tasks.md).
        """
        from antiphon.sdk.worker import answering, command_terms, worker_settings

        async with AsyncExitStack() as stack:
            home = None if self._memory is not None else self.home
            terms = None
            if commands:
                terms = command_terms(commands, home, network=network, unsafe=unsafe_no_sandbox)
            if self._memory is not None:
                worker = self._memory.connection("worker")
                connection = self._named(await stack.enter_async_context(worker))
            else:
                key = read_environment().key_for("worker")
                connection = await self._join(stack, "worker", key, {*self.kinds, *commands})
            how = worker_settings(slots=slots, labels=labels, weight=weight, rates=rates)
            answers = answering(connection, self._handlers, home, how, terms)
            yield await stack.enter_async_context(answers)

    @asynccontextmanager
    async def node(self) -> AsyncIterator[FullNode]:
        """Be a full node while the block runs: verify everything, expire jobs, offer them again."""
        from antiphon.assembly import owned_replica, replicating

        async with AsyncExitStack() as stack:
            connection = await self._join(stack, "node", read_environment().key_for("node"))
            home = self.home
            replica = await stack.enter_async_context(owned_replica(home.replica, home, connection))
            node = replicating(connection, replica, caretaking=True, metrics=self.tempo_metrics)
            yield await stack.enter_async_context(node)

    # --- reading ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[Replica]:
        """The local replica, up to date: all reads from it stay on this machine."""
        from antiphon.assembly import caught_up, local_replica

        if self._memory is not None:
            yield await caught_up(self.connection, self._memory_replica)
            return
        async with local_replica(self.home, self.connection) as replica:
            yield replica

    @property
    def artifacts(self) -> Artifacts:
        """The artifacts that jobs read and write, by content."""
        from antiphon.assembly.artifact_store import artifacts_of

        connection = self.connection
        if self._artifacts is None:
            home = None if self._memory is not None else self.home
            self._artifacts = artifacts_of(connection, home)
        return self._artifacts

    async def keep(self, path: Path | str, name: str | None = None) -> Output:
        """Store a file's content, so that jobs can read it; its name, digests and size."""
        file = Path(path)
        return await self.artifacts.keep(file, name or file.name)

    async def fetch(
        self, output: Output | str, to: Path | str, *, of: JobHandle[Any] | None = None
    ) -> None:
        """Write an output's content to a file; members must name its job."""
        job = (of.kind, of.id) if of is not None else None
        await self.artifacts.fetch(output, Path(to), job=job)

    @property
    def rules(self) -> Rules:
        """The mesh's rules, as this process read them last."""
        return self.session.control.rules

    @property
    def announced(self) -> AnnouncedProtocol | None:
        """The next protocol, and when it takes effect; None where none is announced."""
        return self.session.control.rise

    async def newest(self) -> Record | None:
        """The newest record on the log; None while there is none."""
        return await self.session.log.last()

    async def cost(
        self, *, by: CostBy = "kind", since: datetime | None = None, kind: str = ""
    ) -> CostReport:
        """What the jobs that ended cost, by kind, node or account (docs/cost.md)."""
        from antiphon.sdk.costs.cost_report import cost_report

        since_ms = 0 if since is None else round(since.timestamp() * 1000)
        return await cost_report(self.replica(), by=by, since_ms=since_ms, kind=kind)

    async def coordinator(self, *, wait_s: float = ROLL_CALL_S) -> CoordinatorStatus:
        """The coordinator, and whether it is online right now."""
        from antiphon.runtime.node.coordinator_watch import ask_once

        async with self.replica() as replica:
            return await ask_once(self.session, replica, wait_s=wait_s)

    async def engine_info(self) -> EngineInfo:
        """What the engine reports about itself."""
        if self._memory is not None:
            return await self.connection.engine.info()
        return await mesh_connection.engine_info(self.home, token=read_environment().token)

    def watching(
        self, *, per_s: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Events]]:
        """Everything that is written to the log from now on, judged, in words.

        With `per_s`, at most so many records a second; how many more there were is counted.
        """
        from antiphon.sdk.log_watch import watching

        return watching(self.session, per_s=per_s)

    def graph(self) -> Graph:
        """Steps that use each other's results, submitted at the end of its block: docs/graphs.md.

        async with mesh.graph() as g:
            page = g.add(fetch, url)
            words = g.add(count, page)
        """
        from antiphon.sdk.graphs.graph import Graph

        return Graph(self)

    # --- without await ------------------------------------------------------------------------

    def twin(self) -> Mesh:
        """The same mesh and tasks with a connection of its own, not open yet."""
        twin = Mesh(
            engine=self._engine,
            home=self._explicit_home,
            role=self._role,
            key=self._key,
            agent=self._agent,
        )
        twin._handlers, twin._planned = self._handlers, self._planned
        return twin

    def blocking(self) -> BlockingMesh:
        """This mesh for code that does not await: docs/blocking.md. Always the same object.

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
