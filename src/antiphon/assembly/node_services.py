"""What runs on a connection: workers, full nodes, and the replica that commands read."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.subject_rights import exceeds
from antiphon.core.presence.cards import Card, Role
from antiphon.errors import Held, Misconfigured, Unavailable
from antiphon.runtime.identity.host_clock import installed_version
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.record_verifier import RecordVerifier
from antiphon.runtime.presence.roll_call import OwnPresence
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from antiphon.assembly.mesh_connection import MeshConnection
    from antiphon.runtime.executors.executor import Executors
    from antiphon.runtime.identity.key_files import FileLock
    from antiphon.runtime.identity.state_directory import StateDirectory
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
    from antiphon.runtime.worker.battery_watch import Battery
    from antiphon.runtime.worker.worker import Worker, WorkerSettings

BAR_S: Final = 32.0
"""A bar at the default tempo: eight beats of four seconds (spec §7.5)."""
ARCHIVE_S: Final = 3600.0
"""How often what has ended is archived."""
WRITER_S: Final = 5.0
"""How long a reader waits until the process that keeps the replica has caught up."""
READERS_S: Final = 120.0
"""How long a node waits for commands that bring the replica up to date: the first of them may have
a whole log to read."""
TOLD_EVERY_S: Final = 2.0
LOOK_S: Final = 0.01

log = LazyLogger(__name__)


@asynccontextmanager
async def working(
    connection: MeshConnection,
    executors: Executors,
    settings: WorkerSettings,
    battery: Battery | None = None,
    *,
    clock: BeatClock | None = None,
    outbox: Path | None = None,
) -> AsyncIterator[Worker]:
    """A light worker beside a block; drained when the block ends.

    `battery` None is this machine's; without a clock it follows the pulse. `outbox` is the folder
    where what jobs make waits that went on without the engine.
    """
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.tempo.machine_use import MachineUse
    from antiphon.runtime.worker.battery_watch import BatteryWatch, HostBattery
    from antiphon.runtime.worker.worker import Worker

    if not executors.kinds:
        raise Misconfigured(
            "no task is registered and no command is offered, so there is nothing to run",
            hint='decorate a function with @mesh.task("example.add")',
        )
    beats = None
    if clock is None:
        beats = clock = BeatClock(connection.session)
    worker = Worker(connection.session, executors, settings, clock)
    worker.status_sender.cpu = MachineUse().cpu
    if outbox is not None:
        from antiphon.assembly.artifact_store import blobs_of
        from antiphon.runtime.outbox.outbox_store import OutboxStore
        from antiphon.runtime.outbox.worker_outbox import WorkerOutbox

        store, blobs = OutboxStore(outbox), blobs_of(connection)
        worker.keep_in(WorkerOutbox(store, connection.session, blobs))

    def card() -> Card:
        return _card(
            connection,
            "worker",
            kinds=tuple(executors.kinds),
            labels=settings.traits.labels,
            weight=settings.traits.weight,
            slots=settings.slots,
            busy=worker.busy,
            done=worker.done,
        )

    presence = OwnPresence(connection.session, connection.keyring, card)
    services = [worker.run(), presence.run()]
    if settings.battery_low:
        watch = BatteryWatch(worker, battery or HostBattery(), low=settings.battery_low)
        services.append(watch.run())
    async with AsyncExitStack() as stack:
        ran = beside(*services, ready=worker.ready, drain=worker.drain)
        await stack.enter_async_context(ran)
        await presence.said.wait()  # whoever submits next should find this worker online
        if beats is not None:  # now that the control state is known
            await stack.enter_async_context(beats.listen())
        yield worker


@asynccontextmanager
async def announcing(connection: MeshConnection) -> AsyncIterator[None]:
    """Say that an agent is there while the block runs. Nothing that goes wrong there ends it."""
    presence = OwnPresence(
        connection.session, connection.keyring, lambda: _card(connection, "agent")
    )
    saying = asyncio.ensure_future(presence.run())
    try:
        yield
    finally:
        saying.cancel()
        await asyncio.wait([saying])
        if not saying.cancelled():
            saying.exception()  # read, so that nobody is told


def _card(connection: MeshConnection, role: Role, **fields: object) -> Card:
    return Card(
        node=connection.keyring.did,
        alias=connection.alias,
        agent=connection.agent,
        role=role,
        version=installed_version(),
        at_ms=connection.session.wall.now_ms(),
        **fields,  # type: ignore[arg-type]
    )


@asynccontextmanager
async def replicating(  # noqa: PLR0913 - one argument for each thing that may be left out
    connection: MeshConnection,
    replica: Replica,
    *,
    caretaking: bool,
    bar_s: float = BAR_S,
    metrics: TempoMetrics | None = None,
    archive: str | None = None,
    is_purging: bool = True,
) -> AsyncIterator[FullNode]:
    """A full node beside a block, ready once it has caught up.

    With `caretaking` it also runs the services that full nodes run for the mesh, sealing included
    where it is the coordinator: at most one seal per `bar_s`. Pulse and reverb fill in
    `metrics`. What is sealed is written to `archive`, too, and what is there leaves the log when
    the mesh's rules say so, unless `is_purging` is false. Without an archive nothing leaves it.
    """
    from antiphon.assembly.artifact_store import blobs_of

    verifier, blobs = verifier_for(connection), blobs_of(connection)
    node = FullNode(connection.session, replica, verifier, blobs=blobs)

    def card() -> Card:
        counts_by = pulse.card() if node.ready.is_set() else None  # by what the log says
        return _card(connection, "node", applied=node.applied, pulse=counts_by)

    services = [node.run()]
    if caretaking:
        from antiphon.runtime.archive.record_eraser import RecordEraser
        from antiphon.runtime.archive.snapshot_audit import SnapshotAudit
        from antiphon.runtime.attention.item_guard import ItemGuard, keep_running
        from antiphon.runtime.coordinator.coordinator import Coordinator
        from antiphon.runtime.coordinator.offer_audit import OfferAudit
        from antiphon.runtime.coordinator.quorums import Quorums
        from antiphon.runtime.node.artifact_eviction import Evictor
        from antiphon.runtime.node.attention_reports import AttentionReports
        from antiphon.runtime.node.coordinator_watch import CoordinatorWatch
        from antiphon.runtime.node.entry_service import EntryService
        from antiphon.runtime.node.overdue_jobs import OverdueJobs
        from antiphon.runtime.node.root_service import RootService
        from antiphon.runtime.node.sealer import Sealer
        from antiphon.runtime.node.write_volume_watch import VolumeWatch
        from antiphon.runtime.plans.plan_audit import PlanAudit
        from antiphon.runtime.plans.plan_runner import PlanRunner
        from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch
        from antiphon.runtime.tempo.beat_clock import BeatClock
        from antiphon.runtime.tempo.pulse import Pulse
        from antiphon.runtime.tempo.reverb import Reverb

        clock, keyring = BeatClock(connection.session), connection.keyring
        watch = HeartbeatWatch(connection.session, replica.presence.add, replica.known_nodes)
        reverb = Reverb(node, clock, keyring, metrics)
        node.watchers += [
            VolumeWatch(node).applied,
            OfferAudit(node).applied,
            PlanAudit(node).applied,
        ]
        plans = PlanRunner(node)
        pulse = Pulse(clock, keyring, reverb.metrics, suggest=reverb.suggestion)
        kept: dict[str, Callable[[], Awaitable[None]]] = {
            "offers": Coordinator(node, blobs=blobs).run,
            "quorums": Quorums(node).run,
            "coordinator watch": CoordinatorWatch(node, watch.coordinator_heard_ms).run,
            "leases": OverdueJobs(node, watch).run,
            "plans": plans.run,
            "pulse": partial(pulse.run, node.ready),
            "reports": reverb.run,
            "seals": Sealer(node, bar_s=bar_s).run,
            "lane entries": EntryService(node).run,
            "roots": RootService(node, keyring).run,
            "artifacts": Evictor(node, blobs=blobs).run,
            "erasures": RecordEraser(node).run,
            "snapshot audit": SnapshotAudit(node, blobs=blobs).run,
            "heartbeats": watch.run,
            "attention": AttentionReports(node, keyring).run,
            "presence": OwnPresence(connection.session, connection.keyring, card, watch).run,
        }
        if archive is not None:
            from antiphon.assembly.artifact_store import files_at
            from antiphon.runtime.archive.archive_writer import ArchiveWriter
            from antiphon.runtime.coordinator.archiver import Archiver, Archiving

            writer = ArchiveWriter(node, keyring, files_at(archive))
            kept["archive"] = writer.run
            if is_purging:
                archiver = Archiver(
                    node,
                    Archiving(every_s=ARCHIVE_S, is_purging=True),
                    blobs=blobs,
                    unwritten=plans.unwritten_ms,
                    copied=lambda: writer.size,
                )
                kept["purges"] = archiver.run
        services += [
            keep_running(ItemGuard(name, node.session, replica.attention), run)
            for name, run in kept.items()
        ]
    with verifier:
        async with beside(*services, ready=node.ready):
            yield node


def verifier_for(connection: MeshConnection) -> RecordVerifier:
    """Threads that verify ahead of a full node; the memory engine's loop may have none."""
    from antiphon.engines.memory import MemoryEngine

    session = connection.session
    threads = 1 if isinstance(connection.engine, MemoryEngine) else None
    return RecordVerifier(session.protocol, session.mesh, threads)


