"""Faults that chaos taught us: each really happens, and what it is for is noticed."""

import asyncio
from collections import Counter
from contextlib import ExitStack

import pytest

from antiphon.core.families.jobs.state import HELD
from antiphon.engines.memory import oplog
from antiphon.engines.memory.faults import Fate
from antiphon.engines.memory.oplog import MemoryLog
from antiphon.testing.virtual_time import new_loop
from simulator.actors import machines
from simulator.hostile.starvation import bury, drink, unquenchable
from simulator.mutants.runtime import stolen_calls_unheeded
from simulator.network import HalfOpen, Network, Weather
from simulator.seeds.world import Plan, run
from tests.examples import size
from tests.simulation.cluster import call, ended, key_of, lane, play, submit, types_on, until

STORM = size(
    {"chaos_s": 150.0, "faults_per_hour": 1_800.0},
    soak={"chaos_s": 420.0, "faults_per_hour": 900.0},
)
MOST_WORLDS = 6


@pytest.mark.long
@pytest.mark.parametrize(
    "stress, first, wanted",
    [
        (
            ("half_open", "restart", "second_life", "pause"),
            2,
            (
                "half open, mute",
                "half open, deaf",
                "request unheard",
                "answer unheard",
                "notice unheard",
                "restart",
                "second life of worker",
                "pause of worker",
            ),
        ),
        (
            ("jump", "race", "engine_jump"),
            4,
            (
                "jump ahead",
                "jump back",
                "fast clock",
                "slow clock",
                "engine's clock ahead",
                "engine's clock back",
            ),
        ),
        (
            ("thirst", "bury", "cling", unquenchable.__name__),
            0,
            (
                "announcement swallowed",
                "junk record",
                "hostile thirst",
                "hostile unquenchable",
                "hostile bury",
                "hostile cling",
            ),
        ),
    ],
)
def test_it_happens_and_every_law_holds(stress, first, wanted):
    """In a world or in the next one; for longer if there is time."""
    faults = Counter()
    for seed in range(first, first + MOST_WORLDS):
        outcome = run(Plan(seed=seed, stress=stress, **STORM))
        told = "\n".join([*map(str, outcome.violations), *outcome.stories])
        assert not outcome.violations, f"seed {seed}, stress {stress}\n{told}"
        faults.update(outcome.faults)
        missing = [name for name in wanted if not any(one.startswith(name) for one in faults)]
        if not missing:
            return
    pytest.fail(f"not seen in {MOST_WORLDS} worlds: {missing}; only {sorted(faults)}")


# --- half-open lines -------------------------------------------------------------------------


def at(now_s, ask):
    loop = new_loop()

    async def later():
        await asyncio.sleep(now_s)
        return ask()

    return loop.run_until_complete(later())


class Never:
    def random(self):
        return 0.999


def line(half):
    weather = Weather()
    weather.clear()
    weather.half_open["w"] = half
    return Network("w", weather, Never())


def test_a_mute_line_still_hears():
    stuck = line(HalfOpen(is_mute=True, until_s=10.0))
    assert at(4.0, lambda: stuck.request("append")).delay_s == 6.0
    for heard in (stuck.delivery, stuck.notice, stuck.bus):
        assert at(4.0, heard).delay_s == 0.0
        assert not at(4.0, heard).lost
    assert at(4.0, lambda: line(HalfOpen(is_mute=True, until_s=None)).request("append")).lost


def test_a_deaf_line_still_writes():
    stuck = line(HalfOpen(is_mute=False, until_s=10.0))
    fate = at(4.0, lambda: stuck.request("append"))
    assert (fate.delay_s, fate.answer_delay_s, fate.lost) == (0.0, 6.0, False)
    for unheard in (stuck.delivery, stuck.notice, stuck.bus):
        assert at(4.0, unheard).delay_s == 6.0
    gone = line(HalfOpen(is_mute=False, until_s=None))
    assert at(4.0, lambda: gone.request("append")).answer_lost
    assert at(4.0, gone.delivery).lost


