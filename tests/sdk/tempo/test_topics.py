"""Topics of a mesh's tempo, as addresses name them: what is heard on each."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon import JobContext, Mesh
from antiphon.errors import Malformed
from antiphon.sdk.tempo.tempo_watch import read_topic, subjects_of, watching
from tests.patience import PATIENCE_S

FAST = {"initial_bpm": 300, "bar_len_beats": 4, "limits": {"min_bpm": 300, "max_bpm": 300}}


@asynccontextmanager
async def following(mesh, *addresses):
    """What is heard on some topics, in the order in which it comes."""
    topics = tuple(read_topic(one, mesh.id) for one in addresses)
    async with watching(mesh.tempo.clock, topics) as watch, asyncio.timeout(PATIENCE_S):
        await asyncio.sleep(0.1)
        yield watch.heard


@pytest.mark.req("B26")
async def test_a_project_is_its_kind_and_all_kinds_below_it_and_no_others():
    async with Mesh.open(engine="memory") as mesh:
        async with following(mesh, "status://render") as heard:
            for task in ("renders/a", "rend/b", "render/c", "render.video/d", "render.video.raw/e"):
                await mesh.tempo.status("executing", task=task)
            told = [await heard() for _ in range(3)]
            assert {one.what for one in told} == {"status"}
            tasks = {one.fields["task_id"] for one in told}
            assert tasks == {"render/c", "render.video/d", "render.video.raw/e"}
        async with following(mesh, "status://") as heard:
            await mesh.tempo.status("executing", task="anything/at-all")
            assert (await heard()).fields["task_id"] == "anything/at-all"


@pytest.mark.req("B26")
async def test_the_threads_of_a_kind_and_of_those_below_it_are_heard():
    mesh = Mesh.open(engine="memory")

    @mesh.task("render.video", score={"wait_budget": {"help": 50}, "phases": {"work": 100}})
    async def asks(ctx: JobContext) -> str:
        return await ctx.help("anybody?")

    async def helps():
        async for asked in mesh.tempo.on_help("render.video"):
            await asked.promise(1)
            await asked.answer("here")

    async with mesh, mesh.worker():
        helping = asyncio.ensure_future(helps())
        async with following(mesh, "promise://render", "promise://other") as heard:
            assert await (await asks.submit()).result(timeout=PATIENCE_S) == "here"
            told = [await heard() for _ in range(3)]
        assert [one.fields["type"] for one in told] == ["request", "promise", "answer"]
        assert len({one.fields["thread_id"] for one in told}) == 1
        helping.cancel()


@pytest.mark.req("B26")
async def test_the_beats_of_a_cluster_are_heard_by_its_own_address_alone():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.tempo.set(FAST)
        async with following(mesh, f"backbeat://cluster/{mesh.id}") as heard:
            told = await heard()
            assert (told.what, told.fields["cluster_id"]) == ("beat", mesh.id)
        with pytest.raises(Malformed, match="no topic of this mesh"):
            read_topic("backbeat://cluster/another", mesh.id)


@pytest.mark.parametrize(
    "address, where",
    [
        ("backbeat://cluster/", ("beat",)),
        ("status://", ("status.>",)),
        ("status://render.video", ("status.render.video", "status.render.video.>")),
        ("promise://", ("promise.>",)),
        ("promise://render", ("promise.render.>",)),
        ("promise://render/abc123", ("promise.render.abc123",)),
    ],
)
def test_an_address_names_subjects(address, where):
    assert subjects_of(read_topic(address, "m")) == where
