"""How long a lock outlives its holder: by what it is for, or until a phase or a bar ends."""

import asyncio
from types import SimpleNamespace

import pytest

from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases
from antiphon.errors import Held
from antiphon.sdk.locks.namespace import Locks
from tests.runtime.locks.lockers import OPEN
from tests.runtime.meshes import FixedTempo, a_mesh

pytestmark = pytest.mark.virtual_time
BEAT_MS = 4_000
METER = Meter(bpm=15)
PHASES = Phases()


async def locks_on(mesh) -> Locks:
    session = (await mesh.connection()).session
    clock = FixedTempo(mesh.wall, BEAT_MS)
    return Locks(SimpleNamespace(session=session, clock=clock, agent="main", keeping=None))


def is_end(at_ms: int, which: str) -> bool:
    """Whether a phase, or a bar, ends with this moment."""
    before, after = METER.beat_at(at_ms - 1), METER.beat_at(at_ms)
    if which == "bar":
        return after.is_downbeat and after.epoch_ms == at_ms
    is_other = PHASES.at(before.index) != PHASES.at(after.index)
    return is_other and after.epoch_ms == at_ms


@pytest.mark.exact_times
@pytest.mark.req("S7")
@pytest.mark.parametrize(
    "given, lasts_s", [({}, 30), ({"ttl": "edit"}, 30), ({"ttl": "task"}, 300), ({"ttl": 7}, 7)]
)
async def test_a_crashed_holder_keeps_a_lock_for_as_long_as_its_purpose_says(given, lasts_s):
    async with a_mesh("memory", OPEN) as mesh:
        holder, waiter = await locks_on(mesh), await locks_on(mesh)
        lock = await holder.hold("file:src/lib.rs", **given).take()
        taken_ms = mesh.wall.now_ms()
        assert abs(lock.deadline_ms - taken_ms - lasts_s * 1000) <= 5
        lock._keeper.cancel()  # as a process that is gone: nothing renews, nothing releases
        with pytest.raises(Held):
            await waiter.hold("file:src/lib.rs", wait=lasts_s - 1).take()
        async with waiter.hold("file:src/lib.rs", wait=30):
            assert lasts_s <= (mesh.wall.now_ms() - taken_ms) / 1000 <= lasts_s + 2


@pytest.mark.req("B14")
@pytest.mark.parametrize("which", ["phase", "bar"])
async def test_a_lock_in_beats_ends_with_a_phase_or_a_bar_and_renewals_move_it_to_the_next(which):
    async with a_mesh("memory", OPEN) as mesh:
        await asyncio.sleep(1.234)  # somewhere within a beat
        ends = []
        async with (await locks_on(mesh)).hold("file:src/lib.rs", ttl=which) as lock:
            for _ in range(30):
                ends.append(lock.deadline_ms)
                await asyncio.sleep(BEAT_MS / 1000)
        assert all(is_end(at_ms, which) for at_ms in ends)
        assert ends == sorted(ends)
        assert len(set(ends)) >= 3


@pytest.mark.req("B14")
async def test_a_lock_that_nobody_renews_is_free_when_its_phase_has_ended():
    async with a_mesh("memory", OPEN) as mesh:
        holder, waiter = await locks_on(mesh), await locks_on(mesh)
        lock = await holder.hold("file:src/lib.rs", ttl="phase").take()
        ends_ms = lock.deadline_ms
        lock._keeper.cancel()
        async with waiter.hold("file:src/lib.rs", wait=300):
            assert ends_ms <= mesh.wall.now_ms() <= ends_ms + 2_000
        assert is_end(ends_ms, "phase")
