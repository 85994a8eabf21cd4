"""The processes of a simulated machine, and how they start, die and come back.

Each machine runs the real runtime, put together as `antiphon.assembly` does it, on an engine
whose line can fail. A crash cuts the line first and ends the tasks then, so that no clean-up
reaches the log; what a disk would hold (key, clock mark, replica file) is there at the next boot.
A process that ends because the engine is unreachable is started again, as by a supervisor. One that
dies of anything else broke a law.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from antiphon.core.archive.checkpoint import Checkpoint
from antiphon.core.authority import grant_terms
from antiphon.core.authority.delegations import open_token, token_of
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.presence.cards import Card
from antiphon.core.record import signing
from antiphon.core.ucan import Delegation, Payload
from antiphon.engines.memory import MemoryEngine
from antiphon.engines.memory.connection import Connection
from antiphon.engines.memory.oplog import MemoryLog
from antiphon.engines.memory.pull_queue import MemoryDelivery, MemoryQueue
from antiphon.engines.memory.queues import QueueStore
from antiphon.engines.memory.server import MeshState
from antiphon.errors import Conflict, Rejected, Unavailable
from antiphon.ports import Record
from antiphon.runtime.attention.attention_table import Attention, AttentionTable
from antiphon.runtime.attention.item_guard import BUG
from antiphon.runtime.coordinator.coordinator import Coordinator
from antiphon.runtime.coordinator.offer_audit import OfferAudit
from antiphon.runtime.coordinator.quorums import Quorums
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.full_node import Applied, FullNode
from antiphon.runtime.node.overdue_jobs import OverdueJobs
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.plans.plan_runner import PlanRunner
from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch
from antiphon.runtime.presence.roll_call import OwnPresence
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.worker.worker import Worker, WorkerSettings
from antiphon.testing.host_clock import HostClock, SeededEntropy
from antiphon.testing.virtual_time import Host
from simulator.actors.clock_marks import DiskMark, ProcessMark
from simulator.checks.referee import Referee
from simulator.cluster import Cluster
from simulator.network import Network

LOAN_S: Final = 10.0
ROUND_S: Final = 5.0
BAR_S: Final = 32.0
"""Pause between two looks of a caretaker: what an idle hour costs."""
SLOTS: Final = 4
DRAIN_S: Final = 4.0
PAPER_S: Final = 5.0
"""Between two tries of a process to put its own delegation on the log."""

OnAck = Callable[[Record], None]


class WatchedKeyring:
    """A key whose every signature the referee hears of."""

    def __init__(self, seed: str, referee: Referee, *, is_honest: bool) -> None:
        """The same seed is the same key."""
        self._seed = seed
        self._is_honest = is_honest
        self._keyring = SeedKeyring(hashlib.sha256(seed.encode()).digest())
        self._referee = referee
        self.did = self._keyring.did

    def sign(self, payload_type: str, payload: bytes) -> bytes:
        """Sign, and tell."""
        self._referee.signed(self.did, payload, is_honest=self._is_honest)
        return self._keyring.sign(payload_type, payload)

    def signs_with_others(self, op_bytes: bytes) -> None:
        """One of the ops under the signature that follows."""
        if self._is_honest:
            self._referee.dated(self.did, op_bytes)

    def copied(self) -> WatchedKeyring:
        """The same key in hands that do not care what they sign."""
        return WatchedKeyring(self._seed, self._referee, is_honest=False)

    def sign_checkpoint(self, checkpoint: Checkpoint) -> bytes:
        """Sign a checkpoint."""
        return self._keyring.sign_checkpoint(checkpoint)

    def delegate(self, payload: Payload) -> Delegation:
        """Sign a delegation, and tell."""
        delegation = self._keyring.delegate(payload)
        self._referee.signed(self.did, delegation.raw, is_honest=False)
        return delegation


class WatchedAuthor(Author):
    """An author that says which ops it signs together: their signature shows only their root."""

    def _blocks(self, ops: Any) -> list[signing.Block]:
        if len(ops) > 1 and isinstance(self._keyring, WatchedKeyring):
            for one in ops:
                self._keyring.signs_with_others(one.op_bytes)
        return super()._blocks(ops)


class WatchedDelivery(MemoryDelivery):
    """A delivery whose acknowledgement is heard of."""

    __slots__ = ("_on_ack",)

    def __init__(
        self,
        delivery: MemoryDelivery,
        store: QueueStore,
        connection: Connection,
        on_ack: OnAck,
    ) -> None:
        super().__init__(delivery.record, delivery.deliveries, store, connection)
        self._on_ack = on_ack

    def ack(self) -> None:
        """Tell, then acknowledge."""
        if not self._connection.is_closed:
            self._on_ack(self.record)
        super().ack()


class WatchedQueue(MemoryQueue):
    """A queue that hands out watched deliveries."""

    def __init__(self, connection: Connection, store: QueueStore, on_ack: OnAck) -> None:
        self._on_ack = on_ack
        super().__init__(connection, store)

    async def next(self) -> MemoryDelivery:
        """The next delivery, watched."""
        delivery = await super().next()
        return WatchedDelivery(delivery, self._store, self._connection, self._on_ack)


class WatchedLog(MemoryLog):
    """A log whose queues are watched."""

    def __init__(
        self, connection: Connection, mesh: MeshState, *, loan_s: float, on_ack: OnAck
    ) -> None:
        super().__init__(connection, mesh, loan_s=loan_s)
        self._on_ack = on_ack

    @asynccontextmanager
    async def work(self, subject: str, *, name: str) -> AsyncIterator[MemoryQueue]:
        """Join a queue, watched."""
        make = partial(self._mesh.queue, name, subject, self._loan_s)
        store = await self._connection.write("work", make)
        queue = WatchedQueue(self._connection, store, self._on_ack)
        try:
            yield queue
        finally:
            await queue.close()


class WatchedEngine(MemoryEngine):
    """An engine of which the referee hears every acknowledgement."""

    def __init__(self, cluster: Cluster, network: Network, on_ack: OnAck) -> None:
        super().__init__(cluster.server, cluster.mesh, faults=network, loan_s=LOAN_S)
        state = cluster.server.mesh(cluster.mesh)
        self.log = WatchedLog(self._connection, state, loan_s=LOAN_S, on_ack=on_ack)


class Machine(ABC):
    """One machine with one key at a time."""

    is_honest = True
    needs: ClassVar[tuple[str, ...]] = ()
    """Commands that it is granted where every op needs a chain, if they are not about jobs."""

    def __init__(self, cluster: Cluster, name: str, *, clock: HostClock) -> None:
        """Switched off."""
        self.cluster = cluster
        self.name = name
        self.clock = clock
        self.host: Host | None = None
        self.engine: WatchedEngine | None = None
        self.mark = DiskMark()
        self.boots = 0
        self._keys = 0
        self._lives = 0
        self._process_mark: ProcessMark | None = None
        self._house: WatchedKeyring | None = None
        self._paper = ""
        self.keyring = self._new_key()

    def _new_key(self) -> WatchedKeyring:
        self._keys += 1
        return self._key(f"key{self._keys}")

    def _key(self, name: str) -> WatchedKeyring:
        seed = f"{self.cluster.seed}/{self.name}/{name}"
        return WatchedKeyring(seed, self.cluster.referee, is_honest=self.is_honest)

    @property
    def holder(self) -> str:
        """Whom others delegate to: the machine's own key, or the one of its process."""
        return self._house.did if self._house is not None else self.keyring.did

    def settle(self) -> None:
        """Have a key of the machine's own, which passes everything on to its process."""
        self._house = self._key("house")
        self._pass_on()

    def _pass_on(self) -> None:
        if self._house is not None:
            nonce = random.Random(f"{self.cluster.seed}/{self.keyring.did}").randbytes
            payload = grant_terms.passing_on(
                issuer=self._house.did,
                audience=self.keyring.did,
                mesh=self.cluster.mesh,
                alias=self.name,
                nonce=nonce,
            )
            self._paper = token_of(self._house.delegate(payload).raw)

    @property
    def is_up(self) -> bool:
        """Whether a process runs on it, frozen or not."""
        return self.host is not None

    def boot(self, *, fresh_key: bool = False) -> None:
        """Start a process; with a fresh key it is a stranger to the mesh."""
        if self.is_up:
            return
        if fresh_key:
            self.keyring = self._new_key()
            self.mark = DiskMark()
            self._pass_on()
        self.boots += 1
        self.host = Host(self.name, self.cluster.loop)
        if self.is_honest:
            self.cluster.referee.honest_hosts.add(self.host)
        self.host.start(self._live())

    def kill(self) -> None:
        """The process dies: nothing that it would still do reaches anybody."""
        if self.host is None:
            return
        if self.engine is not None:
            self.engine.crash()
        if self._process_mark is not None:
            self._process_mark.cut()
        self.let_go()
        self.host.kill()
        self.cluster.dead.append(self.host)
        self.host = None

    def come_to_rest(self) -> None:  # noqa: B027 - most machines have nothing to finish
        """All faults have stopped: finish what was begun."""

    @property
    def is_at_rest(self) -> bool:
        """Whether it has finished."""
        return True

    def let_go(self) -> None:  # noqa: B027 - most machines have nothing to close
        """Files that the operating system closes when a process dies."""

    def connect(self) -> Session:
        """A line, an author and a clock: what every process begins with."""
        self._lives += 1
        label = f"{self.cluster.seed}/{self.name}/{self._lives}"
        if self.engine is not None:
            self.engine.crash()
        network = Network(self.name, self.cluster.weather, random.Random(label + "/network"))
        self.engine = WatchedEngine(self.cluster, network, self._acked)
        self._process_mark = ProcessMark(self.mark)
        author = WatchedAuthor(
            self.cluster.mesh,
            self.keyring,
            self.clock,
            max_drift_ms=2_000,
            mark=self._process_mark,
            protocol=self.cluster.protocol,
        )
        return Session(self.engine, author, self.clock, SeededEntropy(label))

    async def bring_paper(self, session: Session) -> None:
        """Put on the log what the machine passed on to this process, however long it takes."""
        body = DelegateBody(token=self._paper) if self._paper else None
        while body is not None:
            await session.sync_control()
            cid = open_token(body.token).cid
            if session.history.grants.find(cid, before=session.history.applied + 1) is not None:
                return
            with suppress(Conflict, Rejected):
                await write_one(session, Intent(UcanDelegate, body))
                return
            await asyncio.sleep(PAPER_S)

    def _acked(self, record: Record) -> None:
        if self.is_honest:
            self.cluster.referee.acked(self.name, record)

    async def _live(self) -> None:
        """Run, and run again whenever only the engine was away."""
        host = self.host
        while True:
            try:
                await self.run()
            except Exception as problem:  # noqa: BLE001 - whatever a process dies of
                if host is not None and host.is_dead:
                    return
                self._died(problem)
            else:
                break
            self.let_go()
            await asyncio.sleep(1.0)
        if self.host is host:
            self.host = None

    def _died(self, problem: Exception) -> None:
        causes = list(leaves(problem))
        for cause in causes:
            if not isinstance(cause, Unavailable):
                where = "".join(traceback.format_exception(cause)[-4:])
                what = f"{self.name} died of {type(cause).__name__}: {cause}\n{where}"
                self.cluster.referee.accuse("nobody_dies", what)

    @abstractmethod
    async def run(self) -> None:
        """One life of the process: until it is done, or dies."""


