"""A member that may read some kinds only: it reads them as anybody would, and nothing else."""

import asyncio

import pytest

from antiphon.core.authority.scope import Scope
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.protocol import PROTOCOL
from antiphon.core.visible_subjects import sight_of
from antiphon.engines.nats import Login, NatsEngine, Reader
from antiphon.engines.nats.credentials.keypairs import UserKey
from antiphon.engines.nats.gate import scoped_reads
from antiphon.engines.nats.log import follower
from antiphon.engines.nats.member import scoped_direct_get
from antiphon.engines.nats.server.permissions import of_member
from antiphon.errors import EngineDenied, Misconfigured, RateLimited, Unavailable
from antiphon.testing.engine_suite.harness import collect, job_id, new_mesh, seqs, soon, whole_lane
from tests.engines.nats.harness import sever, until
from tests.engines.nats.scoped_mesh import IN_RENDER, MEMBER, scoped_mesh, scoped_reader
from tests.job_scopes import BRANCHES, job_scope

pytestmark = pytest.mark.nats


async def whole(log):
    return (await log.read(0, limit=4096)).records


@pytest.mark.req("M29")
async def test_pages_hold_what_is_in_scope_and_nothing_else():
    async with scoped_reader("render.>") as (here, reader):
        full = await whole(here.owner.log)
        shown = await reader.log.read(0, limit=99)
        assert shown.records == [record for record in full if record.seq in IN_RENDER]
        assert not shown.more
        after, found = 0, []
        while True:
            page = await reader.log.read(after, limit=2)
            found += seqs(page.records)
            if not page.more:
                break
            after = found[-1]
        assert found == IN_RENDER
        control = await reader.log.read(0, limit=9, subject=here.all_control())
        assert seqs(control.records) == [1, 7]
        wide = await reader.log.read(0, limit=9, subject=f"ap.{here.mesh}.jobs.job.>")
        assert seqs(wide.records) == [4, 6, 12]


async def test_a_kind_named_exactly_admits_neither_what_is_above_nor_below():
    async with scoped_reader("render.video", "render.audio.mix") as (here, reader):
        assert seqs(await whole(reader.log)) == [1, 2, 4, 6, 7, 8, 9, 11]
        assert seqs(await whole_lane(reader.log, here.lane("render.video", 1))) == [2, 4, 6]
        assert (
            await reader.log.fetch(6, newest_on=f"ap.{here.mesh}.jobs.job.render.video.1")
        ).seq == 6
        for kind, number in (("render", 4), ("render.video.deep", 5)):
            with pytest.raises(EngineDenied):
                await whole_lane(reader.log, here.lane(kind, number))


async def test_lanes_are_complete_and_in_order():
    async with scoped_reader("render.>") as (here, reader):
        for one in (
            here.lane("render.video", 1),
            job_subjects.lane(here.mesh, "render.video", job_id(1)),
        ):
            assert seqs(await whole_lane(reader.log, one)) == [2, 4, 6]
        assert seqs(await whole_lane(reader.log, here.lane("render.audio.mix", 3))) == [8, 9]
        assert await whole_lane(reader.log, here.lane("render.video", 9)) == []
        last = 0
        for _ in range(12):  # more than are walked back one by one
            last = await here.put("jobs.job.render.long.1", after=last)
            found = await whole_lane(reader.log, [f"ap.{here.mesh}.jobs.job.render.long.1"])
            assert found == await whole_lane(
                here.owner.log, [f"ap.{here.mesh}.jobs.job.render.long.1"]
            )
            assert found[-1].seq == last
        await here.owner.log.purge(f"ap.{here.mesh}.jobs.job.render.long.1", upto=found[3].seq)
        assert await whole_lane(reader.log, [f"ap.{here.mesh}.jobs.*.render.long.1"]) == found[4:]


async def test_several_records_by_their_sequences_show_what_is_in_scope():
    async with scoped_reader("render.>") as (here, reader):
        found = await reader.log.fetch_many([12, 3, 4, 99, 5, 1])
        assert sorted(seqs(found)) == [1, 4, 12]
        assert found[0] == await here.owner.log.fetch(found[0].seq)
        assert await reader.log.fetch_many([3, 5]) == []


