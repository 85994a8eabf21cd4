"""The mesh that `chaos outsider` attacks, as `antiphon init` makes it, and its members.

    owner       hosts the server, the gate and a full node, and calls jobs
    victim      a member that may claim `build.*`, and works
    observer    a member that may read everything, and replicates
    contractor  a member that may claim `render.*`; its login is the outsider's

Everything runs in one process over TLS on loopback. Each of the first three has a task of its own,
so that it shows which of them was brought down.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.assembly.logins import log_in
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.ports import Record
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.worker.worker import Worker
from antiphon.sdk.handle import JobHandle
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from chaos.cluster.participant import BroughtDown, Participant
from chaos.network.raw_connection import RawConnection

BUILD: Final = "build.image"
RENDER: Final = "render.video"
SECRET: Final = "secret.plan"  # noqa: S105 - a kind
RULES: Final = Rules(offer_after_ms=1_500, max_drift_ms=500, lease_min_ms=1_000)
"""Lost announcements are repeated, and the shortest holds end, so soon that a run can wait."""
WORK_S: Final = 64.0
"""After which the victim's job was stopped, and not just slowed by floods or a busy machine."""
PATIENCE_S: Final = 120.0
PROBE_S: Final = 40.0
GREETING: Final = b"INFO"
"""The first bytes of every NATS server."""

CANARY: Final = "canary-of-others-"
_CANARY_FORMS: Final = [
    CANARY.encode(),
    *(base64.b64encode(b"x" * shift + CANARY.encode())[4:-4] for shift in range(3)),
]
_JOB_ID: Final = re.compile(rb"[0-9a-f]{64}")

T = TypeVar("T")


def canaries_in(data: bytes) -> list[str]:
    """What is in it of others, in the clear or in base64."""
    return [one.decode() for one in _CANARY_FORMS if one in data]


class Breach(Exception):
    """The outsider got or broke something that it must not."""


class Host(Struct, frozen=True):
    """The owner's machine."""

    hosting: hosted_mesh.Hosting
    mesh: Mesh
    node: FullNode


class Member(Struct, frozen=True):
    """The victim or the observer, at work."""

    mesh: Mesh
    worker: Worker | None = None
    node: FullNode | None = None


@asynccontextmanager
async def _host(directory: Path) -> AsyncIterator[Host]:
    """What `antiphon init` leaves running."""
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1", "localhost"))
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(
            hosted_mesh.found_and_host(directory, name="outsider", listen=listen, rules=RULES)
        )
        mesh = await stack.enter_async_context(Mesh.open(home=directory, role="client"))
        node = await stack.enter_async_context(mesh.node())
        await hosted.coordinate(node)
        await stack.enter_async_context(hosted.gate(node))
        yield Host(hosted, mesh, node)


def _answering(
    home: StateDirectory, kind: str
) -> Callable[[], AbstractAsyncContextManager[Member]]:
    async def echo(text: str) -> str:
        return text

    @asynccontextmanager
    async def place() -> AsyncIterator[Member]:
        mesh = Mesh.open(home=home.path, role="client")
        mesh.task(kind)(echo)
        async with mesh, mesh.worker() as worker:
            yield Member(mesh, worker=worker)

    return place


def _replicating(home: StateDirectory) -> Callable[[], AbstractAsyncContextManager[Member]]:
    @asynccontextmanager
    async def place() -> AsyncIterator[Member]:
        async with Mesh.open(home=home.path, role="client") as mesh, mesh.node() as node:
            yield Member(mesh, node=node)

    return place


