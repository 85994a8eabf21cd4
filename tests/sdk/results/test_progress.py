"""Progress is kept with the run: whoever asks later reads the last one on the log."""

import asyncio

import pytest

from antiphon import Mesh
from antiphon.core.families.jobs.ops import JobClaim
from antiphon.runtime.executors.handler_call import JobContext
from antiphon.testing.tested_mesh import TestedMesh


async def renewals(handle) -> list[JobClaim]:
    history = (await handle.lane()).history
    return [one.opened.op for one in history if isinstance(one.opened.op, JobClaim)][1:]


@pytest.mark.virtual_time
async def test_who_polls_sees_the_last_progress_and_the_log_is_not_flooded():
    mesh = Mesh.open(engine="memory")

    @mesh.task("film.render")
    async def render(ctx: JobContext) -> None:
        for frame in range(300):
            ctx.progress(frame / 300, f"frame {frame}")
            await asyncio.sleep(0.1)

    async with mesh, mesh.worker():
        handle = await render.submit()
        assert await handle.progress() is None
        await asyncio.sleep(2)
        early = await handle.progress()
        assert 0 < early.done < 0.1
        assert early.note.startswith("frame ")
        await asyncio.sleep(26)
        late = await handle.progress()
        assert late.done > 0.5
        assert late.at > early.at
        await handle.result()
        assert (await handle.progress()).done > 0.5
        told = [one for one in await renewals(handle) if one.body.progress is not None]
        assert 3 <= len(told) <= 5


@pytest.mark.virtual_time
async def test_a_run_that_is_over_at_once_writes_no_renewal_for_its_progress():
    mesh = Mesh.open(engine="memory")

    @mesh.task("film.title")
    async def title(ctx: JobContext) -> str:
        ctx.progress(0.5)
        return "Vertigo"

    async with mesh, mesh.worker():
        handle = await title.submit()
        await handle.result()
        assert await renewals(handle) == []
        assert await handle.progress() is None


def test_the_progress_of_a_worker_that_died_can_still_be_read():
    mesh = TestedMesh()
    seen = []

    @mesh.task("film.cut")
    async def cut(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            ctx.progress(0.4, "reel 2")
            await asyncio.sleep(5)
        return "cut"

    async def story() -> str:
        handle = await cut.submit()
        await asyncio.sleep(8)
        seen.append((await handle.progress(), (await handle.state()).state.value))
        return await handle.result()

    mesh.kill_worker()
    try:
        assert mesh.run(story()) == "cut"
    finally:
        mesh.close()
    ((progress, state),) = seen
    assert (progress.done, progress.note, state) == (0.4, "reel 2", "running")


@pytest.mark.virtual_time
async def test_no_note_can_cost_a_run_its_lease():
    mesh = Mesh.open(engine="memory")
    notes = ["\udc80 \x1b[2J \u2028 \0", "é" * 5_000, "ﬁ e\u0301 𝄞" * 40]

    @mesh.task("film.names")
    async def names(ctx: JobContext) -> int:
        for number, note in enumerate(notes):
            ctx.progress(number / 3, note)
            await asyncio.sleep(40)
        return ctx.attempt

    async with mesh, mesh.worker():
        handle = await names.submit()
        assert await handle.result() == 1
        told = [one for one in await renewals(handle) if one.body.progress is not None]
        assert len(told) == len(notes)
        assert (await handle.progress()).note.isprintable()