async def test_heavy_records_by_their_sequences_take_a_question_more(monkeypatch):
    monkeypatch.setattr(scoped_reads, "ANSWER_BYTES", 20_000)
    async with scoped_reader("render.>") as (here, reader):
        heavy = [
            await here.put(f"jobs.job.render.heavy.{job_id(n)}", bytes([n]) * 9_000)
            for n in range(24)
        ]
        found = await reader.log.fetch_many(heavy)
        assert sorted(seqs(found)) == heavy
        assert {len(record.payload) for record in found} == {9_000}


async def test_a_record_that_bears_the_servers_own_fields_is_read_as_it_is():
    async with scoped_reader("render.>") as (here, reader):
        subject = f"ap.{here.mesh}.jobs.job.render.video.{job_id(1)}"
        header = b"NATS/1.0\r\nNats-Num-Pending: 7\r\nNats-Sequence: 1\r\n\r\n"
        await here.owner._requester.write(subject.encode(), b"hostile", header, timeout_s=5)
        newest = await here.owner.log.newest_seq()
        (found,) = await reader.log.fetch_many([newest])
        assert found == await here.owner.log.fetch(newest)
        assert (await whole(reader.log))[-1] == found


async def test_a_lane_with_unproven_headers_is_read_whole():
    async with scoped_reader("render.>") as (here, reader):
        subject = f"ap.{here.mesh}.jobs.job.render.video.{job_id(1)}"
        await here.owner._requester.request(subject.encode(), b"hostile", timeout_s=5)
        found = await whole_lane(reader.log, here.lane("render.video", 1))
        assert seqs(found) == [2, 4, 6, 14]


async def test_single_records_and_the_last_one():
    async with scoped_reader("render.>") as (here, reader):
        for seq in range(1, 15):
            record = await reader.log.fetch(seq)
            assert record == (await here.owner.log.fetch(seq) if seq in IN_RENDER else None)
        assert (await reader.log.last()).seq == 12
        await here.put("jobs.job.render.audio.mix.1")
        assert (await reader.log.last()).seq == 14
        assert await reader.log.newest_seq() == 14
        for hidden in ("jobs.job.secret.x", "jobs.1.secret.x", "jobs.wait.secret.x"):
            subject = f"ap.{here.mesh}.{hidden}.{job_id(2)}"
            assert await reader.log.fetch(13, newest_on=subject) is None
            with pytest.raises(EngineDenied):
                await whole_lane(reader.log, [subject])
            with pytest.raises(EngineDenied):
                await reader.log.read(0, limit=9, subject=subject)
            with pytest.raises(EngineDenied):
                await reader.log.confirm(subject, after=0, upto=13)
            with pytest.raises(EngineDenied):
                reader.log.follow(0, subject=subject)


@pytest.mark.parametrize("replicas", [1, 3])
async def test_it_confirms_control_up_to_any_sequence_of_the_log(replicas, monkeypatch):
    monkeypatch.setattr(scoped_reads, "NEAR", 2)
    async with scoped_mesh("render.>") as here:
        # One server asked as if it were several: reads that must not lag go to the leader.
        here.owner.log._replicas = replicas
        async with await here.log_in(replicas=replicas) as reader:
            confirm, control = reader.log.confirm, here.all_control()
            assert seqs(await confirm(control, after=0, upto=13)) == [1, 7]
            assert seqs(await confirm(control, after=0, upto=6)) == [1]
            assert seqs(await confirm(control, after=1, upto=7)) == [7]
            assert await confirm(control, after=7, upto=13) == []
            assert seqs(await confirm(">", after=3, upto=4)) == [4]
            assert await confirm(">", after=12, upto=13) == []
            assert seqs(await confirm(">", after=0, upto=13)) == IN_RENDER
            with pytest.raises(Unavailable):
                await confirm(control, after=7, upto=14)
            for n in range(20):
                control_seq = await here.put(f"ctl.c{n}")
                hidden = await here.put(f"jobs.job.secret.x.{n}")
                found = await confirm(control, after=control_seq - 1, upto=hidden)
                assert seqs(found) == [control_seq]


