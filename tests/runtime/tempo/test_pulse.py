"""The pulse: one leads, others take over, and everybody counts on without it."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import msgspec
import pytest

from antiphon.core.bus.signed_message import Message
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.messages import BeatFrame, Suggestion
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import TempoPolicy, read_policy
from antiphon.core.tempo.time_text import hlc_text, parse_hlc, parse_time
from antiphon.errors import Unavailable
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.pulse import Pulse, no_suggestion
from tests.runtime.meshes import QUICK, MeshUnderTest, a_mesh, eventually, on_both_engines

BRISK = read_policy(
    {"initial_bpm": 60, "bar_len_beats": 4, "limits": {"min_bpm": 58, "max_bpm": 62}}
)
ADAPTIVE = msgspec.structs.replace(
    BRISK, adaptation=msgspec.structs.replace(BRISK.adaptation, enable=True)
)


async def set_tempo(mesh: MeshUnderTest, policy: TempoPolicy) -> None:
    session = (await mesh.connection(mesh.owner)).session
    written = await write_one(session, Intent(MeshTempo, TempoBody(policy=policy)), BEHIND)
    assert written.verdict is Verdict.OK


class Candidates:
    """Pulses on one mesh that can be killed, and a listener that keeps every frame it follows."""

    def __init__(self, mesh: MeshUnderTest) -> None:
        self.mesh = mesh
        self.running: dict[Pulse, asyncio.Task[None]] = {}
        self.followed: list[tuple[float, Message[BeatFrame]]] = []
        self.stack = AsyncExitStack()

    async def start(
        self,
        suggest: Callable[[], Suggestion | None] = no_suggestion,
        key: SeedKeyring | None = None,
    ) -> Pulse:
        connection = await self.mesh.connection(key)
        pulse = Pulse(BeatClock(connection.session), connection.keyring, suggest=suggest)
        self.running[pulse] = asyncio.ensure_future(pulse.run())
        return pulse

    async def kill(self, pulse: Pulse) -> None:
        """Like a process that is gone: nothing is released."""
        pulse.lease.drop()
        task = self.running.pop(pulse)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def leader(self) -> Pulse:
        return await eventually(lambda: next((one for one in self.running if one.is_leader), None))

    async def another_term(self, terms: set[int]) -> None:
        await eventually(lambda: self.followed[-1][1].body.revision > max(terms))

    async def watch(self) -> BeatClock:
        clock = BeatClock((await self.mesh.connection()).session)
        clock.watchers.append(
            lambda message: self.followed.append((self.mesh.wall.boot_s(), message))
        )
        await self.stack.enter_async_context(clock.listen())
        await asyncio.sleep(0.05)
        return clock

    async def frames(self, more: int) -> list[BeatFrame]:
        """Wait for that many more frames."""
        goal = len(self.followed) + more
        async with asyncio.timeout(4_000):
            while len(self.followed) < goal:
                await asyncio.sleep(0.2)
        return [message.body for _, message in self.followed]


@asynccontextmanager
async def candidates(engine: str, policy: TempoPolicy = BRISK):
    async with a_mesh(engine, QUICK) as mesh:
        await set_tempo(mesh, policy)
        these = Candidates(mesh)
        async with these.stack:
            try:
                yield these
            finally:
                for pulse in list(these.running):
                    await these.kill(pulse)


@pytest.mark.req("B1", "B7")
@on_both_engines
async def test_one_of_several_leads_and_sends_each_beat_once(engine):
    async with candidates(engine) as these:
        clock = await these.watch()
        for _ in range(3):
            await these.start()

        def gapless() -> list[BeatFrame]:
            """The last six if they are of one term, without a gap; a slow machine may lose it."""
            last = [message.body for _, message in these.followed[-6:]]
            epochs = [one.meter.anchor_ms + (one.beat_index - 1) * 1000 for one in last]
            is_led = [one.metrics.is_leader for one in these.running].count(True) == 1
            is_one_term = len({one.revision for one in last}) == 1 and last[0].revision > 0
            steps = [two - one for one, two in pairwise(epochs)]
            is_so = steps == [1000] * 5 and is_one_term and is_led and clock.mode() == "leader"
            return last if is_so else []

        frames = await eventually(gapless)
        if engine == "memory":
            assert len(these.followed) == 6, "nothing but these"
        assert [frame.downbeat for frame in frames] == [one.beat_index == 1 for one in frames]
        assert {frame.cluster_id for frame in frames} == {these.mesh.mesh}


@pytest.mark.req("B1", "B28")
@pytest.mark.virtual_time
async def test_a_frame_carries_the_hlc_of_its_leader_and_the_end_of_its_beat():
    async with candidates("memory") as these:
        await these.watch()
        leading = await these.start()
        last = (await these.frames(3))[-1]
        # An op that the leader reads is ahead of its clock: only the counter can go on from it.
        next_ms = parse_time(last.deadline_at)
        await asyncio.sleep((next_ms - 40 - these.mesh.wall.now_ms()) / 1000)
        leading._session.author.observe((next_ms + 20, 40))
        frames = await these.frames(3)
        stamps = [parse_hlc(frame.hlc) for frame in frames]
        assert [hlc_text(stamp) for stamp in stamps] == [frame.hlc for frame in frames]
        assert stamps == sorted(set(stamps))
        assert (next_ms + 20, 41) in stamps
        for stamp, frame in zip(stamps, frames, strict=True):
            begins_ms, ends_ms = parse_time(frame.beat_epoch), parse_time(frame.deadline_at)
            assert ends_ms - begins_ms == frame.beat_ms == 1000
            assert begins_ms <= stamp.wall_ms < ends_ms


@pytest.mark.req("B7")
@on_both_engines
async def test_when_the_leader_dies_another_goes_on_in_the_same_meter_within_two_beats(engine):
    async with candidates(engine) as these:
        clock = await these.watch()
        for _ in range(3):
            await these.start()
        for _ in range(3):
            await these.frames(2)
            leader, terms = await these.leader(), {one.body.revision for _, one in these.followed}
            before_s = these.mesh.wall.boot_s()
            anchor_ms = clock.meter().anchor_ms
            await these.kill(leader)
            await these.another_term(terms)
            took_s = these.followed[-1][0] - before_s
            if engine == "memory":
                assert took_s <= 2.0
            assert clock.meter().anchor_ms == anchor_ms
            assert these.followed[-1][1].body.revision > max(terms)
            await these.start()


@pytest.mark.virtual_time
async def test_a_leader_that_slept_through_its_lease_says_nothing_more():
    async with candidates("memory") as these:
        await these.watch()
        sleeper = await these.start()
        await these.frames(2)
        heard = len(these.followed)
        sleeper.lease._until_s = these.mesh.wall.boot_s()
        assert not sleeper.is_leader
        await sleeper._send_beat()
        assert len(these.followed) == heard


def tempo_changes(frames: list[BeatFrame]) -> list[tuple[BeatFrame, BeatFrame]]:
    return [(one, two) for one, two in pairwise(frames) if one.tempo_bpm != two.tempo_bpm]


@pytest.mark.req("B10", "B16", "B17")
@pytest.mark.virtual_time
async def test_suggestions_are_followed_on_downbeats_by_one_bpm_a_minute_within_the_limits():
    async with candidates("memory", ADAPTIVE) as these:
        clock = await these.watch()
        await these.start(lambda: Suggestion(tempo_bpm=600, why="much to do"))
        frames = await these.frames(300)
        changes = tempo_changes(frames)
        assert list(dict.fromkeys(frame.tempo_bpm for frame in frames))[-2:] == [61, 62]
        assert all(two.downbeat for _, two in changes)
        begun_ms = [two.meter.anchor_ms for _, two in changes]
        assert all(two - one >= 60_000 for one, two in pairwise(begun_ms))
        assert not any("changes" in why for why in clock.refused)


@pytest.mark.req("B16")
@pytest.mark.virtual_time
async def test_phases_are_moved_on_downbeats_and_frames_say_so():
    async with candidates("memory", ADAPTIVE) as these:
        clock = await these.watch()
        more_review = Phases(plan=1, work=1, review=2)
        await these.start(lambda: Suggestion(phases=more_review))
        frames = await these.frames(10)
        first = next(frame for frame in frames if frame.phases is not None)
        assert (first.downbeat, first.phases) == (True, more_review)
        assert clock.phases() == more_review


@pytest.mark.req("B16")
@pytest.mark.virtual_time
async def test_a_frozen_tempo_stays_where_it_is_also_after_a_takeover():
    async with candidates("memory", ADAPTIVE) as these:
        await these.watch()

        def faster() -> Suggestion:
            return Suggestion(tempo_bpm=62)

        await these.start(faster)
        await these.frames(8)
        frozen = msgspec.structs.replace(ADAPTIVE.adaptation, frozen=True)
        await set_tempo(these.mesh, msgspec.structs.replace(ADAPTIVE, adaptation=frozen))
        for pulse in these.running:
            await pulse.clock.session.sync_control()
        frames = await these.frames(150)
        assert frames[-1].tempo_bpm == 61, "the tempo was not reset, and went no further"
        await these.start(faster)
        await these.kill(await these.leader())
        frames = await these.frames(150)
        assert frames[-1].tempo_bpm == 61


@pytest.mark.req("B10", "B25")
@on_both_engines
async def test_a_new_policy_holds_from_the_next_downbeat_and_listeners_that_missed_it_read_it(
    engine,
):
    async with candidates(engine) as these:
        clock = await these.watch()
        leader = await these.start()
        await these.frames(2)
        slow = read_policy({"initial_bpm": 40, "bar_len_beats": 3, "limits": {"max_bpm": 50}})
        await set_tempo(these.mesh, slow)
        await leader.clock.session.sync_control()
        goal = await eventually(
            lambda: [one.body for _, one in these.followed if one.body.tempo_bpm == 40]
        )
        before = [one.body for _, one in these.followed if one.body.tempo_bpm == 60][-1]
        assert before.policy_hash != goal[0].policy_hash
        assert goal[0].meter.anchor_ms == before.meter.downbeat_after(before.meter.anchor_ms)
        assert (clock.meter().bpm, clock.meter().bar_len) == (40, 3)
        assert clock.refused.get("it follows another tempo policy", 0) <= 1


@pytest.mark.req("B7")
@pytest.mark.virtual_time
async def test_the_tempo_outlives_all_candidates():
    async with candidates("memory", ADAPTIVE) as these:
        await these.watch()
        first = await these.start(lambda: Suggestion(tempo_bpm=62))
        await these.frames(100)
        meter = first.clock.meter()
        await these.kill(first)
        await asyncio.sleep(3_600)
        await these.start()
        frames = await these.frames(2)
        assert frames[-1].tempo_bpm == meter.bpm == 62
        assert (frames[-1].meter.anchor_ms - meter.anchor_ms) % meter.bar_ms == 0


@pytest.mark.req("B8")
@pytest.mark.virtual_time
async def test_without_a_leader_every_candidate_sends_its_own_beats_and_the_median_is_followed(
    monkeypatch,
):
    async with candidates("memory", ADAPTIVE) as these:
        clock = await these.watch()
        pulses = [await these.start(lambda: Suggestion(tempo_bpm=62)) for _ in range(3)]
        await these.frames(4)
        assert clock.mode() == "leader"

        async def refuse(*_: object, **__: object) -> None:
            raise Unavailable("no leases today")

        for pulse in pulses:
            monkeypatch.setattr(pulse.lease, "take", refuse)
            monkeypatch.setattr(pulse.lease, "renew", refuse)
        bpm = clock.meter().bpm
        await asyncio.sleep(10)
        assert clock.mode() == "median"
        assert len(clock.view._fresh_pulses(clock.own_ms())) == 3
        assert {one.body.revision for _, one in these.followed[-3:]} == {0}
        await asyncio.sleep(300)
        assert clock.meter().bpm == bpm, "frozen"
        assert {pulse.metrics.degraded for pulse in pulses} == {"no leader"}
        monkeypatch.undo()
        await eventually(lambda: clock.mode() == "leader", within_s=10)
        assert {pulse.metrics.degraded for pulse in pulses if pulse.is_leader} == {""}


@pytest.mark.req("B24")
@pytest.mark.virtual_time
async def test_an_hour_of_beats_is_an_hour():
    async with candidates("memory", TempoPolicy()) as these:
        await these.watch()
        for _ in range(2):
            await these.start()
        begun_s = these.mesh.wall.boot_s()
        while these.mesh.wall.boot_s() - begun_s < 3_600:
            await asyncio.sleep(600)
            await these.kill(await these.leader())
            await these.start()
        frames = [one.body for _, one in these.followed]
        elapsed_ms = (these.followed[-1][0] - these.followed[0][0]) * 1000
        epochs = frames[-1].meter.beat_at(these.followed[-1][1].at_ms).epoch_ms
        counted_ms = epochs - frames[0].meter.beat_at(these.followed[0][1].at_ms).epoch_ms
        assert abs(counted_ms - elapsed_ms) / elapsed_ms <= 0.01
