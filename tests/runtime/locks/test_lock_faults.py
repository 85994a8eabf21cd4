"""What goes wrong around locks: crashes, stalls, skew, revocations, one-way partitions.

The questions that the seed left open, each with its answer.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon.core.authority import grant_terms
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import Rules
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.locks.state import lock_key
from antiphon.core.policy.circuit_breaker import CircuitBreaker
from antiphon.core.protocol import PROTOCOL
from antiphon.engines.memory import MemoryEngine
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.errors import AntiphonError, CircuitOpen, LockLost, StaleFence, Unavailable
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.sdk.locks.fenced_file import FencedFile
from antiphon.testing.host_clock import HostClock
from tests.runtime.locks.lockers import KEY, OPEN, SCOPE, TTL_MS, lock_of
from tests.runtime.meshes import EPOCH_MS, MeshUnderTest, a_mesh

pytestmark = [pytest.mark.virtual_time, pytest.mark.req("S7")]
TTL_S = TTL_MS / 1000


async def node_with(mesh: MeshUnderTest, *, skew_ms=0.0, faults=None, key=None) -> Session:
    wall = HostClock(asyncio.get_running_loop(), epoch_ms=EPOCH_MS, skew_ms=skew_ms)
    engine = MemoryEngine(mesh.memory, mesh.mesh, faults=faults)
    mesh.stack.push_async_callback(engine.close)
    await genesis.write(engine.log, mesh.signed_genesis)
    keyring = key or SeedKeyring(mesh.entropy.token(32))
    author = Author(mesh.mesh, keyring, wall, max_drift_ms=100, mark=NoMark())
    session = Session(engine, author, wall, mesh.entropy)
    await session.sync_control()
    return session


async def test_a_crashed_holder_blocks_nobody_beyond_its_ttl_and_nothing_has_to_be_swept():
    async with a_mesh("memory", OPEN) as mesh:
        crashed, other = await node_with(mesh), await node_with(mesh)
        lock = await lock_of(crashed).take()
        lock._keeper.cancel()
        crashed.engine.crash()
        began = asyncio.get_running_loop().time()
        late = await lock_of(other).take()
        waited = asyncio.get_running_loop().time() - began
        assert TTL_S <= waited < TTL_S + 1
        assert late.fence > lock.fence
        view = await other.read(lock_key(SCOPE, KEY))
        takes = [one.opened.op.type_name() for one in view.history]
        assert takes == ["lock.take"] * 2, "nothing was written to end the first"
        await late.release()


async def test_two_believed_holders_of_whom_one_knows_better_and_has_the_lower_fence(tmp_path):
    """A holder stands still, with its block, until somebody else holds the lock."""
    async with a_mesh("memory", OPEN) as mesh:
        stalled, other = await node_with(mesh), await node_with(mesh)
        lock, file = await lock_of(stalled).take(), FencedFile(tmp_path / "shared")
        lock._keeper.cancel()
        late = await lock_of(other).take()
        file.write_text("new", fence=late.fence)
        assert not lock.is_held, "its own clock says so, without asking anybody"
        with pytest.raises(LockLost, match="its time is over"):
            lock.check()
        with pytest.raises(StaleFence):
            file.write_text("old", fence=lock.fence)
        assert file.read_text() == "new"
        await lock.release()
        assert late.is_held, "what it releases is no longer there"
        await late.release()


async def test_a_held_lock_is_renewed_whatever_the_breaker_says():
    """A renewal that is skipped is a lock that is lost."""
    async with a_mesh("memory", OPEN) as mesh:
        node = await node_with(mesh)
        lock = await lock_of(node).take()
        node.breaker = breaker = CircuitBreaker(failures=1, reset_s=1e9)
        breaker.failed(breaker.ask(0.0), 0.0)
        with pytest.raises(CircuitOpen):
            await lock_of(node, key="another").take()
        await asyncio.sleep(2 * TTL_S)
        assert lock.is_held
        await lock.release()


async def test_a_holder_stops_before_anybody_else_can_hold_the_lock():
    async with a_mesh("memory", OPEN) as mesh:
        cut, other = await node_with(mesh), await node_with(mesh)
        times = dict[str, float]()
        now_s = asyncio.get_running_loop().time

        async def hold():
            try:
                async with lock_of(cut):
                    cut.engine.sever()
                    await asyncio.sleep(10 * TTL_S)
            except LockLost:
                times["stopped"] = now_s()

        holding = asyncio.create_task(hold())
        await asyncio.sleep(0.1)
        late = await lock_of(other).take()
        times["taken"] = now_s()
        await holding
        assert times["stopped"] < times["taken"]
        await late.release()


async def test_a_revoked_holders_renewal_is_refused_its_block_cancelled_and_another_takes():
    """The race between handing out and revoking: the log has one order of the two."""
    async with revocable() as (revoke, holder, other):
        with pytest.raises(LockLost, match="refused: a delegation in the chain was revoked"):  # noqa: PT012
            async with lock_of(holder):
                await revoke()
                await asyncio.sleep(2 * TTL_S)
        late = await lock_of(other, wait_s=0).take()
        await late.release()


async def test_a_waiter_has_the_lock_of_a_revoked_holder_at_once():
    async with revocable() as (revoke, holder, other):
        now_s = asyncio.get_running_loop().time

        async def wait():
            return await lock_of(other).take(), now_s()

        with pytest.raises(LockLost):  # noqa: PT012 - what happens inside the block
            async with lock_of(holder):
                waiting = asyncio.create_task(wait())
                await asyncio.sleep(1)
                await revoke()
                revoked_s = now_s()
                await asyncio.sleep(2 * TTL_S)
        late, taken_s = await waiting
        assert taken_s - revoked_s < 2
        await late.release()


@asynccontextmanager
async def revocable():
    """A holder whose permission can be revoked, and another with one of its own."""
    async with a_mesh("memory", Rules(max_drift_ms=100)) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        keys = [SeedKeyring(mesh.entropy.token(32)) for _ in range(2)]
        cids = [await grant(owner, mesh, key) for key in keys]
        holder, other = [await node_with(mesh, key=key) for key in keys]

        async def revoke():
            await write_one(owner, Intent(UcanRevoke, RevokeBody(cid=cids[0])))

        yield revoke, holder, other


async def grant(owner: Session, mesh: MeshUnderTest, key: SeedKeyring) -> str:
    terms = grant_terms.Terms(can=("lock",), kinds=("repo.*",))
    [payload] = PROTOCOL.rights.payloads(
        terms,
        issuer=mesh.owner.did,
        audience=key.did,
        owner=mesh.owner.did,
        nonce=mesh.entropy.token,
    )
    given = mesh.owner.delegate(payload)
    await write_one(owner, Intent(UcanDelegate, DelegateBody(token=token_of(given.raw))))
    return given.cid


@pytest.mark.parametrize("skews", [(90, -90), (-90, 90)])
async def test_clocks_that_differ_within_the_drift_make_no_two_holders(skews):
    async with a_mesh("memory", OPEN) as mesh:
        nodes = [await node_with(mesh, skew_ms=skew) for skew in skews]
        inside, most = 0, 0

        async def work(session):
            nonlocal inside, most
            for _ in range(5):
                try:
                    async with lock_of(session, ttl_ms=5_000):
                        inside += 1
                        most = max(most, inside)
                        await asyncio.sleep(1)
                finally:
                    inside -= 1

        async with asyncio.TaskGroup() as group:
            for session in nodes:
                group.create_task(work(session))
        assert most == 1


@pytest.mark.parametrize("behind", [0.5, 0.9])
async def test_a_holder_with_a_slow_clock_stops_before_the_next_one_begins(behind):
    """Its hold ends early by the log's clock, and the log's answers tell it so."""
    async with a_mesh("memory", OPEN) as mesh:
        slow, right = await node_with(mesh, skew_ms=-behind * TTL_MS), await node_with(mesh)
        lock = await lock_of(slow).take()
        lock._keeper.cancel()  # nothing renews it: the engine does not answer any more
        late = await lock_of(right).take()
        assert not lock.is_held
        await late.release()


async def test_a_holder_with_a_slow_clock_renews_in_time_to_keep_its_lock():
    async with a_mesh("memory", OPEN) as mesh:
        lock = await lock_of(await node_with(mesh, skew_ms=-TTL_MS / 2)).take()
        await asyncio.sleep(5 * TTL_S)
        assert lock.is_held
        view = await (await node_with(mesh)).read(lock_key(SCOPE, KEY))
        assert len(view.history) < 5 * 12 + 2, "it does not renew without a pause"
        await lock.release()


async def test_a_clock_that_is_an_hour_ahead_ends_nobodys_hold_and_takes_nothing():
    async with a_mesh("memory", OPEN) as mesh:
        right, wrong = await node_with(mesh), await node_with(mesh, skew_ms=3_600_000)
        async with lock_of(right) as lock:
            with pytest.raises(AntiphonError):
                await lock_of(wrong, wait_s=0).take()
            await asyncio.sleep(2 * TTL_S)
            assert lock.is_held


class DeafWriter:
    """What it sends arrives; no answer and no news ever comes back, from some time on."""

    def __init__(self) -> None:
        self.is_cut = False

    def _fate(self) -> Fate:
        return Fate(answer_lost=True, lost=False) if self.is_cut else FINE

    def request(self, _what: str) -> Fate:
        return self._fate()

    def delivery(self) -> Fate:
        return Fate(lost=self.is_cut)

    def notice(self) -> Fate:
        return Fate(lost=self.is_cut)

    def bus(self) -> Fate:
        return Fate(lost=self.is_cut)

    def reconnect(self) -> Fate:
        return FINE


async def test_a_one_way_partition_stops_the_holder_though_its_renewals_still_arrive():
    async with a_mesh("memory", OPEN) as mesh:
        faults = DeafWriter()
        cut, other = await node_with(mesh, faults=faults), await node_with(mesh)
        now_s = asyncio.get_running_loop().time
        began = now_s()
        with pytest.raises(LockLost, match="no renewal was acknowledged in time"):  # noqa: PT012
            async with lock_of(cut):
                faults.is_cut = True
                await asyncio.sleep(10 * TTL_S)
        assert now_s() - began <= TTL_S
        late = await lock_of(other).take()
        assert now_s() - began <= 3 * TTL_S, "what arrived prolonged it, and then it ended"
        await late.release()


async def test_who_waits_for_a_lock_while_the_engine_is_away_is_not_told_that_somebody_holds_it():
    async with a_mesh("memory", OPEN) as mesh:
        faults = DeafWriter()
        away, holder = await node_with(mesh, faults=faults), await node_with(mesh)
        async with lock_of(holder):
            waiting = asyncio.ensure_future(lock_of(away, wait_s=4 * TTL_S).take())
            await asyncio.sleep(TTL_S)
            faults.is_cut = True
        with pytest.raises(Unavailable, match=r"could not be taken within \d+ s: "):
            await waiting
