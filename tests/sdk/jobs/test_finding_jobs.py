"""Jobs that somebody else submitted: found by the beginning of their ids, listed, waited for."""

import pytest

from antiphon import Mesh, as_completed, gather
from antiphon.core.clock.hlc import Hlc
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.state import EMPTY
from antiphon.errors import Misconfigured, Rejected
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.overdue_jobs import OverdueJobs
from antiphon.runtime.replica.replica_jobs import ReplicaJobs

NOWHERE = "0" * 64


def a_mesh() -> Mesh:
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.ship")
    async def ship(order: int) -> int:
        if order < 0:
            raise ValueError("no such order")
        return order

    @mesh.task("shop.bill", attempts=1)
    async def bill(order: int) -> int:
        return order // 0

    mesh.ship, mesh.bill = ship, bill
    return mesh


async def test_waiting_for_a_job_that_does_not_exist_says_so_at_once():
    async with a_mesh() as mesh:
        missing = mesh.job("shop.ship", NOWHERE)
        there = await mesh.ship.submit(1)
        for waiting in (
            missing.result(),
            missing.end(),
            missing.outputs(),
            gather(there, mesh.ship.job(NOWHERE)),
            anext(aiter(as_completed([missing]))),
            mesh.job(NOWHERE).result(),
        ):
            with pytest.raises(Rejected, match="no job") as refused:
                await waiting
            assert refused.value.reason == "no_job"
            assert "mesh.jobs()" in refused.value.hint


async def test_a_job_of_another_process_is_waited_for_by_its_kind_and_id():
    async with a_mesh() as mesh:
        submitted = await mesh.ship.submit(7)
        again = mesh.job("shop.ship", submitted.id)
        async with mesh.worker():
            assert await gather(again) == [7]
            assert await mesh.ship.job(submitted.id).result() == 7


async def test_the_beginning_of_an_id_is_enough():
    async with a_mesh() as mesh, mesh.worker():
        submitted = await mesh.ship.submit(7)
        for handle in (
            mesh.job(submitted.id[:6]),
            mesh.job(submitted.id.upper()),
            mesh.job(f"blake3:{submitted.id[:6]}"),
            mesh.job("shop.ship", submitted.id[:6]),
            mesh.ship.job(submitted.id[:6]),
        ):
            assert await handle.result() == 7
            assert handle.job_key() == submitted.job_key()
            assert (await mesh.job(submitted.id[:6]).state()).id == submitted.id
        assert await gather(mesh.job(submitted.id[:6])) == [7]
        with pytest.raises(Rejected, match=r"no job of kind shop\.bill"):
            await mesh.bill.job(submitted.id[:6]).result()


async def test_a_beginning_that_several_ids_have_names_them():
    async with a_mesh() as mesh:
        ids = [handle.id for handle in await mesh.ship.submit_many(range(17))]
        digit = next(one[0] for one in ids if sum(other[0] == one[0] for other in ids) > 1)
        with pytest.raises(Rejected, match="several jobs begin with") as refused:
            await mesh.job(digit).state()
        assert refused.value.reason == "ambiguous"
        named = [one for one in ids if one[:12] in str(refused.value)]
        assert len(named) > 1
        assert all(one[0] == digit for one in named)


async def test_what_cannot_be_an_id_is_refused_where_it_is_written():
    async with a_mesh() as mesh:
        with pytest.raises(Misconfigured, match="not a job id"):
            mesh.job("shop.ship")
        with pytest.raises(Misconfigured, match="looked up") as refused:
            mesh.job("ab12").job_key()
        assert "await handle.state()" in refused.value.hint


async def test_jobs_are_listed_newest_first_by_state_and_kind():
    async with a_mesh() as mesh:
        first, second = await mesh.ship.submit(1), await mesh.ship.submit(2)
        failing = await mesh.bill.submit(3)
        assert [job.id for job in await mesh.jobs()] == [failing.id, second.id, first.id]
        assert [job.id for job in await mesh.jobs(limit=1)] == [failing.id]
        async with mesh.worker():
            await gather(first, second, failing, return_exceptions=True)
        assert {job.id for job in await mesh.jobs(state="succeeded")} == {first.id, second.id}
        assert [job.id for job in await mesh.jobs(state=["failed", "aborted"])] == [failing.id]
        assert len(await mesh.jobs(kind="shop")) == 3
        assert [job.kind for job in await mesh.jobs(kind="shop.bill")] == ["shop.bill"]
        assert await mesh.jobs(kind="sho") == await mesh.jobs(state="pending") == []


