"""The Staves: who held what lately, and how it is drawn."""

import asyncio
import contextlib
import itertools
import time

from msgspec import structs

from antiphon import Mesh
from antiphon.errors import JobFailed
from antiphon.interfaces.http.pages.staves_drawing import score
from antiphon.sdk.dashboard.node_names import in_order
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


def a_fleet(*sizes):
    """Workers of machines of these sizes."""
    sizes = dict(zip("abcdefghijklmnopqrstuvwxyz", sizes, strict=False))
    return {
        f"{one}{number}": f"{one}/worker-{number}"
        for one, size in sizes.items()
        for number in range(size)
    }


def test_many_workers_have_a_line_each_by_machine_and_those_that_need_a_look_are_named():
    fleet = a_fleet(64, 40, 1, 1, 2)
    lost = [hold("a3", 40, 30, "lost its lease")]
    failed = [hold("b7", 20, 10, "failed"), hold("b8", 20, 10, "failed")]
    busy = [hold("a1", 20, -20, "")]
    view = a_view(list(fleet), [*lost, *failed, *busy], levels={"a30": "alert", "a31": "alert"})
    drawn = score(structs.replace(view, names=fleet))
    assert drawn.is_thin
    assert len({one.y for one in drawn.staves}) == len(fleet)
    told = [(one.name, one.about, one.wrong) for one in drawn.groups]
    assert told == [
        ("a", "64 workers, 1 busy", "2 silent, 1 lease lost"),
        ("b", "40 workers, 0 busy", "2 failed"),
        ("3 other machines", "4 workers, 0 busy", ""),
    ]
    words = [one for _, _, one in drawn.remarks]
    assert words[0] == "worker-30 is alert"
    assert {"worker-3 lost its lease", "worker-7 failed"} <= set(words)
    heights = sorted(at for _, at, _ in drawn.remarks)
    assert all(later - at >= 12 for at, later in itertools.pairwise(heights)), "they can be read"
    assert drawn.height < 900


def test_a_small_machine_that_is_alone_has_its_name():
    fleet = a_fleet(20, 2)
    drawn = score(structs.replace(a_view(list(fleet)), names=fleet))
    assert [one.name for one in drawn.groups] == ["a", "b"]


def test_names_are_in_the_order_that_people_expect():
    names = ["b/worker-1", "a/worker-10", "a/worker-2", "a/worker-1", "a"]
    assert sorted(names, key=in_order) == names[:0:-1] + names[:1]


def test_two_hundred_machines_with_a_worker_each_are_one_group():
    workers = [f"w{number:03}" for number in range(200)]
    drawn = score(a_view(workers))
    assert [one.name for one in drawn.groups] == ["200 machines"]
    assert drawn.height < 1_400


def test_a_mesh_without_workers_can_be_drawn():
    assert score(a_view([])).staves == []
