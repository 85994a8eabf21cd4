"""Lanes entered at a sealed record: the same state for everybody, whoever answers (spec §7.5)."""

import asyncio
from unittest.mock import patch

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.core.bus.subjects import ENTRY
from antiphon.core.families.locks.ops import LockTake, TakeBody
from antiphon.core.families.memory.ops import Inline
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.core.lane_entry import LaneEntry
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.log import entry_search, lane_reader
from antiphon.runtime.log.writer import Intent, Policy, write_one
from antiphon.runtime.memory.documents import Documents
from antiphon.runtime.node.entry_service import entry_of
from antiphon.runtime.node.sealer import Sealer
from tests.runtime.meshes import CALM, a_mesh, on_both_engines

SPACE, KEY = "notes", "plan"
LANE = document_key(SPACE, KEY)
LONG = lane_reader.ENTERED_FROM


def wanted(number: int, base: int, strategy="remote") -> Wanted:
    value = Inline(text=str(number))
    return Wanted(space=SPACE, key=KEY, agent="a", value=value, base=base, strategy=strategy)


async def written(mesh, *, puts: int, sealed_after: int):
    """A node that coordinates, and a document with so many revisions; some of them are sealed."""
    node = await mesh.node(connection=await mesh.connection(mesh.owner), bar_s=3_600)
    documents, base = Documents(node.session), 0
    for number in range(puts):
        base = (await documents.put(wanted(number, base))).document.revision
        if number == sealed_after:
            await node.reached(base)
            assert await Sealer(node, bar_s=0).seal()
    late = await documents.put(wanted(-1, base - 1, "defer"))
    assert late.outcome == "conflict"
    await node.reached((await node.session.log.last()).seq)
    return node


class Counted:
    """How many records a session has opened."""

    def __init__(self, session) -> None:
        self.opened = 0
        was = session.open

        def counting(record):
            self.opened += 1
            return was(record)

        session.open = counting


@on_both_engines
async def test_a_long_lane_is_entered_at_a_sealed_record_and_has_the_same_state(engine):
    async with a_mesh(engine, CALM) as mesh:
        node = await written(mesh, puts=LONG + 4, sealed_after=LONG)
        reader = (await mesh.connection()).session
        counted = Counted(reader)
        entered = await reader.enter(LANE)
        assert counted.opened < 16
        assert entered.lane == (await reader.read(LANE)).lane == node.replica.lane(LANE)
        found = await Documents((await mesh.connection()).session).read(SPACE, KEY)
        assert found.value == Inline(text=str(LONG + 3))


@pytest.mark.virtual_time
async def test_where_nobody_answers_the_lane_is_read_whole_and_nobody_is_asked_for_a_while():
    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection(mesh.owner)).session
        documents, base = Documents(session), 0
        for number in range(LONG):
            base = (await documents.put(wanted(number, base))).document.revision
        reader = (await mesh.connection()).session
        assert (await reader.enter(LANE)).lane == (await reader.read(LANE)).lane
        asked = []
        async with reader.engine.bus.subscribe(ENTRY.at()) as calls:
            other = (await mesh.connection()).session
            other._entry_search._quiet_until_s = other.wall.boot_s() + entry_search.QUIET_S
            assert await other.find_entry(LANE) is None
            await reader.engine.bus.publish(ENTRY.at(), b"last")
            async for call in calls:
                asked.append(call.payload)
                break
        assert asked == [b"last"]


LIES = {
    "another record": lambda entry: replace(entry, seq=entry.seq - 1),
    "another place": lambda entry: replace(entry, leaf=entry.leaf - 1),
    "another path": lambda entry: replace(entry, path=("0" * 64, *entry.path[1:])),
    "no seal": lambda entry: replace(entry, seal=entry.seal + 1),
    "a record that is not there": lambda entry: replace(entry, seq=10_000, seal=10_001),
    "junk": lambda _entry: b"junk",
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("lie", LIES)
async def test_whoever_answers_falsely_is_not_believed(lie):
    async with a_mesh("memory", CALM) as mesh:
        with patch.object(lane_reader, "ENTERED_FROM", 8):
            node = await written(mesh, puts=12, sealed_after=9)
            true = entry_of(node.replica, LANE)
            told = LIES[lie](true)
            reader = (await mesh.connection()).session
            payload = told if isinstance(told, bytes) else msgspec.json.encode(told)
            assert await reader._entry_search._checked(LANE, msgspec.json.encode(true)) is not None
            assert await reader._entry_search._checked(LANE, payload) is None
            assert (await reader.enter(LANE)).lane == node.replica.lane(LANE)


@pytest.mark.virtual_time
async def test_a_rejected_record_is_no_entry_even_if_it_is_sealed():
    from antiphon.core.families.memory.ops import MemoryBody, MemoryPut

    async with a_mesh("memory", CALM) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner), bar_s=3_600)
        documents, session = Documents(node.session), node.session
        await documents.put(wanted(1, 0))
        tail = (await session.read(LANE)).lane.tails[0]
        forged = MemoryBody(kind=SPACE, key=KEY, agent="a", value=Inline(text="2"), base=999)
        seq = await session.commit(session.draft(MemoryPut, forged, prev=tail))
        await node.reached(seq)
        assert await Sealer(node, bar_s=0).seal()
        true = entry_of(node.replica, LANE)
        assert true.seq == tail
        leaf, size = node.replica.tree.size_at(seq) - 1, node.seals
        assert size.upto >= seq
        path = tuple(node.replica.tree.inclusion(seq, node.replica.tree.size_at(size.upto)))
        lie = LaneEntry(seq=seq, leaf=leaf, path=path, seal=true.seal)
        reader = (await mesh.connection()).session
        assert await reader._entry_search._checked(LANE, msgspec.json.encode(lie)) is None


