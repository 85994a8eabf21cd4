"""Seals on both engines: who makes them, who finds them wrong, and what they find (spec §7.5)."""

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.families.seals.state import Sealed, SealLane, leaf_of
from antiphon.core.family import Mark
from antiphon.core.proof import merkle
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, Unavailable
from antiphon.ports import Record
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.full_node import SEAL_LANE, FullNode
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from antiphon.sdk.log_watch import watching
from tests.runtime.meshes import QUICK, a_mesh, call, eventually, on_both_engines

BAR_S = 0.3
WRONG = "0" * 64


async def a_coordinator(mesh, **how) -> FullNode:
    """A full node under the owner's key, which coordinates until another is named."""
    return await mesh.node(connection=await mesh.connection(mesh.owner), bar_s=BAR_S, **how)


def verdicts_on_seals(node: FullNode) -> list[str]:
    return [one.verdict.value for one in node.replica.lane_records(SEAL_LANE)]


async def write_seal(node: FullNode, **fields) -> int:
    """A seal as this node's key would write it, whatever it says."""
    node.replica.flush()
    mark = node.replica.tree.mark_at(node.applied)
    said = {"upto": node.applied, "size": mark.size, "root": mark.root, **fields}
    session = node.session
    draft = session.draft(MeshSeal, SealBody(**said), prev=node.seals.tail)
    return await session.commit(draft)


async def verdict_of(node: FullNode, seq: int) -> Verdict:
    await node.reached(seq)
    return node.replica.record(seq).verdict


@pytest.mark.req("S8")
@on_both_engines
async def test_what_happens_is_sealed_and_a_second_node_agrees(engine):
    async with a_mesh(engine) as mesh:
        first = await a_coordinator(mesh)
        second = await mesh.node(caretaking=False)
        called = await call(second.session, 1)
        await eventually(lambda: second.seals.upto >= called.seq)
        assert set(verdicts_on_seals(second)) == {"ok"}
        await first.reached(second.seals.state.seq)
        assert first.seals == second.seals
        path = second.replica.tree.inclusion(called.seq, second.seals.upto)
        stored = second.replica.record(called.seq)
        record = stored.record
        leaf = leaf_of(
            record.seq, record.commit_ms, record.subject, record.payload, stored.verdict.value
        )
        seal = second.session.open(second.replica.record(second.seals.state.seq).record).op.body
        root = merkle.root_from_inclusion(
            called.seq - 1, seal.size, merkle.leaf_hash(leaf), [bytes.fromhex(n) for n in path]
        )
        assert root.hex() == seal.root


@on_both_engines
async def test_a_bar_has_one_seal_and_silence_none(engine):
    async with a_mesh(engine, replace(QUICK, offer_after_ms=60_000)) as mesh:
        node = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        sealer = Sealer(node, bar_s=BAR_S, calm_s=0.01)
        await mesh.stack.enter_async_context(beside(sealer.run()))
        for number in range(25):
            called = await call(node.session, number)
            await asyncio.sleep(0.04)
        await eventually(lambda: node.seals.upto >= called.seq)
        await asyncio.sleep(2 * BAR_S)
        stamps = [one.record.commit_ms for one in node.replica.lane_records(SEAL_LANE)]
        assert len(stamps) > 2
        assert all(b - a >= BAR_S * 900 for a, b in pairwise(stamps))
        newest, count = node.applied, len(stamps)
        await asyncio.sleep(3 * BAR_S)
        assert node.applied == newest
        assert len(verdicts_on_seals(node)) == count


@pytest.mark.req("M15")
@on_both_engines
async def test_a_wrong_seal_is_refused_and_shouted_about(engine):
    async with a_mesh(engine) as mesh:
        liar = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        node = await mesh.node(caretaking=False)
        with capture_logs() as events:
            seq = await write_seal(liar, root=WRONG)
            assert await verdict_of(node, seq) is Verdict.SEAL
        told = [e for e in events if e["event"] == "seal_mismatch" and e["here"] != WRONG]
        assert told
        assert all(e["log_level"] == "error" and e["seal"] == seq for e in told)
        assert await verdict_of(node, await write_seal(liar)) is Verdict.OK