@pytest.mark.req("S14")
async def test_jobs_are_read_on_this_machine_and_what_was_written_is_among_them(monkeypatch):
    async with a_mesh() as mesh:
        handles = [await mesh.ship.submit(number) for number in range(30)]
        written = [handle.id for handle in reversed(handles)]
        assert [job.id for job in await mesh.jobs(limit=100)] == written
        async with mesh.replica() as replica:

            def asked(*_: object, **__: object) -> None:
                pytest.fail("a read left the machine")

            log = type(mesh.connection.engine.log)
            for name in ("read", "read_lane", "read_lanes", "newest", "fetch", "confirm"):
                monkeypatch.setattr(log, name, asked)
            jobs = replica.ask(ReplicaJobs)
            assert [job.id for job in jobs.jobs(limit=100)] == written
            assert all(jobs.job("shop.ship", one).state == "pending" for one in written)
            monkeypatch.undo()


@pytest.mark.req("M20")
async def test_jobs_that_a_node_may_claim_by_the_routes_are_listed():
    async with a_mesh() as mesh:
        first, second = await mesh.ship.submit(1), await mesh.bill.submit(2)
        listed = [job.id for job in await mesh.jobs(claimable_by=mesh.did)]
        assert listed == [first.id, second.id]
        other = "did:key:z6MkfhfqhFxeC3ULpnfH76zT2T4aNN827GiNoGRN9f3Y9BMi"
        await mesh.authority.set_route("shop.bill", other)
        assert [job.id for job in await mesh.jobs(claimable_by=mesh.did)] == [first.id]
        assert len(await mesh.jobs(claimable_by=other)) == 2
        assert [job.id for job in await mesh.jobs(claimable_by=other, kind="shop.bill")] == [
            second.id
        ]
        assert [job.id for job in await mesh.jobs(state="pending")] == [second.id, first.id]


@pytest.mark.req("M20")
async def test_jobs_past_their_deadline_are_listed_until_somebody_ends_their_lease(monkeypatch):
    async def later(_: OverdueJobs) -> None: ...

    monkeypatch.setattr(OverdueJobs, "look", later)
    async with a_mesh() as mesh:
        late, kept = await mesh.ship.submit(1), await mesh.ship.submit(2)
        session = mesh.connection.session
        for handle, lease_ms in ((late, 5_000), (kept, 60_000)):
            claim = ClaimBody(kind="shop.ship", job=handle.id, lease_ms=lease_ms, begin=True)
            await write_one(session, Intent(JobClaim, claim, EMPTY))
        assert await mesh.jobs(overdue=True) == []
        monkeypatch.setattr(session.author, "now", lambda: later_on)
        later_on = Hlc(session.wall.now_ms() + 10_000, 0)
        assert [job.id for job in await mesh.jobs(overdue=True)] == [late.id]
        assert await mesh.jobs(overdue=True, kind="shop.bill") == []


async def test_a_list_that_nobody_can_want_is_refused_in_words():
    async with a_mesh() as mesh:
        with pytest.raises(Misconfigured, match="not a state") as refused:
            await mesh.jobs(state="done")
        assert "succeeded" in refused.value.hint
        for limit in (0, 10_001):
            with pytest.raises(Misconfigured, match="between 1 and 10,000"):
                await mesh.jobs(limit=limit)


def test_code_that_does_not_await_finds_and_lists_jobs_as_well():
    with a_mesh().blocking() as mesh, mesh.worker():
        handle = mesh.submit("shop.ship", 5)
        assert handle.result() == 5
        assert [job.id for job in mesh.jobs(state="succeeded")] == [handle.id]
        found = mesh.job(handle.id[:6])
        assert found.result() == 5
        assert (found.kind, found.id) == ("shop.ship", handle.id)
        with pytest.raises(Rejected, match="no job"):
            mesh.job("shop.ship", NOWHERE).result()
