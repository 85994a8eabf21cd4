"""Pausing and resuming jobs, as a program does it and as workers follow it."""

import asyncio

import pytest

from antiphon import Mesh
from antiphon.errors import Malformed
from antiphon.sdk.jobs.lacking_workers import stuck


def a_mesh() -> Mesh:
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.ship")
    async def ship(order: int) -> int:
        return order

    @mesh.task("bank.pay")
    async def pay(order: int) -> int:
        return order

    mesh.ship, mesh.pay = ship, pay
    return mesh


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "about, options",
    [
        ({"kind": "shop"}, {}),
        ({"label": "vans"}, {"concurrency": "vans"}),
        ({"kind": "shop", "label": "vans"}, {"concurrency": "vans"}),
    ],
)
async def test_a_worker_leaves_what_is_paused_and_begins_it_when_it_is_resumed(about, options):
    async with a_mesh() as mesh, mesh.worker():
        changed = await mesh.authority.pause(**about, reason="the vans are broken")
        assert changed.seq
        assert not (await mesh.authority.pause(**about)).seq, "it is paused already"
        handle = await mesh.submit("shop.ship", 1, options=options)
        assert await (await mesh.pay.submit(2)).result() == 2, "other jobs go on"
        await asyncio.sleep(60)
        job = await handle.state()
        assert job.state == "pending"
        told, _ = await handle.explain()
        assert [wait.what for wait in told.waits_for] == ["paused"]
        assert told.waits_for[0].reason == "the vans are broken"
        lines = stuck(mesh, job)
        assert "the vans are broken" in lines[0]
        assert lines[1].startswith("try: antiphon resume")
        assert (await mesh.authority.resume(**about)).seq
        assert await handle.result() == 1
        assert mesh.authority.pauses == ()
        assert all(one.verdict != "paused" for one in await mesh.queries.refusals()), (
            "no claim is written that would be refused"
        )


@pytest.mark.virtual_time
async def test_all_jobs_are_paused_without_stopping_the_one_that_runs():
    mesh, begun, go_on = Mesh.open(engine="memory"), asyncio.Event(), asyncio.Event()

    @mesh.task("shop.ship")
    async def ship(order: int) -> int:
        begun.set()
        await go_on.wait()
        return order

    async with mesh, mesh.worker():
        runs = await ship.submit(1)
        await begun.wait()
        await mesh.authority.pause()
        waits = await ship.submit(2)
        await asyncio.sleep(300)  # several leases
        go_on.set()
        assert await runs.result() == 1
        assert (await waits.state()).state == "pending"
        await mesh.authority.resume()
        assert await waits.result() == 2


async def test_what_cannot_be_a_kind_cannot_be_paused():
    async with a_mesh() as mesh:
        with pytest.raises(Malformed, match="cannot be paused"):
            await mesh.authority.pause(kind="Not A Kind")