@on_both_engines
async def test_only_the_coordinators_seal_counts(engine):
    async with a_mesh(engine) as mesh:
        node = await mesh.node(caretaking=False)
        assert await verdict_of(node, await write_seal(node)) is Verdict.NOT_COORDINATOR
        assert node.seals.upto == 0
        assert not await Sealer(node, bar_s=BAR_S).seal()
        assert verdicts_on_seals(node) == ["not_coordinator"]
        assert (await node.session.log.last()).seq == node.applied == 2


DAMAGE = {
    "lost": "delete from records where seq = ?",
    "changed": "update records set payload = cast(payload || 'x' as blob) where seq = ?",
    "judged otherwise": "update records set verdict = 'stale' where seq = ?",
    "moved in time": "update records set stamp_ns = stamp_ns + 1000000 where seq = ?",
}


@pytest.mark.req("S8")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_replica_that_lost_or_changed_a_record_is_found_by_the_next_seal(damage):
    async with a_mesh("memory") as mesh:
        sound = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        harmed = await mesh.node(caretaking=False)
        sealer = Sealer(sound, bar_s=BAR_S)
        assert await sealer.seal()
        called = await call(sound.session, 1)
        await harmed.reached(called.seq)
        harmed.replica._db.execute(DAMAGE[damage], (called.seq,))
        with capture_logs() as events:
            assert await sealer.seal()
            await harmed.reached(sound.seals.state.seq)
        assert verdicts_on_seals(harmed) == ["ok", "seal"]
        assert [e["event"] for e in events] == ["seal_mismatch"]


async def test_a_coordinator_whose_own_records_are_damaged_does_not_seal_them():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        called = await call(node.session, 1)
        await node.reached(called.seq)
        node.replica._db.execute(DAMAGE["changed"], (called.seq,))
        with capture_logs() as events:
            assert not await Sealer(node, bar_s=BAR_S).seal()
        assert [e["event"] for e in events] == ["seal_mismatch"]
        assert verdicts_on_seals(node) == []


@on_both_engines
async def test_sealing_goes_on_under_another_coordinator(engine):
    async with a_mesh(engine) as mesh:
        first = await a_coordinator(mesh)
        heir = await mesh.node(bar_s=BAR_S)
        await eventually(lambda: heir.seals.state)
        session = first.session
        body = CoordinatorBody(node=heir.session.author.did)
        seq = (await write_one(session, Intent(MeshCoordinator, body))).seq
        await eventually(lambda: first.seals.upto >= seq)
        assert first.seals.state.hlc_author == heir.session.author.did
        assert set(verdicts_on_seals(first)) <= {"ok", "not_coordinator"}


@pytest.mark.req("S8")
@on_both_engines
async def test_a_restart_goes_on_where_the_last_seal_was(engine, tmp_path):
    async with a_mesh(engine) as mesh:
        path = tmp_path / "replica.db"
        owner = await mesh.connection(mesh.owner)
        async with AsyncExitStack() as life:
            replica = Replica(path, mesh=mesh.mesh)
            life.callback(replica.close)
            node = FullNode(owner.session, replica)
            await life.enter_async_context(beside(node.run(), ready=node.ready))
            await call(owner.session, 1)
            await eventually(lambda: node.applied >= 2)
            assert await Sealer(node, bar_s=BAR_S).seal()
            before = node.seals
        again = await a_coordinator(mesh, path=path)
        assert again.seals.state.seq >= before.state.seq > 0
        called = await call(again.session, 2)
        await eventually(lambda: again.seals.upto >= called.seq)
        fresh = await mesh.node(caretaking=False)
        assert set(verdicts_on_seals(fresh)) == {"ok"}
        assert fresh.seals == again.seals


def records(count: int, *, first: int = 1) -> list[Record]:
    return [Record(n, n * 10**6, "ap.m.else", b"%d" % n) for n in range(first, first + count)]


def test_the_tree_survives_reopening_at_every_size(tmp_path):
    leaves = merkle.Frontier()
    for record in records(70):
        replica = Replica(tmp_path / "replica.db", mesh="m")
        replica.note(record, Verdict.SUBJECT)
        replica.flush()
        leaves.append(leaf_of(record.seq, record.seq, record.subject, record.payload, "subject"))
        assert replica.tree.mark_at(record.seq) == Mark(leaves.size, leaves.root().hex())
        replica.close()