@pytest.mark.parametrize("replicas", [1, 3])
async def test_following_shows_what_is_in_scope_once_and_in_order(replicas, monkeypatch):
    monkeypatch.setattr(scoped_reads, "NEAR", 8)  # so that parts are merged, not only the end read
    async with scoped_mesh("render.>") as here:
        here.owner.log._replicas = replicas
        async with (
            await here.log_in(replicas=replicas) as reader,
            reader.log.follow(0, max_batch=50) as batches,
        ):
            found = seqs(await collect(batches, len(IN_RENDER)))
            for what in (
                "jobs.job.render.new",
                "jobs.1.render.new",
                "jobs.wait.render.new",
                "ctl.new",
            ):
                waiting = asyncio.ensure_future(collect(batches, 1, follower.POLL_S / 2))
                await asyncio.sleep(0.1)
                await here.put(f"{what}.1")
                found += seqs(await waiting)
            whats = (
                "jobs.job.render.a",
                "jobs.job.secret.x",
                "jobs.2.render.b",
                "jobs.wait.render.c",
                "ctl.z",
            )

            async def write():
                for n in range(300):
                    await here.put(f"{whats[n % 5]}.{n}")
                    if n in (100, 200):
                        sever(reader)

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                while len(found) < len(IN_RENDER) + 4 + 240:
                    found += seqs(await soon(anext(batches)))
            full = await whole(here.owner.log)
            assert found == [
                record.seq
                for record in full
                if b"secret" not in record.payload and record.seq != 10
            ]


async def test_following_a_filter_stays_inside_it():
    async with (
        scoped_reader("render.>") as (here, reader),
        reader.log.follow(0, subject=here.all_control()) as control,
        reader.log.follow(0, subject=f"ap.{here.mesh}.jobs.job.render.video.{job_id(1)}") as lane,
        reader.log.follow(9, subject=f"ap.{here.mesh}.jobs.job.>") as jobs,
    ):
        assert seqs(await collect(control, 2)) == [1, 7]
        assert seqs(await collect(lane, 2)) == [4, 6]
        assert seqs(await collect(jobs, 1)) == [12]
        await here.put("jobs.job.secret.x.1")
        await here.put(f"jobs.job.render.video.{job_id(1)}", after=6)
        await here.put("ctl.more")
        assert seqs(await collect(lane, 1)) == seqs(await collect(jobs, 1)) == [15]
        assert seqs(await collect(control, 1)) == [16]


async def test_a_change_of_scope_takes_effect_on_the_next_read():
    async with scoped_reader("render.>") as (here, reader), reader.log.follow(0) as batches:
        await collect(batches, len(IN_RENDER))
        here.scopes[MEMBER] = job_scope(reads=("render.audio.>",))
        assert await reader.log.fetch(4) is None
        # The server gives the newest record until the login ends; its history is gone.
        assert await whole_lane(reader.log, here.lane("render.video", 1)) == []
        here.scopes[MEMBER] = Scope()
        with pytest.raises(EngineDenied) as caught:
            await reader.log.read(0, limit=9)
        assert "may read nothing" in caught.value.message
        with pytest.raises(EngineDenied):
            await soon(anext(batches))


async def test_a_missing_gate_is_named(monkeypatch):
    async with scoped_reader("render.>") as (here, reader):
        await here.close_gate()
        for deaf in (False, True):  # nobody listens; then somebody who does not answer
            if deaf:
                here.owner._connection.listen(f"apg.{here.mesh}.>", lambda *_: None)
                await here.owner._connection.round_trip()
            for read in (
                lambda: reader.log.read(0, limit=9),
                lambda: reader.log.fetch(1),
                reader.log.last,
                lambda: reader.log.records.leader_at(1),
            ):
                with monkeypatch.context() as hasty:
                    hasty.setattr(scoped_direct_get, "GATE_TIMEOUT_S", 0.5)
                    with pytest.raises(Unavailable) as caught:
                        await read()
                assert "the mesh's gate does not answer" in caught.value.message
                assert "is 'antiphon up' running on the mesh's machine?" in caught.value.message
        await here.open_gate()
        assert seqs(await whole(reader.log)) == IN_RENDER