def leaves(problem: BaseException) -> list[BaseException]:
    """The exceptions inside a group, or the one."""
    if isinstance(problem, BaseExceptionGroup):
        return [leaf for part in problem.exceptions for leaf in leaves(part)]
    return [problem]


class WorkerMachine(Machine):
    """Runs a light worker."""

    def __init__(
        self, cluster: Cluster, name: str, *, clock: HostClock, handlers: Handlers
    ) -> None:
        """`handlers` are what it can run."""
        super().__init__(cluster, name, clock=clock)
        self._handlers = handlers
        self.kinds = tuple(handlers.kinds)
        self.worker: Worker | None = None

    async def run(self) -> None:
        """Work until drained."""
        settings = WorkerSettings(slots=SLOTS, drain_s=DRAIN_S)
        session = self.connect()
        await self.bring_paper(session)
        self.worker = Worker(session, self._handlers.executors(), settings)
        await self.worker.run()

    def drain(self) -> None:
        """Ask the worker to stop in good order."""
        if self.worker is not None:
            self.worker.drain()

    def let_go(self) -> None:
        """Nothing on disk."""
        self.worker = None


class FullMachine(Machine):
    """Runs a full node and its caretaker."""

    def __init__(
        self, cluster: Cluster, name: str, *, clock: HostClock, replica_path: Path | str
    ) -> None:
        """A path survives a crash; `:memory:` does not."""
        super().__init__(cluster, name, clock=clock)
        self.replica_path = replica_path
        self.replica: Replica | None = None
        self.node: FullNode | None = None

    async def run(self) -> None:
        """Follow and look after the mesh."""
        session = self.connect()
        cluster = self.cluster
        self.replica = Replica(self.replica_path, mesh=cluster.mesh, protocol=cluster.protocol)
        self._accuse_bugs(self.replica.attention)
        self.node = FullNode(session, self.replica)
        self.node.watchers += [self._tell, OfferAudit(self.node).applied]
        watch = HeartbeatWatch(session, self.replica.presence.add, self.replica.known_nodes)
        presence = OwnPresence(session, self.keyring, self._card, watch)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.node.run())
            tasks.create_task(watch.run())
            tasks.create_task(presence.run())
            tasks.create_task(OverdueJobs(self.node, watch, round_s=ROUND_S).run())
            tasks.create_task(Coordinator(self.node).run())
            tasks.create_task(Quorums(self.node).run())
            tasks.create_task(Sealer(self.node, bar_s=BAR_S).run())
            tasks.create_task(PlanRunner(self.node).run())

    def _card(self) -> Card:
        now_ms = self.clock.now_ms()
        return Card(node=self.keyring.did, alias=self.name, role="node", version="0", at_ms=now_ms)

    def _accuse_bugs(self, attention: AttentionTable) -> None:
        """What is set aside must be an item's fault: services survive bugs, and so hide them."""
        keep = attention.put

        def put(one: Attention) -> None:
            if BUG in one.reason:
                what = f"{self.name} set aside {one.service} {one.item}: {one.reason}"
                self.cluster.referee.accuse("no_bugs", what)
            keep(one)

        attention.put = put  # type: ignore[method-assign]

    def _tell(self, applied: Applied) -> None:
        self.cluster.referee.applied(self.name, applied)

    def let_go(self) -> None:
        """Close the file as a dying process does: what was not flushed is gone."""
        if self.replica is not None:
            self.replica.close()
        self.replica = self.node = None