@pytest.mark.parametrize("is_mute", [True, False])
def test_a_worker_whose_line_is_half_open_for_longer_than_its_lease_is_replaced(tmp_path, is_mute):
    slow = call(kind="render.slow", duration_ms=12_000, lease_ms=5_000)

    async def story(world):
        first, second = world.workers[:2]
        world.full[0].boot()
        first.boot()
        await submit(world, slow)
        await until(lambda: world.workload.runs == 1)
        until_s = asyncio.get_running_loop().time() + 40
        world.cluster.weather.half_open[first.name] = HalfOpen(is_mute, until_s)
        second.boot()
        await until(ended(world, key_of(slow)))
        world.cluster.weather.half_open.clear()
        await asyncio.sleep(60)  # what was held back arrives now
        assert lane(world, key_of(slow)).claimer == second.keyring.did

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert types_on(world, key_of(slow)).count(("complete", "ok")) == 1
    assert outcome.runs == 2


# --- torn turns ------------------------------------------------------------------------------


def test_what_was_written_together_and_torn_is_finished_record_by_record(tmp_path, monkeypatch):
    jobs, torn = [call(number, duration_ms=10) for number in range(12)], []
    really_request = Network.request

    def request(self, what):
        if what != "append_many":
            return really_request(self, what)
        torn.append(what)
        return Fate(share=0.5) if len(torn) % 2 else Fate(answer_share=0.5)

    monkeypatch.setattr(Network, "request", request)
    monkeypatch.setattr(oplog, "BATCH_FROM", len(jobs) + 1)  # a part of them is stored

    async def story(world):
        await submit(world, *jobs)
        world.full[0].boot()
        world.workers[0].boot()
        await until(ended(world, *map(key_of, jobs)))

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert len(torn) > 1
    assert outcome.runs == len(jobs)
    for job in jobs:
        assert types_on(world, key_of(job)).count(("complete", "ok")) == 1


def test_jobs_that_two_submit_together_are_there_once_though_batches_are_torn_and_refused(
    monkeypatch,
):
    really_try, met = MemoryLog._append_in_one_step, Counter()

    async def in_one_step(self, records, timeout_s):
        stored = await really_try(self, records, timeout_s)
        met["refused" if not stored else "stored" if isinstance(stored[0], int) else "torn"] += 1
        return stored

    monkeypatch.setattr(MemoryLog, "_append_in_one_step", in_one_step)
    plan = Plan(
        seed=2,
        chaos_s=60.0,
        jobs_per_hour=60.0,
        faults_per_hour=1_200.0,
        stress=("storm", "outage"),
        bursts=4,
    )
    assert not run(plan).violations
    assert {"stored", "refused", "torn"} <= met.keys(), met


# --- stolen calls ----------------------------------------------------------------------------


async def thirsty(world):
    """Everybody at work, and one who swallows whatever is announced, and stays."""
    for machine in (*world.full, *world.workers, world.hostile_member):
        machine.boot()
    await asyncio.sleep(1)
    world.hostile_member.act(lambda m: drink(m, "build.fast"))
    await asyncio.sleep(1)


def test_calls_that_somebody_swallows_are_answered_while_it_is_there(tmp_path):
    jobs = [call(number, duration_ms=10) for number in range(8)]

    async def story(world):
        await thirsty(world)
        await submit(world, *jobs)
        began_s = asyncio.get_running_loop().time()
        await until(ended(world, *map(key_of, jobs)))
        assert asyncio.get_running_loop().time() - began_s < 30

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert world.hostile_member.swallowed


def test_without_pointers_a_swallowed_call_lies(tmp_path):
    jobs = [call(number, duration_ms=10) for number in range(8)]

    async def story(world):
        await thirsty(world)
        await submit(world, *jobs)
        await asyncio.sleep(30)
        assert not ended(world, *map(key_of, jobs))()

    with stolen_calls_unheeded():
        play(tmp_path, story)


# --- the rest --------------------------------------------------------------------------------