@pytest.mark.virtual_time
async def test_a_question_that_makes_no_sense_is_not_answered():
    async with a_mesh("memory", CALM) as mesh:
        node = await written(mesh, puts=3, sealed_after=1)
        bus = node.session.engine.bus
        async with bus.subscribe("inbox.x.1") as answers:
            for junk in (b"", b"\xff", b"ap.x.seal", b"x" * 300, b"ap.x.jobs.job.a.b"):
                await bus.publish(ENTRY.at(), junk, reply="inbox.x.1")
            subject = node.session.protocol.subjects_of(node.session.mesh, LANE)[0]
            await bus.publish(ENTRY.at(), subject.encode(), reply="inbox.x.1")
            first = await anext(answers)
        assert msgspec.json.decode(first.payload, type=LaneEntry).seq > 0


@pytest.mark.nats
async def test_a_members_full_node_runs_although_it_may_not_hear_questions(tmp_path):
    from antiphon.assembly import owned_replica, replicating
    from antiphon.core.authority.grant_terms import Terms
    from tests.runtime.gate.test_member_artifacts import hosted

    terms = Terms(can=("read",), kinds=("*",), alias="peer")
    async with (
        hosted(tmp_path, peer=terms) as (owner, peer),
        owned_replica(":memory:", None, peer.connection) as replica,
        replicating(peer.connection, replica, caretaking=True) as node,
    ):
        written = await owner.memory["notes"].put("plan", 1)
        await node.reached(written.document.revision)
        assert replica.lane(document_key("notes", "plan")).state.value == Inline(text="1")


async def test_a_second_look_at_a_long_lane_reads_what_is_new():
    async with a_mesh("memory", CALM) as mesh:
        node = await written(mesh, puts=LONG + 4, sealed_after=LONG)
        session = (await mesh.connection()).session
        documents, counted = Documents(session), Counted(session)
        base = (await documents.read(SPACE, KEY)).revision
        seen = counted.opened
        await Documents(node.session).put(wanted(7, base))
        assert (await documents.read(SPACE, KEY)).value == Inline(text="7")
        assert counted.opened - seen < 4


async def test_a_lock_that_was_taken_many_times_is_entered_too():
    async with a_mesh("memory", CALM) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner), bar_s=3_600)
        line = LockLine(node.session, "repo", "file", "main")
        for _ in range(LONG // 2 + 2):
            assert await line.take(10_000) is Verdict.OK
            assert await line.release(line.hold.fence) is Verdict.OK
        assert await line.take(10_000) is Verdict.OK
        await node.reached(line.lane.tails[0])
        assert await Sealer(node, bar_s=0).seal()
        session = (await mesh.connection()).session
        counted, other = Counted(session), LockLine(session, "repo", "file", "main")
        await other.look()
        assert other.hold == line.hold
        assert counted.opened < 16
        assert await other.take(10_000) is Verdict.LOCKED


@pytest.mark.virtual_time
async def test_whoever_enters_a_lock_at_a_renewal_finds_it_held_as_long_as_everybody_else():
    """A holder that asks for less time than it has left cannot make readers disagree."""
    async with a_mesh("memory", CALM) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner), bar_s=3_600)
        line = LockLine(node.session, "repo", "file", "main")
        for _ in range(4):
            assert await line.take(10_000) is Verdict.OK
            assert await line.release(line.hold.fence) is Verdict.OK
        assert await line.take(60_000) is Verdict.OK
        fence = line.hold.fence
        short = TakeBody(kind="repo", key="file", agent="main", ttl_ms=5_000, fence=fence)
        intent = Intent(LockTake, short, line.lane)
        written = await write_one(node.session, intent, Policy(insists=False))
        await node.reached(written.seq)
        assert await Sealer(node, bar_s=0).seal()
        await asyncio.sleep(6)
        assert await line.take(60_000, fence=fence) is Verdict.OK, "it still holds it"
        await node.reached(line.lane.tails[0])
        session = (await mesh.connection()).session
        with patch.object(lane_reader, "ENTERED_FROM", 8):
            newcomer = LockLine(session, "repo", "file", "main")
            await newcomer.look()
        assert newcomer.lane == node.replica.lane(newcomer.at)
        assert newcomer.hold == line.hold
        assert await newcomer.take(10_000) is Verdict.LOCKED