@asynccontextmanager
async def local_replica(home: StateDirectory, connection: MeshConnection) -> AsyncIterator[Replica]:
    """The machine's replica, up to date: kept by another process, or caught up right here.

    It is locked only for the latter, and then read: whoever wants to keep it waits no longer.
    """
    mesh, protocol = connection.session.mesh, connection.session.protocol
    try:
        lock = home.lock_replica()
    except Held:
        replica = Replica(home.replica, mesh=mesh, protocol=protocol, read_only=True)
        try:
            await _wait_for_writer(connection, replica)
        except BaseException:
            replica.close()
            raise
    else:
        try:
            with closing(Replica(home.replica, mesh=mesh, protocol=protocol)) as written:
                async with replicating(connection, written, caretaking=False):
                    pass
                replica = Replica(home.replica, mesh=mesh, protocol=protocol, read_only=True)
        finally:
            lock.release()
    with closing(replica):
        yield replica


async def _wait_for_writer(connection: MeshConnection, replica: Replica) -> None:
    reads = connection.session.log.reads
    if exceeds(reads, replica.reads or ()):
        raise Unavailable(
            "another antiphon process is keeping the replica with fewer kinds than this machine may"
            " read now",
            hint="restart that process: it then uses the newest login",
        )
    await caught_up(connection, replica, lambda: replica.refresh().seq)