async def test_a_follower_waits_for_the_gate_to_come_back(monkeypatch):
    monkeypatch.setattr(follower, "RETRY_S", 0.05)
    async with scoped_reader("render.>") as (here, reader), reader.log.follow(0) as batches:
        await collect(batches, len(IN_RENDER))
        await here.close_gate()
        await here.put("jobs.job.render.video.1")
        waiting = asyncio.ensure_future(collect(batches, 1))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await here.open_gate()
        assert seqs(await waiting) == [14]


async def test_more_reads_than_the_gate_serves_at_once_all_succeed():
    async with scoped_reader("render.>") as (here, reader), await here.log_in() as other:
        found = await asyncio.gather(
            *(log.fetch(n % 14) for log in (reader.log, other.log) for n in range(1, 200))
        )
        assert [record is not None for record in found] == [
            n % 14 in IN_RENDER for _ in range(2) for n in range(1, 200)
        ]


async def test_a_reader_keeps_to_what_the_gate_serves_at_once(monkeypatch):
    monkeypatch.setattr(scoped_direct_get, "_BUSY_TRIES", 1)
    async with scoped_reader("render.>") as (_, reader):
        found = await asyncio.gather(*(reader.log.fetch(1) for _ in range(300)))
        assert {record.seq for record in found} == {1}


async def test_a_read_waits_for_a_gate_that_is_busy_with_others(monkeypatch):
    async with scoped_reader("render.>") as (here, reader):
        really, refused = here.gate._read, 0

        async def busy_at_first(request, asked):
            nonlocal refused
            if refused < 12:
                refused += 1
                raise RateLimited("too many requests at once", retry_s=1)
            return await really(request, asked)

        monkeypatch.setattr(here.gate, "_read", busy_at_first)
        assert (await reader.log.fetch(1)).seq == 1
        assert refused == 12


async def test_connecting_asks_for_the_log_itself():
    async with scoped_mesh("render.>") as here:
        await here.close_gate()
        async with await here.log_in() as reader:
            await until(lambda: reader.connected)
        with pytest.raises(Misconfigured):
            await NatsEngine.connect(
                here.server.url,
                new_mesh(),
                login=Login(user=MEMBER, password="pw"),
                inbox_prefix=f"_I.{MEMBER}",
                reader=Reader(MEMBER, here.scopes[MEMBER], BRANCHES, PROTOCOL.rights),
            )


async def test_a_kind_that_cannot_be_heard_live_is_still_followed(monkeypatch):
    monkeypatch.setattr(follower, "POLL_S", 0.2)
    async with scoped_reader("render", "render.video") as (here, reader):
        lane = f"ap.{here.mesh}.jobs.job.render.{job_id(4)}"
        async with reader.log.follow(0) as batches, reader.log.follow(0, subject=lane) as jobs:
            assert seqs(await collect(batches, 7)) == [1, 2, 4, 6, 7, 10, 11]
            await here.put(f"jobs.job.render.{job_id(4)}", after=10)
            assert seqs(await collect(batches, 1)) == [14]
            assert seqs(await collect(jobs, 2)) == [10, 14]


@pytest.mark.parametrize(
    "reads", [(), (">",), ("a.>", "b.c"), ("a", "a.b"), ("a", "a.>"), ("a", "a.b.>", "c")]
)
def test_the_second_wall_and_the_gate_mean_the_same_by_a_scope(reads):
    mesh = new_mesh()
    scope = job_scope(reads=reads)
    allowed = of_member(mesh, UserKey.new().public, scope, (), BRANCHES)
    visible = sight_of(mesh, BRANCHES, scope)
    heard = {one for one in allowed.subscribe if one.startswith("apr.")}
    assert heard == {f"apr{one[2:]}" for one in visible.live}