def test_a_server_that_forgot_what_was_settled_hands_it_out_again_and_nothing_runs_twice(
    tmp_path, monkeypatch
):
    one, handed = call(duration_ms=10), []
    really_next = machines.WatchedQueue.next

    async def following(self):
        delivery = await really_next(self)
        handed.append(delivery.record.seq)
        return delivery

    monkeypatch.setattr(machines.WatchedQueue, "next", following)

    async def story(world):
        world.workers[0].boot()
        await asyncio.sleep(1)
        world.adversary.restart()
        await submit(world, one)
        await until(ended(world, key_of(one)))
        await until(lambda: world.adversary.counts["restart"])
        await asyncio.sleep(10)

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert len(handed) == 2
    assert len(set(handed)) == 1
    assert world.workload.runs == 1


def test_a_worker_back_at_once_meets_the_claim_that_its_first_life_sent(tmp_path):
    one = call(duration_ms=100)

    async def story(world):
        world.full[0].boot()
        worker, weather = world.workers[0], world.cluster.weather
        worker.boot()
        await asyncio.sleep(1)

        def trap(kind_of_op, host):
            if kind_of_op != "job.claim" or host is not worker.host:
                return False
            until_s = asyncio.get_running_loop().time() + 3
            weather.half_open[worker.name] = HalfOpen(is_mute=True, until_s=until_s)
            world.adversary._later(0.01, again)
            return True

        def again():
            weather.half_open.clear()
            worker.kill()
            worker.boot()

        world.cluster.referee.traps.append(trap)
        await submit(world, one)
        await until(ended(world, key_of(one)))
        assert worker.boots == 2

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    # The first life's claim came to hold the job for nobody: it is given up, and claimed anew.
    told = types_on(world, key_of(one))
    assert told.count(("claim", "ok")) == 2
    assert ("yield", "ok") in told or ("expire", "ok") in told
    assert world.workload.runs == 1


def test_an_engine_whose_clock_is_set_back_stops_everything_and_it_goes_on_afterwards(tmp_path):
    first, second = call(1, duration_ms=10), call(2, duration_ms=10)

    async def story(world):
        world.full[0].boot()
        world.workers[0].boot()
        await submit(world, first)
        await until(ended(world, key_of(first)))
        world.cluster.clock.step(-600_000)
        submitter = world.submitters[0]
        world.workload.calls[0].append(second)
        submitter.is_finished = False
        submitter.boot()
        await asyncio.sleep(20)
        assert not submitter.is_finished
        world.cluster.clock.correct()
        await until(lambda: submitter.is_finished)
        await until(ended(world, key_of(second)))

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    log = world.cluster.referee.log
    stamps = [log.at(seq).stamp_ns for seq in range(1, log.last_seq + 1)]
    assert stamps != sorted(stamps), "a later record bears an earlier stamp"
    assert outcome.verdicts["honest drift"]


def test_a_lane_under_more_junk_than_one_page_holds_is_read_to_its_end(tmp_path):
    slow = call(kind="render.slow", duration_ms=20_000, lease_ms=8_000)

    async def story(world):
        for machine in (world.full[0], world.workers[0], world.hostile_member):
            machine.boot()
        await submit(world, slow)
        await until(lambda: lane(world, key_of(slow)).state in HELD)
        world.hostile_member.act(bury)
        await until(ended(world, key_of(slow)))

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert world.hostile_member.buried > 256
    assert lane(world, key_of(slow)).outcome == "succeeded"


def test_a_worker_that_runs_more_jobs_than_it_has_slots_is_noticed(tmp_path):
    async def story(world):
        def running(number):
            key = ("build.fast", f"{number:064x}")
            world.cluster.referee.ledger.lane(key).fences.append("f")
            return world.cluster.referee.running("w", key, "f", slots=2)

        with ExitStack() as stack:
            for number in range(3):
                stack.enter_context(running(number))
        with running(9):
            pass

    _, outcome = play(tmp_path, story)
    assert [one.law for one in outcome.violations] == ["within_slots"]