async def caught_up(
    connection: MeshConnection, replica: Replica, seen: Callable[[], int] | None = None
) -> Replica:
    """A replica that something else keeps, once it has what is on the log now.

    `seen` says how far it is, if another process keeps it.
    """
    seen = seen or (lambda: replica.cursor.seq)
    newest = await connection.session.log.last()
    goal = newest.seq if newest else 0
    try:
        async with asyncio.timeout(WRITER_S):
            while seen() < goal:  # noqa: ASYNC110 - the writer may be another process
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise Unavailable(
            f"the replica is at record {replica.cursor.seq}, the log at {goal}",
            hint="the antiphon process that keeps the replica is behind; try again",
        ) from None
    return replica


@asynccontextmanager
async def owned_replica(
    path: Path | str, home: StateDirectory | None, connection: MeshConnection
) -> AsyncIterator[Replica]:
    """A replica that only this process writes; `Held` if another process keeps it."""
    session = connection.session
    with ExitStack() as stack:
        if home is not None:
            stack.callback(_keeper(home).release)
            stack.callback((await _lock_to_write(home)).release)
        replica = Replica(path, mesh=session.mesh, protocol=session.protocol)
        yield stack.enter_context(closing(replica))


def _keeper(home: StateDirectory) -> FileLock:
    try:
        return home.keep_replica()
    except Held as held:
        raise Held(
            f"another process keeps the replica in {home.path}",
            hint="one full node per state directory is enough; 'antiphon nodes' shows it",
        ) from held


async def _lock_to_write(home: StateDirectory) -> FileLock:
    """The replica's lock, as soon as no command holds it to bring the replica up to date."""
    now_s = asyncio.get_running_loop().time
    began_s = told_s = now_s()
    while True:
        try:
            return home.lock_replica()
        except Held as held:
            waited_s = now_s() - began_s
            if waited_s >= READERS_S:
                words = f"{held.message}, for {READERS_S:g} s now"
                raise Held(words, hint=f"fuser {home.replica} names it") from held
            if now_s() - told_s >= TOLD_EVERY_S:
                told_s = now_s()
                log.warning("replica_in_use", problem=held.message, seconds=round(waited_s))
        await asyncio.sleep(LOOK_S)
