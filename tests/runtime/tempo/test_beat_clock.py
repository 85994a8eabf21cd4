"""The beats as one process knows them."""

import asyncio
from itertools import pairwise

import msgspec
import pytest
from structlog.testing import capture_logs

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.bus.subjects import BEAT
from antiphon.core.tempo.meter import Beat
from antiphon.core.tempo.policy import DEFAULT_POLICY, policy_hash
from antiphon.core.tempo.pulse_state import PulseState, beat_frame, begun
from antiphon.core.tempo.time_text import time_text
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.session import Session
from antiphon.runtime.tempo.beat_clock import BeatClock, Beats
from antiphon.runtime.tempo.tempo_messages import BEAT_FRAMES
from tests.runtime.meshes import QUICK, MeshUnderTest, a_mesh, eventually

STRICT = msgspec.structs.replace(QUICK, authority="chain")
FAST = PulseState(
    bpm=16, bar_len=8, anchor_ms=4_321, policy=begun(DEFAULT_POLICY).policy, initial_bpm=15
)


async def send(
    session: Session, key: SeedKeyring, at_ms: int, *, state: PulseState = FAST, revision: int = 7
) -> None:
    frame = beat_frame(
        session.mesh, state, DEFAULT_POLICY, at_ms=at_ms, hlc=(at_ms, 0), revision=revision
    )
    me = (key.did, key.sign)
    payload = BEAT_FRAMES.sign(frame, me, mesh=session.mesh, subject=BEAT.at(), at_ms=at_ms)
    await session.engine.bus.publish(BEAT.at(), payload)


async def session_of(mesh: MeshUnderTest) -> Session:
    return (await mesh.connection()).session


@pytest.mark.req("B5")
@pytest.mark.virtual_time
async def test_a_frame_in_the_older_form_is_followed_as_a_pulse_without_a_term():
    async with a_mesh("memory", STRICT) as mesh:
        session, key = await session_of(mesh), mesh.owner
        clock = BeatClock(session)
        now_ms = session.wall.now_ms()
        begun_ms = now_ms - 1_500
        old = {
            "cluster_id": session.mesh,
            "tempo_bpm": 15,
            "beat_ms": 4_000,
            "bar_len_beats": 8,
            "bar": 1287,
            "beat": 3,
            "phase": "work",
            "hlc": time_text(begun_ms) + "+1287:3+17",
            "policy_hash": policy_hash(DEFAULT_POLICY),
            "deadline_at": time_text(begun_ms + 4_000),
        }
        as_it_was = MessageType("beat", dict, max_bytes=BEAT_FRAMES.max_bytes)
        me = (key.did, key.sign)
        for frame, follows in (({**old, "deadline_at": "soon"}, "local"), (old, "median")):
            payload = as_it_was.sign(frame, me, mesh=session.mesh, subject=BEAT.at(), at_ms=now_ms)
            with capture_logs() as logged:
                await clock.note(payload)
            assert clock.mode() == follows
        assert clock.beat() == Beat(3, begun_ms)
        assert [one["event"] for one in logged] == ["deprecated_message"]


@pytest.mark.req("B6", "B8")
@pytest.mark.virtual_time
async def test_without_any_pulse_it_counts_by_the_policy_and_nothing_runs():
    async with a_mesh("memory", STRICT) as mesh:
        clock = BeatClock(await session_of(mesh))
        running = len(asyncio.all_tasks())
        beat = clock.beat()
        assert beat == DEFAULT_POLICY.meter.beat_at(mesh.wall.now_ms())
        assert (clock.mode(), clock.leader(), clock.now_ms()) == ("local", "", mesh.wall.now_ms())
        assert clock.phase() == DEFAULT_POLICY.beats.at(beat.index)
        beats = Beats(clock)
        first, second = await anext(beats), await anext(beats)
        assert second.epoch_ms - first.epoch_ms == clock.meter().beat_ms
        assert len(asyncio.all_tasks()) == running


@pytest.mark.req("B7")
@pytest.mark.virtual_time
async def test_a_listener_follows_whoever_may_send_beats_and_nobody_else():
    async with a_mesh("memory", STRICT) as mesh:
        session, stranger = await session_of(mesh), SeedKeyring(mesh.entropy.token(32))
        clock = BeatClock(session)
        async with clock.listen():
            await asyncio.sleep(0.01)
            await send(session, stranger, mesh.wall.now_ms())
            await eventually(lambda: clock.refused.get("author"))
            assert clock.mode() == "local"
            await send(session, mesh.owner, mesh.wall.now_ms())
            await eventually(lambda: clock.mode() == "leader")
            assert (clock.leader(), clock.meter().bpm) == (mesh.owner.did, 16)
        await asyncio.sleep(60)
        assert clock.mode() == "local"
        assert clock.meter().bpm == 16, "the tempo is frozen without a leader"


@pytest.mark.req("B9")
@pytest.mark.virtual_time
async def test_beats_go_on_when_the_pulse_falls_silent_and_none_comes_twice():
    async with a_mesh("memory", STRICT) as mesh:
        session = await session_of(mesh)
        clock, heard = BeatClock(session), list[Beat]()
        async with clock.calling(heard.append):
            for count in range(20):
                if count < 6 or count > 12:
                    await send(session, mesh.owner, mesh.wall.now_ms() - 40)
                await asyncio.sleep(FAST.meter.beat_ms / 1000)
        steps = {two.epoch_ms - one.epoch_ms for one, two in pairwise(heard[2:])}
        assert steps == {FAST.meter.beat_ms}
        assert len(heard) in (19, 20)


@pytest.mark.virtual_time
async def test_only_downbeats_are_called_if_asked_and_listeners_share_a_subscription():
    async with a_mesh("memory", STRICT) as mesh:
        clock, heard = BeatClock(await session_of(mesh)), list[Beat]()
        async with clock.calling(heard.append, only_downbeats=True), clock.listen():
            await asyncio.sleep(100)
            subscribers = [one for one in asyncio.all_tasks() if "_hear" in repr(one)]
        assert [one.index for one in heard] == [1, 1, 1]
        assert len(subscribers) == 1
        assert not [one for one in asyncio.all_tasks() if "_hear" in repr(one)]
