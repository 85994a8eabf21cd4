"""What is on the log, and every artifact that it names, keeps the beat that it had."""

import asyncio

import pytest

from antiphon import Mesh
from antiphon.core.tempo.messages import Suggestion
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.time_text import parse_hlc
from tests.patience import PATIENCE_S

BRISK = {"initial_bpm": 300, "bar_len_beats": 4, "limits": {"min_bpm": 240, "max_bpm": 300}}
ADAPTIVE = {**BRISK, "adaptation": {"enable": True}}
OTHER = {"initial_bpm": 240, "bar_len_beats": 6, "limits": {"min_bpm": 240, "max_bpm": 300}}


async def one_job(mesh):
    @mesh.task("example.written")
    async def written() -> str:
        return "what was found"

    async with mesh.worker():
        handle = await written.submit()
        await handle.result(timeout=PATIENCE_S)
    return handle


async def led_at(mesh, bpm):
    async with asyncio.timeout(PATIENCE_S):
        while (now := await mesh.tempo.now()).mode != "leader" or now.bpm != bpm:
            await asyncio.sleep(0.1)


async def stamps_of(mesh, handle):
    """Every record of a job and its only artifact, each with its beat."""
    history = await mesh.tempo.history()
    lines = [(one.hlc, history.at(one.commit_ms)) for one in await handle.story()]
    return lines, await mesh.artifacts.list([handle])


@pytest.mark.req("B18")
async def test_a_new_policy_changes_no_beat_of_what_has_happened():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.tempo.set(BRISK)
        await led_at(mesh, 300)
        handle = await one_job(mesh)
        lines, (artifact, *_) = await stamps_of(mesh, handle)
        for hlc, stamp in lines:
            assert 1 <= stamp.beat <= 4
            assert stamp.phase in {"plan", "work", "review"}
            assert parse_hlc(hlc)[0] <= artifact.at_ms
        assert (artifact.hlc, artifact.beat) == (lines[-1][0], lines[-1][1].beat)
        await mesh.tempo.set(OTHER)
        await led_at(mesh, 240)
        again, (same, *_) = await stamps_of(mesh, handle)
        assert again == lines
        assert (same.hlc, same.beat, same.phase) == (artifact.hlc, artifact.beat, artifact.phase)


@pytest.mark.req("B18")
async def test_beats_are_stamped_as_the_leader_sent_them(monkeypatch):
    moved = Phases(plan=2, work=1, review=1)
    slower = iter([None, None, Suggestion(tempo_bpm=299, phases=moved, why="for a test")])
    reverb = "antiphon.runtime.tempo.reverb.Reverb.suggestion"
    monkeypatch.setattr(reverb, lambda _: next(slower, None))
    async with Mesh.open(engine="memory") as mesh:
        frames = []
        mesh.tempo.clock.watchers.append(lambda message: frames.append(message.body))
        async with mesh.tempo.clock.listen():
            await mesh.tempo.set(ADAPTIVE)
            async with asyncio.timeout(PATIENCE_S):
                while len([frame for frame in frames if frame.phases]) < 4:
                    await asyncio.sleep(0.1)
        history = await mesh.tempo.history()
        led = [frame for frame in frames if frame.revision]
        assert {(frame.tempo_bpm, frame.phases) for frame in led} == {(300, None), (299, moved)}
        for frame in led:
            stamp = history.at(parse_hlc(f"{frame.beat_epoch}+0")[0])
            assert (stamp.beat, stamp.phase) == (frame.beat_index, frame.phase)
