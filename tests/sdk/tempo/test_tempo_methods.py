"""Time in beats for programs."""

import asyncio
import threading

import pytest

from antiphon.core.bus.subjects import STATUS
from antiphon.core.tempo.meter import Beat
from antiphon.core.tempo.time_text import parse_hlc
from antiphon.errors import Malformed
from antiphon.runtime.tempo.tempo_messages import STATUS_CLAIMS
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.tempo.tempo_watch import read_topic, watching
from tests.patience import PATIENCE_S

FAST = {"initial_bpm": 300, "bar_len_beats": 4, "limits": {"min_bpm": 300, "max_bpm": 300}}


@pytest.mark.req("B10", "B17", "B25")
async def test_the_owner_sets_and_freezes_the_tempo_and_a_leader_is_heard():
    async with Mesh.open(engine="memory") as mesh:
        policy = await mesh.tempo.set(FAST)
        assert (await mesh.tempo.set(policy)) == policy
        async with asyncio.timeout(PATIENCE_S):
            while (now := await mesh.tempo.now()).mode != "leader" or now.bpm != 300:
                await asyncio.sleep(0.05)
        assert (now.bar_len, now.leader, now.degraded) == (4, mesh.did, "")
        assert now.phase == now.phases.at(now.beat.index)
        assert (await mesh.tempo.freeze()).adaptation.frozen
        assert (await mesh.tempo.now()).frozen
        assert not (await mesh.tempo.unfreeze()).adaptation.frozen


@pytest.mark.req("B7")
async def test_functions_are_called_on_beats_and_one_that_fails_stops_nothing():
    mesh = Mesh.open(engine="memory")
    beats, downbeats, enough = list[Beat](), list[Beat](), asyncio.Event()

    @mesh.tempo.on_beat
    def broken(_: Beat) -> None:
        raise ValueError("not today")

    @mesh.tempo.on_beat
    def note(beat: Beat) -> None:
        beats.append(beat)

    @mesh.tempo.on_downbeat
    async def first(beat: Beat) -> None:
        await asyncio.sleep(0)
        downbeats.append(beat)
        if len(downbeats) >= 2 and len(beats) >= 5:  # a slow machine misses some
            enough.set()

    async with mesh:
        await mesh.tempo.set(FAST)
        async with asyncio.timeout(PATIENCE_S):
            await enough.wait()
    assert {beat.index for beat in downbeats} == {1}
    assert len(beats) >= 5


@pytest.mark.req("B2", "B26")
async def test_a_status_outside_of_jobs_is_signed_and_heard_on_its_project():
    async with Mesh.open(engine="memory") as mesh:
        where = STATUS.at(kind="render.video")
        async with mesh.connection.session.engine.bus.subscribe(where) as heard:
            said = await mesh.tempo.status("executing", task="render.video/night", progress=0.5)
            message = await anext(heard)
        opened = STATUS_CLAIMS.open(message.payload, mesh=mesh.id, subject=where)
        assert opened.body == said
        at_ms = parse_hlc(said.hlc).wall_ms
        assert abs(at_ms - mesh.connection.session.wall.now_ms()) < PATIENCE_S * 1000
        assert (opened.author, said.beat_index) == (mesh.did, mesh.tempo.clock.beat().index)
        with pytest.raises(Malformed, match="which kind"):
            await mesh.tempo.status("done", task="night")


@pytest.mark.req("B16")
async def test_how_much_of_a_gpu_is_in_use_reaches_the_report_that_the_tempo_follows():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.tempo.set(FAST)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await mesh.tempo.status("executing", task="train.model/night", cpu=0.2, gpu=0.9)
                reports = [kept.report for kept in await mesh.tempo.reports(last=8)]
                if any(one.utilisation == {"cpu": 0.2, "gpu": 0.9} for one in reports):
                    break
                await asyncio.sleep(0.1)


@pytest.mark.req("B2", "B4", "B7")
async def test_joins_and_elections_are_claimed_and_counted_like_other_work():
    async with Mesh.open(engine="memory") as mesh:
        async with watching(mesh.tempo.clock, (read_topic("status://mesh", mesh.id),)) as watch:
            await mesh.tempo.set(FAST)
            async with asyncio.timeout(PATIENCE_S):
                while (heard := await watch.heard()).fields["task_id"] != "mesh/pulse":
                    pass
            assert (heard.author, heard.fields["state"]) == (mesh.did, "executing")
            assert "leads in term" in heard.fields["notes"]
        async with asyncio.timeout(PATIENCE_S):
            while not any(
                kept.report.counts.get("executing") for kept in await mesh.tempo.reports(last=9)
            ):
                await asyncio.sleep(0.1)


def test_the_blocking_mesh_has_all_of_it():
    beats = list[Beat]()
    heard = threading.Event()

    def note(beat: Beat) -> None:
        beats.append(beat)
        heard.set()

    with Mesh.open(engine="memory").blocking() as mesh:
        mesh.tempo.set(FAST)
        mesh.tempo.on_beat(note)
        mesh.tempo.on_downbeat(note)
        assert heard.wait(PATIENCE_S)
        assert mesh.tempo.now().bar_len == 4
        assert mesh.tempo.freeze().adaptation.frozen
        assert not mesh.tempo.unfreeze().adaptation.frozen
        assert mesh.tempo.status("planning", task="a.b/c").state == "planning"