def test_a_rejected_record_names_what_its_lane_accepted_last_unless_the_lane_is_empty():
    replica = Replica(":memory:", mesh="m")
    sealed = Sealed(1, (1, 0), "did:key:z6Mk", 1, 1)
    states = [sealed, sealed, sealed, None, None]
    for record, state in zip(records(5), states, strict=True):
        verdict = Verdict.OK if record.seq == 1 else Verdict.STALE
        replica.note(record, verdict, SEAL_LANE, SealLane((record.seq,), state))
        if record.seq != 3:  # in the file, or only in memory
            replica.flush()
    assert [replica.record(seq).after for seq in range(1, 6)] == [0, 1, 1, 0, 0]
    replica.close()


def test_places_without_a_record_have_no_leaf():
    replica = Replica(":memory:", mesh="m")
    for record in [*records(20), *records(20, first=31)]:
        replica.note(record, Verdict.SUBJECT)
    replica.flush()
    assert [replica.tree.size_at(seq) for seq in (1, 20, 25, 30, 31, 50)] == [1, 20, 20, 20, 21, 40]
    root = bytes.fromhex(replica.tree.mark_at(50).root)
    for record in (records(1)[0], records(1, first=20)[0], records(1, first=31)[0]):
        path = [bytes.fromhex(node) for node in replica.tree.inclusion(record.seq, 40)]
        leaf = leaf_of(record.seq, record.seq, record.subject, record.payload, "subject")
        index = replica.tree.size_at(record.seq) - 1
        hashed = merkle.leaf_hash(leaf)
        assert merkle.root_from_inclusion(index, 40, hashed, path) == root
    replica.close()


def test_everything_since_the_last_seal_is_read_again():
    replica = Replica(":memory:", mesh="m")
    for record in records(100):
        replica.note(record, Verdict.SUBJECT)
    replica.flush()
    replica._db.execute("update records set verdict = 'ok' where seq = 40")
    assert not replica.tree.mark_at(100, since=39).root
    assert not replica.tree.mark_at(100).root
    assert replica.tree.mark_at(100, since=60).root
    replica.close()


def test_old_damage_is_found_in_time():
    replica = Replica(":memory:", mesh="m")
    for record in records(3000):
        replica.note(record, Verdict.SUBJECT)
    replica.flush()
    assert all(replica.tree.mark_at(3000, since=2990).root for _ in range(4))
    replica._db.execute("delete from records where seq = 1500")
    assert not all(replica.tree.mark_at(3000, since=2990).root for _ in range(2))
    replica.close()


def test_a_file_whose_end_was_cut_off_is_not_taken_up_again(tmp_path):
    replica = Replica(tmp_path / "replica.db", mesh="m")
    for record in records(20):
        replica.note(record, Verdict.SUBJECT)
    replica.flush()
    replica._db.execute("delete from records where seq = 20")
    replica.close()
    with pytest.raises(Corrupt, match="ends at record 19"):
        Replica(tmp_path / "replica.db", mesh="m")


async def test_who_watches_sees_whose_seal_counts():
    async with a_mesh("memory") as mesh:
        owner = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        other = await mesh.node(caretaking=False)
        async with watching((await mesh.connection()).session) as batches:
            first = await write_seal(other)
            await owner.reached(first)
            await write_seal(owner)
            events = []
            while len(events) < 2:
                events += await anext(batches)
        assert [event.verdict.value for event in events] == ["not_coordinator", "unseen"]
        assert "sealed the log up to record 2" in events[1].words


async def test_a_member_that_sees_some_kinds_only_judges_all_but_the_root():
    async with a_mesh("memory") as mesh:
        liar = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        connection = await mesh.connection()
        connection.session.log.reads = ("ctl.>", "jobs.job.test.*.>", "seal")
        member = await mesh.node(caretaking=False, connection=connection)
        assert await verdict_of(member, await write_seal(liar, root=WRONG)) is Verdict.UNSEEN
        draft = member.session.draft(
            MeshSeal, SealBody(upto=2, size=2, root=WRONG), prev=member.seals.tail
        )
        assert (
            await verdict_of(member, await member.session.commit(draft)) is Verdict.NOT_COORDINATOR
        )
        with pytest.raises(Unavailable, match="only some kinds"):
            member.replica.tree.inclusion(1, 2)