class TargetMesh:
    """One mesh and its members; there is a new one after a breach, so that the next is intact."""

    def __init__(self, directory: Path, rounds: float) -> None:
        """`rounds` multiplies the size of floods."""
        self.directory = directory
        self._rounds = rounds
        self.contractor = StateDirectory(directory / "contractor")
        self.victim = StateDirectory(directory / "victim")
        self.observer = StateDirectory(directory / "observer")
        self.connections: list[RawConnection] = []
        """Every connection of the outsider's."""
        self.hidden: set[bytes] = set()
        """The ids of jobs that it must not learn."""
        self.is_expelled = False
        """Whether the owner has revoked the contractor's grant."""
        self.ticket: hosted_mesh.Ticket
        self.host: Host
        self.working: Member
        self.replicating: Member
        self.connection: RawConnection
        self._participants: list[Participant[Any]] = []
        self._seen: dict[int, tuple[int, str, str]] = {}
        self._searched: dict[int, int] = {}
        self._leaked: list[str] = []

    def scaled(self, count: int) -> int:
        """How large a flood of this size is in this run."""
        return max(1, round(count * self._rounds))

    # --- setting up and tearing down ----------------------------------------------------------

    async def set_up(self) -> None:
        """Found the mesh, let everybody join and work, and call the first jobs."""
        self.host = await self._start("owner's machine", lambda: _host(self.directory / "owner"))
        home = self.owner_home
        self.ticket = hosted_mesh.invite(home, _terms("claim", "render.*", "contractor"))
        await hosted_mesh.redeem(self.contractor, self.ticket, alias="contractor")
        for place, terms in (
            (self.victim, _terms("claim", "build.*", "victim")),
            (self.observer, _terms("read", "*", "observer")),
        ):
            await hosted_mesh.redeem(place, hosted_mesh.invite(home, terms), alias=terms.alias)
        self.working = await self._start("victim's worker", _answering(self.victim, BUILD))
        self.replicating = await self._start("observer's node", _replicating(self.observer))
        await log_in(self.contractor, self.contractor.access(), [RENDER])
        self.connection = await self.connect()
        for _ in range(2):
            handle = await self.owner.submit(SECRET, self.canary())
            self.hidden.add(handle.id.encode())
        await self.check_work()

    async def _start(self, called: str, place: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        participant = Participant(called, place, patience_s=PATIENCE_S)
        self._participants.append(participant)
        return await participant.start()

    async def tear_down(self) -> None:
        """Stop all participants, the last one first."""
        for connection in self.connections:
            with suppress(Exception):
                await connection.close()
        for participant in reversed(self._participants):
            await participant.stop()

    async def join(self, alias: str, *, can: str = "claim") -> StateDirectory:
        """One more machine of the contractor's."""
        home = StateDirectory(self.directory / alias)
        ticket = hosted_mesh.invite(self.owner_home, _terms(can, "render.*", alias))
        await hosted_mesh.redeem(home, ticket, alias=alias)
        return home

    async def connect(self, home: StateDirectory | None = None, **how: Any) -> RawConnection:
        """One more connection of the outsider's."""
        connection = await RawConnection.open(home or self.contractor, **how)
        self.connections.append(connection)
        return connection

    @asynccontextmanager
    async def answering(self, kind: str) -> AsyncIterator[None]:
        """A worker on the owner's machine while the block runs."""
        participant = Participant(
            "owner's worker", _answering(self.owner_home, kind), patience_s=PATIENCE_S
        )
        await participant.start()
        try:
            yield
        finally:
            await participant.stop()

    async def restart_victim(self) -> None:
        """Stop the victim's worker and start it again with a new login."""
        (participant,) = (one for one in self._participants if one.called == "victim's worker")
        await participant.stop()
        self._participants.remove(participant)
        access = self.victim.access()
        await asyncio.wait_for(log_in(self.victim, access, [BUILD]), PATIENCE_S)
        self.working = await self._start("victim's worker", _answering(self.victim, BUILD))

    async def restart_server(self) -> None:
        """Kill it and start it again; every member must reconnect by itself."""
        server = self.host.hosting.hosted.server
        server.kill()
        await server.start()
        connected = asyncio.ensure_future(self._all_connected())
        await _in_time(connected, "a member did not reconnect after a restart", PATIENCE_S)

    async def _all_connected(self) -> None:
        peers = [
            self.owner.connection.session,
            self.working.mesh.connection.session,
            self.replicating.mesh.connection.session,
        ]
        peers += [node.session for node in self.full_nodes]
        while not all(session.engine.connected for session in peers):
            self.check_participants()
            await asyncio.sleep(0.05)

    async def server_fault(self) -> str:
        """Why the server does not answer a fresh connection; empty if it does."""
        where = urlsplit(self.host.hosting.hosted.server.url)
        try:
            async with asyncio.timeout(PROBE_S):
                reader, writer = await asyncio.open_connection(where.hostname, where.port)
                try:
                    greeting = await reader.read(len(GREETING))
                finally:
                    writer.close()
        except (OSError, TimeoutError) as problem:
            return f"the server does not answer: {problem!r}"
        return "" if greeting == GREETING else f"what answers is no server: {greeting!r}"

    # --- members and what leaked ---------------------------------------------------------------

    @property
    def owner_home(self) -> StateDirectory:
        return StateDirectory(self.directory / "owner")

    @property
    def owner(self) -> Mesh:
        return self.host.mesh

    @property
    def mesh(self) -> str:
        return self.connection.mesh

    def canary(self) -> str:
        """A text that the outsider must never receive."""
        return f"{CANARY}{os.urandom(12).hex()}"

    def leaked(self) -> list[str]:
        """What the outsider received of others: canaries in the clear or in base64, and job ids."""
        for connection in self.connections:
            fresh = bytes(
                connection.received[max(0, self._searched.get(id(connection), 0) - 128) :]
            )
            self._searched[id(connection)] = len(connection.received)
            self._leaked += canaries_in(fresh)
            self._leaked += [one.decode() for one in set(_JOB_ID.findall(fresh)) & self.hidden]
        return self._leaked

    # --- checks -------------------------------------------------------------------------------

    async def check_work(self, within_s: float = WORK_S) -> None:
        """`Breach` unless the owner calls a job and the victim answers it in time."""
        self.check_participants()
        text = self.canary()
        handle = await _in_time(
            self.owner.submit(BUILD, text), "the owner could not call", within_s
        )
        self.hidden.add(handle.id.encode())
        await self.check_result(handle, text, within_s)

    async def check_result(
        self, handle: JobHandle[Any], text: str, within_s: float = WORK_S
    ) -> None:
        """`Breach` unless the job gives back its text in time."""
        result = await _in_time(handle.result(), f"a {handle.kind} job did not end", within_s)
        self.check_participants()
        if result != text:
            raise Breach(f"a {handle.kind} job ended with another result")

    def check_participants(self) -> None:
        """`Breach` if a participant was brought down."""
        for participant in self._participants:
            try:
                participant.check()
            except BroughtDown as down:
                raise Breach(str(down)) from down

    async def verdict(self, seq: int) -> Verdict:
        """What the owner's full node says of a record."""
        node = self.host.node
        await _in_time(node.reached(seq), f"the full node did not reach {seq}")
        stored = node.replica.record(seq)
        if stored is None:
            raise Breach(f"the full node has no record {seq}")
        return stored.verdict

    async def check_log(self, *, since: int = 0) -> None:
        """`Breach` if the log lost or changed a record, or a full node shows another log.

        With `since` only what came after it: the rest was checked before.
        """
        records = await _in_time(self.read_log(since), "the log could not be read")
        last = since + len(records)
        if [record.seq for record in records] != list(range(since + 1, last + 1)):
            raise Breach("records are missing from the log")
        for record in records:
            shown = (record.stamp_ns, record.subject, digest(record.payload))
            if self._seen.setdefault(record.seq, shown) != shown:
                raise Breach(f"record {record.seq} is another one now")
        if len(self._seen) > last:
            raise Breach(f"the log ends at {last}; {len(self._seen)} were there")
        for node in self.full_nodes:
            await _in_time(node.reached(last), f"a full node did not reach {last}")
            for record in records:
                stored = node.replica.record(record.seq)
                if stored is None or stored.record != record:
                    raise Breach(f"a full node shows another record at {record.seq}")

    async def read_log(self, after: int = 0) -> list[Record]:
        """The records after a sequence, as the owner reads them."""
        found: list[Record] = []
        more = True
        while more:
            page = await self.owner.connection.session.log.read(
                found[-1].seq if found else after, limit=2048
            )
            found += page.records
            more = page.more
        return found

    @property
    def full_nodes(self) -> list[FullNode]:
        """The owner's and the observer's."""
        shown = self.replicating.node
        return [self.host.node, *([] if shown is None else [shown])]

    async def check_all(self) -> None:
        """`Breach` unless work goes on and the log is intact."""
        await self.check_work()
        await self.check_log(since=len(self._seen))


async def _in_time(work: Awaitable[T], otherwise: str, within_s: float = WORK_S) -> T:
    try:
        return await asyncio.wait_for(work, within_s)
    except (TimeoutError, AntiphonError, ValueError) as problem:
        raise Breach(f"{otherwise}: {problem!r}"[:300]) from problem


def _terms(can: str, kind: str, alias: str) -> Terms:
    return Terms(can=(can,), kinds=(kind,), alias=alias)


@asynccontextmanager
async def target_mesh(rounds: float) -> AsyncIterator[TargetMesh]:
    """A mesh, ready, in a directory that is removed with it."""
    with tempfile.TemporaryDirectory(prefix="antiphon-outsider-") as directory:
        made = TargetMesh(Path(directory), rounds)
        try:
            await made.set_up()
            yield made
        finally:
            await made.tear_down()
