"""The Staves: who held what lately, and how it is drawn."""

import asyncio
import contextlib
import time

from antiphon import Mesh
from antiphon.errors import JobFailed
from antiphon.interfaces.http.pages.staves_drawing import MANY, score
from antiphon.sdk.dashboard.staves import Hold, Refused, StavesView, staves_view


async def test_the_holds_of_the_last_minutes_are_told_from_the_newest_records():
    mesh, going, held = Mesh.open(engine="memory"), asyncio.Event(), asyncio.Event()

    @mesh.task("work.add", attempts=1)
    async def add(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        if number == 0:
            held.set()
            await going.wait()
        return number

    async with mesh, mesh.worker(slots=4) as worker:
        await (await add.submit(1)).result()
        with contextlib.suppress(JobFailed):
            await (await add.submit(-1)).result()
        lasting = await add.submit(0)
        await held.wait()
        view = await staves_view(mesh)
        going.set()
        await lasting.result()
    ends = [one.end for one in view.holds]
    assert sorted(ends) == ["", "failed", "succeeded"]
    assert {one.worker for one in view.holds} == {worker.did} == set(view.workers)
    assert view.holds[ends.index("")].job == lasting.id
    drawn = score(view)
    assert sorted(one.state for one in drawn.notes) == ["fail", "ok", "run"]
    (lasts,) = [one for one in drawn.notes if one.state == "run"]
    assert lasts.due > drawn.now_x, "its lease goes on"
    assert [one.state for one in drawn.wrong] == ["fail"]


def a_view(workers, holds=(), refused=(), levels=None):
    now_ms = round(time.time() * 1000)
    return StavesView(
        now_ms=now_ms,
        since_ms=now_ms - 96_000,
        workers=workers,
        names={one: f"name of {one}" for one in workers},
        levels=dict.fromkeys(workers, "alive") | (levels or {}),
        slots=dict.fromkeys(workers, 4),
        holds=[hold(now_ms) for hold in holds],
        refused=[one(now_ms) for one in refused],
        is_cut=False,
    )


def hold(worker, begin_s, end_s, end="succeeded", **more):
    def made(now_ms):
        since_ms, until_ms = now_ms - begin_s * 1000, now_ms - end_s * 1000
        about = {"worker": worker, "kind": "k", "job": "j", "end": end}
        return Hold(**about, since_ms=since_ms, until_ms=until_ms, **more)

    return made


def test_a_takeover_is_a_slur_and_a_refused_record_a_mark():
    lost = hold("a", 40, 30, "lost its lease")
    taken = hold("b", 29, 10, follows=0)

    def late(now_ms):
        return Refused(worker="a", kind="k", job="j", at_ms=now_ms - 5_000, verdict="fence")

    drawn = score(a_view(["a", "b"], [lost, taken], [late]))
    first, second = drawn.notes
    assert drawn.slurs == [(first.x + first.width, first.y, second.x, second.y)]
    (mark,) = drawn.marks
    assert second.x < mark.x < drawn.now_x
    assert "refused, fence" in mark.words


def test_many_workers_have_a_line_each_and_those_that_need_a_look_are_named():
    workers = [f"w{number:03}" for number in range(MANY + 40)]
    drawn = score(a_view(workers, levels={"w030": "alert", "w031": "alert"}))
    assert drawn.is_thin
    assert len(drawn.staves) == len(workers)
    named = [one.name for one in drawn.staves if one.is_named]
    assert {"name of w030", "name of w031"} <= set(named)
    assert len(named) < len(workers) / 2
    assert drawn.height < 600


def test_a_mesh_without_workers_can_be_drawn():
    assert score(a_view([])).staves == []
