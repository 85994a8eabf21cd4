"""A worker whose machine cannot finish: it gives jobs back with the reason, and goes on later."""

import asyncio

import pytest

from antiphon.core.families.jobs.ops import JobYield
from antiphon.core.families.jobs.state import State
from antiphon.runtime.caller import submission
from antiphon.runtime.worker.battery_watch import LOOK_S, HostBattery
from tests.runtime.meshes import KIND, a_mesh, call, eventually, on_both_engines


class Charge:
    """A battery that a test sets."""

    def __init__(self) -> None:
        self.percent: int | None = None

    def percent_left(self) -> int | None:
        return self.percent


class Held:
    """A handler that goes on until it is told to end."""

    def __init__(self) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def run(self, number: int) -> int:
        self.began.set()
        await self.may_end.wait()
        return number


async def reasons(session, job) -> list[str]:
    view = await session.read_lane(KIND, job.id)
    ops = [one.opened.op for one in view.history if one.verdict.is_accepted]
    return [op.body.reason for op in ops if isinstance(op, JobYield)]


@on_both_engines
@pytest.mark.req("M22")
async def test_at_a_low_battery_jobs_go_back_with_that_reason_until_it_is_charged(
    engine, monkeypatch
):
    monkeypatch.setattr("antiphon.runtime.worker.battery_watch.LOOK_S", 0.05)
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        charge, weak, strong = Charge(), Held(), Held()
        laptop = await mesh.worker(weak.run, drain_s=0.1, battery=charge)
        job = await call(caller, 1)
        await weak.began.wait()
        charge.percent = 11
        await asyncio.sleep(0.2)
        assert not laptop.paused, "that is enough"

        charge.percent = 10
        await eventually(lambda: laptop.paused and not laptop.busy)
        state = (await caller.read_lane(KIND, job.id)).lane.job
        assert (state.state, state.attempts) == (State.PENDING, 0)
        assert await reasons(caller, job) == ["battery"]

        await mesh.worker(strong.run)
        await strong.began.wait()  # the other machine takes it up
        second = await call(caller, 2)
        strong.may_end.set()
        for one in (job, second):
            await submission.wait_for_end(caller, KIND, one.id)
        assert laptop.done == 0

        charge.percent = 12
        await asyncio.sleep(0.2)
        assert laptop.paused, "it has hardly been charged"
        charge.percent = None  # on mains
        await eventually(lambda: not laptop.paused)


@on_both_engines
@pytest.mark.req("M22")
async def test_whoever_goes_to_sleep_gives_back_at_once_and_works_again_when_awake(engine):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        held = Held()
        worker = await mesh.worker(held.run, drain_s=3600)
        job = await call(caller, 1)
        await held.began.wait()
        await worker.pause("sleep", within_s=0)
        assert worker.busy == 0
        assert await reasons(caller, job) == ["sleep"]
        held.began.clear()
        await asyncio.sleep(0.3)
        assert not held.began.is_set(), "asleep it takes nothing"

        held.may_end.set()
        worker.resume("sleep")
        ended = await submission.wait_for_end(caller, KIND, job.id)
        assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 0)


@pytest.mark.virtual_time
@pytest.mark.req("M22")
async def test_a_job_that_ends_in_time_is_not_given_back():
    async def brief(number: int) -> int:
        await asyncio.sleep(4)
        return number

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        charge = Charge()
        worker = await mesh.worker(brief, drain_s=5, battery=charge)
        await asyncio.sleep(LOOK_S - 1)
        job = await call(caller, 1)
        await eventually(lambda: worker.busy)
        charge.percent = 3
        ended = await submission.wait_for_end(caller, KIND, job.id)
        assert ended.job.outcome == "succeeded"
        assert worker.paused == {"battery"}
        assert await reasons(caller, job) == []


SUPPLIES = {
    "a laptop on battery": ({"BAT0": ("Battery", "", "Discharging", "7")}, 7),
    "a laptop on mains": (
        {"AC": ("Mains", "", "", ""), "BAT0": ("Battery", "", "Charging", "7")},
        None,
    ),
    "two batteries": (
        {
            "BAT0": ("Battery", "System", "Discharging", "4"),
            "BAT1": ("Battery", "System", "Discharging", "60"),
        },
        60,
    ),
    "a mouse": ({"hid-mouse": ("Battery", "Device", "Discharging", "3")}, None),
    "a battery that does not say": ({"BAT0": ("Battery", "", "Discharging", "")}, None),
    "a server": ({}, None),
}


@pytest.mark.req("M22")
@pytest.mark.parametrize("machine", SUPPLIES)
def test_the_battery_is_read_from_what_linux_shows(machine, tmp_path):
    supplies, left = SUPPLIES[machine]
    for name, words in supplies.items():
        (tmp_path / name).mkdir()
        for file, word in zip(("type", "scope", "status", "capacity"), words, strict=True):
            if word:
                (tmp_path / name / file).write_text(f"{word}\n")
    assert HostBattery(tmp_path).percent_left() == left
    assert HostBattery(tmp_path / "nowhere").percent_left() is None
