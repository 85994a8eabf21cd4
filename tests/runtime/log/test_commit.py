"""Writes whose outcome is unknown, lost races, and the clock behind them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.families.jobs.ops import CancelBody, ClaimBody, JobCancel, JobClaim
from antiphon.core.families.mesh import table
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator, MeshRules, RulesBody
from antiphon.core.policy.backoff import backoff_ms
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, LostRace, Misconfigured, OutcomeUnknown, Outdated, Rejected
from antiphon.ports import Record
from antiphon.runtime.identity.key_files import FileMark, SeedKeyring
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from tests.patience import PATIENCE_S
from tests.runtime.meshes import KIND, QUICK, a_mesh, call, on_both_engines


class Unreliable:
    """An engine's log that stores and then does not answer, or neither, a few times."""

    def __init__(self, log, *, stored: bool, times: int) -> None:
        self._log, self._stored, self._left = log, stored, times

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, payload, **rest):
        if self._left:
            self._left -= 1
            if self._stored:
                await self._log.append(subject, payload, **rest)
            raise OutcomeUnknown("no answer")
        return await self._log.append(subject, payload, **rest)


@on_both_engines
@pytest.mark.req("P5")
@pytest.mark.parametrize("stored", [True, False])
async def test_an_unanswered_write_is_found_or_repeated_but_never_stored_twice(engine, stored):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        session.log = Unreliable(session.log, stored=stored, times=2)
        called = await call(session, 1)
        assert called.is_new
        view = await session.read_lane(KIND, called.id)
        assert len(view.history) == 1


@on_both_engines
@pytest.mark.parametrize("foretold", [True, False])
async def test_nobody_keeps_an_op_off_the_log_by_taking_its_message_id(engine, foretold):
    """An op's id can be foretold; the digest of the signed record cannot, and is not needed."""
    async with a_mesh(engine) as mesh:
        rogue, session = (await mesh.connection()).session, (await mesh.connection()).session
        await session.sync_control()
        body = CancelBody(kind=KIND, job="0" * 64)
        draft = session.draft(JobCancel, body, prev=0)
        taken = draft.op_id if foretold else digest(draft.payload)
        junk = f"ap.{mesh.mesh}.jobs.job.{KIND}.{'1' * 64}"
        await rogue.log.append(junk, b"junk", message_id=taken, expected_last=0)
        seq = await session.commit(draft)
        assert (await session.log.fetch(seq)).payload == draft.payload
        assert await session.commit(draft) == seq, "and once only"


@on_both_engines
@pytest.mark.req("P5", "M10")
async def test_of_two_claims_on_a_fresh_job_the_second_gets_a_conflict(engine):
    async with a_mesh(engine) as mesh:
        caller, one, two = [(await mesh.connection()).session for _ in range(3)]
        called = await call(caller, 1)
        body = ClaimBody(kind=KIND, job=called.id, lease_ms=600)
        results = await asyncio.gather(
            *(session.commit(session.draft(JobClaim, body, prev=0)) for session in (one, two)),
            return_exceptions=True,
        )
        assert {type(result) for result in results} == {int, LostRace}


@on_both_engines
@pytest.mark.req("P5")
@pytest.mark.parametrize("stored", [True, False])
async def test_a_claim_that_got_no_answer_here_and_is_tried_elsewhere_is_there_once(engine, stored):
    """The same claim through another connection, while a rival tries too: all see one outcome."""
    async with a_mesh(engine) as mesh:
        caller, rival = [(await mesh.connection()).session for _ in range(2)]
        key = SeedKeyring(mesh.entropy.token(32))
        here, elsewhere = [(await mesh.connection(key)).session for _ in range(2)]
        called = await call(caller, 1)
        for session in (here, rival):
            await session.read_lane(KIND, called.id)
        body = ClaimBody(kind=KIND, job=called.id, lease_ms=600)
        draft = here.draft(JobClaim, body, prev=0)
        log = Unreliable(here.log, stored=stored, times=1)
        with pytest.raises(OutcomeUnknown):
            await log.append(
                draft.subject, draft.payload, message_id=digest(draft.payload), expected_last=0
            )
        seq = await elsewhere.commit(draft)
        assert await here.commit(draft) == await elsewhere.commit(draft) == seq
        for _ in range(2):  # a conflict is the same each time
            with pytest.raises(LostRace):
                await rival.commit(rival.draft(JobClaim, body, prev=0))
        for reader in (caller, here, elsewhere, rival):
            view = await reader.read_lane(KIND, called.id, at_least=seq)
            assert [one.opened.seq for one in view.history] == [called.seq, seq]
            assert view.lane.job.claimer == key.did


@on_both_engines
@pytest.mark.req("P5")
async def test_a_job_that_is_submitted_again_elsewhere_is_the_same_job(engine):
    async with a_mesh(engine) as mesh:
        sessions = [(await mesh.connection()).session for _ in range(4)]
        sessions[0].log = Unreliable(sessions[0].log, stored=True, times=1)
        told = await asyncio.gather(*(call(session, 1) for session in sessions))
        assert len({(one.id, one.seq) for one in told}) == 1
        assert sum(one.is_new for one in told) == 1


