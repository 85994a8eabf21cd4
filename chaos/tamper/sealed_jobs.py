"""Two sealed jobs on a log in memory, and a bundle of each: what `chaos tamper` changes.

The first job has records that a cheat would like to leave out: its first worker's authority is
revoked in the middle of the work, the second lets its lease run out, and the third completes it.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core import manifest
from antiphon.core.authority import grant_terms
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import Rules
from antiphon.core.cost.usage import Usage
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    ExpireBody,
    JobClaim,
    JobComplete,
    JobExpire,
    JobOp,
    JobSchedule,
    JobStart,
    ScheduleBody,
    StartBody,
)
from antiphon.core.protocol import PROTOCOL
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.runtime.executors.proof_writer import Run, prove, python_runner
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from antiphon.sdk.proofs import bundles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KIND = "chaos.tamper"
LEASE_MS = 200
RULES = Rules(
    max_drift_ms=100,
    lease_min_ms=LEASE_MS,
    lease_ms=LEASE_MS,
    lease_ms_max=4 * LEASE_MS,
)


class SealedJobs(Struct, frozen=True, kw_only=True):
    """The bundles, and what a check needs to know of them."""

    owner: str
    bundle: bytes
    other: bytes
    """The bundle of another job under the same seal."""
    revocation: int
    expiry: int
    """Sequences of the two records that a cheat would leave out."""


class ExportSource:
    """As much of a mesh as exporting needs."""

    def __init__(self, node: FullNode) -> None:
        self.session = node.session
        self._replica = node.replica

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[Replica]:
        yield self._replica


class MemoryMesh:
    """One mesh in memory, under one clock."""

    def __init__(self) -> None:
        self.wall, self.entropy = SystemClock(), SystemEntropy()
        self.owner = SeedKeyring(self.entropy.token(32))
        self.signed_genesis = genesis.sign(
            self.owner, self.wall, name="tamper", recovery=self.owner.did, rules=RULES
        )
        self.server = MemoryServer(self.wall)
        self.stack = AsyncExitStack()

    async def connect(self, keyring: SeedKeyring) -> Session:
        engine = MemoryEngine(self.server, self.signed_genesis.mesh)
        self.stack.push_async_callback(engine.close)
        await genesis.write(engine.log, self.signed_genesis)
        author = Author(
            self.signed_genesis.mesh, keyring, self.wall, max_drift_ms=100, mark=NoMark()
        )
        session = Session(engine, author, self.wall, self.entropy)
        await session.sync_control()
        return session

    async def add_worker(self, owner: Session) -> tuple[Session, str]:
        """A key with the right to claim, and the id of that delegation."""
        keyring = SeedKeyring(self.entropy.token(32))
        wanted = PROTOCOL.rights.payloads(
            grant_terms.Terms(can=("claim",)),
            issuer=self.owner.did,
            audience=keyring.did,
            owner=self.owner.did,
            nonce=self.entropy.token,
        )
        cids = []
        for payload in wanted:
            given = self.owner.delegate(payload)
            cids.append(given.cid)
            body = DelegateBody(token=token_of(given.raw))
            await write_one(owner, Intent(UcanDelegate, body))
        return await self.connect(keyring), cids[0]


async def _write(session: Session, op_type: type[JobOp], body: Struct, job_id: str) -> int:
    await session.sync_control()
    view = await session.read_lane(KIND, job_id)
    return await session.commit(session.draft(op_type, body, prev=view.lane.job_tail))


async def _fence(session: Session, job_id: str) -> str:
    found = (await session.read_lane(KIND, job_id)).lane.job
    if found is None or not found.fence:
        raise SystemExit("nobody holds the job, so there is nothing to tamper with")
    return found.fence


async def _call(owner: Session, word: str) -> tuple[str, manifest.Manifest]:
    content = manifest.author({"command": ["true"], "args": [word], "timeout": 30})
    body = ScheduleBody(kind=KIND, manifest=content)
    await owner.commit(owner.draft(JobSchedule, body, prev=0))
    return manifest.job_id(content), content


async def _claim(session: Session, job_id: str) -> None:
    body = ClaimBody(kind=KIND, job=job_id, lease_ms=LEASE_MS, begin=True)
    await _write(session, JobClaim, body, job_id)


async def _complete(session: Session, job_id: str, content: manifest.Manifest) -> None:
    body = CompleteBody(
        kind=KIND, job=job_id, fence=await _fence(session, job_id), status="succeeded", exit=0
    )
    run = Run(
        manifest=content,
        usage=Usage(wall_ms=1),
        runner=python_runner(),
    )
    await _write(session, JobComplete, prove(session, body, run), job_id)


async def make_sealed_jobs() -> SealedJobs:
    """Run both jobs, seal the log and export them."""
    mesh = MemoryMesh()
    async with mesh.stack:
        owner = await mesh.connect(mesh.owner)
        first, cid = await mesh.add_worker(owner)
        second, _ = await mesh.add_worker(owner)
        third, _ = await mesh.add_worker(owner)
        job_id, content = await _call(owner, "one")
        await _claim(first, job_id)
        fence = await _fence(first, job_id)
        revoke = Intent(UcanRevoke, RevokeBody(cid=cid))
        revocation = (await write_one(owner, revoke)).seq
        await _write(first, JobStart, StartBody(kind=KIND, job=job_id, fence=fence), job_id)
        await _claim(second, job_id)
        fence = await _fence(second, job_id)
        await asyncio.sleep(2 * LEASE_MS / 1000)
        over = ExpireBody(kind=KIND, job=job_id, fence=fence)
        expiry = await _write(owner, JobExpire, over, job_id)
        await _claim(third, job_id)
        await _complete(third, job_id, content)
        other, content = await _call(owner, "two")
        await _claim(third, other)
        await _complete(third, other, content)
        made = await _sealed(mesh, owner, [job_id, other])
    return SealedJobs(
        owner=mesh.owner.did,
        bundle=made[0],
        other=made[1],
        revocation=revocation,
        expiry=expiry,
    )


async def _sealed(mesh: MemoryMesh, owner: Session, jobs: list[str]) -> list[bytes]:
    replica = Replica(":memory:", mesh=mesh.signed_genesis.mesh)
    try:
        node = FullNode(owner, replica)
        async with beside(node.run(), ready=node.ready):
            if not await Sealer(node, bar_s=1.0).seal():
                raise SystemExit("the log could not be sealed")
            source: object = ExportSource(node)
            return [await bundles.export(source, KIND, job, wait_s=0) for job in jobs]  # type: ignore[arg-type]
    finally:
        replica.close()