@pytest.mark.req("P6", "M24")
@given(st.integers(0, 60), st.floats(0, 1, exclude_max=True))
def test_waits_between_tries_double_up_to_the_cap_and_are_jittered(attempt, chance):
    wait = backoff_ms(attempt, base_ms=50, cap_ms=2_000, chance=chance)
    floor = min(50 * 2**attempt, 2_000)
    assert floor <= wait <= min(floor + 50, 2_000)
    if floor + 50 <= 2_000:
        other = backoff_ms(attempt, base_ms=50, cap_ms=2_000, chance=(chance + 0.5) % 1)
        assert other != wait, "two workers do not come back in step"


@on_both_engines
async def test_a_full_node_restarts_where_it_stopped(engine, tmp_path):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        first = await call(caller, 1)
        async with asyncio.timeout(PATIENCE_S):
            path = tmp_path / "replica.db"
            replica = Replica(path, mesh=mesh.mesh)
            node = FullNode((await mesh.connection()).session, replica)
            async with beside(node.run(), ready=node.ready):
                await node.reached(first.seq)
            stopped_at = replica.cursor
            replica.close()
            second = await call(caller, 2)
            replica = Replica(path, mesh=mesh.mesh)
            assert replica.cursor == stopped_at
            again = FullNode((await mesh.connection()).session, replica)
            seen = []
            again.watchers.append(lambda applied: seen.append(applied.record.seq))
            async with beside(again.run(), ready=again.ready):
                await again.reached(second.seq)
            assert seen == list(range(stopped_at.seq + 1, second.seq + 1))
            assert replica.sizes.by_state() == {"pending": 2}
            replica.close()


@on_both_engines
async def test_a_replica_that_the_log_contradicts_stops_the_node(engine, tmp_path):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        replica = Replica(tmp_path / "replica.db", mesh=mesh.mesh)
        node = FullNode(session, replica)
        await node.apply([Record(1, 1, f"ap.{mesh.mesh}.ctl.genesis", b"not what the log has")])
        with pytest.raises(Corrupt, match="differs from the one"):
            await FullNode((await mesh.connection()).session, replica).resume()
        later = Record(99, 1, f"ap.{mesh.mesh}.ctl.genesis", b"from a longer log")
        await node.apply([later])
        with pytest.raises(Corrupt, match="the log ends at"):
            await FullNode((await mesh.connection()).session, replica).resume()
        replica.close()


def test_a_replica_of_another_mesh_is_refused(tmp_path):
    Replica(tmp_path / "replica.db", mesh="a" * 16).close()
    with pytest.raises(Corrupt, match="is of mesh"):
        Replica(tmp_path / "replica.db", mesh="b" * 16)


@on_both_engines
async def test_owner_ops_are_accepted_in_place_and_others_are_told_why_not(engine):
    async with a_mesh(engine) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        stranger = (await mesh.connection()).session
        body = CoordinatorBody(node=stranger.author.did)
        await write_one(owner, Intent(MeshCoordinator, body))
        assert owner.control.coordinator == stranger.author.did
        await stranger.sync_control()
        with pytest.raises(Rejected) as refused:
            await write_one(stranger, Intent(MeshCoordinator, body))
        assert refused.value.reason == "not_owner"


@on_both_engines
async def test_a_node_stops_at_a_protocol_that_it_does_not_have(engine, monkeypatch):
    monkeypatch.setattr(table, "NOTICE_MS", 300)
    async with a_mesh(engine) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        replica = Replica(":memory:", mesh=mesh.mesh)
        node = FullNode((await mesh.connection()).session, replica)
        newer = RulesBody(rules=type(QUICK)(authority="open", protocol=PROTOCOL.number + 1))

        async def raise_the_protocol() -> None:
            async with beside(node.run(), ready=node.ready):
                seq = await owner.commit(owner.draft(MeshRules, newer, prev=0))
                await node.reached(seq)
                assert node.replica.record(seq).verdict is Verdict.OK, "it is announced"
                await asyncio.sleep(0.4)  # the notice itself is what is waited for
                junk = f"ap.{mesh.mesh}.jobs.job.{KIND}.{'0' * 64}"
                later = await owner.log.append(junk, b"", message_id="x", expected_last=0)
                await node.reached(later)

        with pytest.raises(Outdated, match=f"protocol {PROTOCOL.number + 1}"):
            await raise_the_protocol()
        assert replica.cursor.seq == 2, "nothing was applied from there on"
        with pytest.raises(Outdated):
            await owner.sync_control()
        replica.close()


def test_a_restarted_author_never_reuses_a_timestamp(tmp_path):
    from antiphon.runtime.log.author import Author

    class Stepping:
        def __init__(self) -> None:
            self.ms = 1_000_000

        def now_ms(self) -> int:
            return self.ms

        def boot_s(self) -> float:
            return 0.0

    wall, key = Stepping(), SeedKeyring(b"k" * 32)
    issued = []
    for step in (0, 5_000, -50_000, 1, -1):
        wall.ms += step
        author = Author("m" * 16, key, wall, max_drift_ms=2000, mark=FileMark(tmp_path / "mark"))
        issued += [author.tick() for _ in range(3)]
    assert len(issued) == len(set(issued)), "none twice, over restarts and clock steps"


async def test_a_blocks_own_error_comes_out_as_it_is():
    async def forever() -> None:
        await asyncio.sleep(3600)

    with pytest.raises(Misconfigured, match="mine"):
        async with beside(forever()):
            raise Misconfigured("mine")


async def test_a_failing_service_ends_the_block_with_its_error():
    async def failing() -> None:
        await asyncio.sleep(0)
        raise Misconfigured("the service's")

    with pytest.raises(Misconfigured, match="service's"):
        async with beside(failing()):
            await asyncio.sleep(3600)
