"""A job over its budget: ended by its worker while it runs, as failed, and with its words."""

import asyncio
import threading

import pytest

from antiphon.core.cost.job_cost import Spent, price
from antiphon.core.cost.rates import Rates, read_rates
from antiphon.core.cost.usage import Reported
from antiphon.core.families.jobs.completion_proof import statement_of
from antiphon.core.families.jobs.ops import JobComplete, JobYield, Retry
from antiphon.core.families.jobs.state import State
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.tempo.budget import Budget, read_budget
from antiphon.core.tempo.policy import TempoLimits, TempoPolicy, policy_hash
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import JobContext
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from tests.runtime import spawned
from tests.runtime.meshes import KIND, MeshUnderTest, a_mesh, call, eventually, on_both_engines

pytestmark = pytest.mark.req("B21")

FOREVER_S = 3_600.0


def policy(bpm: int = 15, rates: Rates | None = None) -> TempoPolicy:
    limits = TempoLimits(min_bpm=1, max_bpm=600)
    return TempoPolicy(initial_bpm=bpm, limits=limits, rates=rates)


async def with_policy(mesh: MeshUnderTest, given: TempoPolicy) -> None:
    owner = (await mesh.connection(mesh.owner)).session
    await write_one(owner, Intent(MeshTempo, TempoBody(policy=given)))


async def ended_with(caller: Session, budget: Budget, *args: object, **fields: object):
    """How a job with this budget ended, and what its worker says about it."""
    called = await call(caller, *args, budget=budget, **fields)
    ended = await submission.wait_for_end(caller, KIND, called.id)
    lane = await caller.read_lane(KIND, called.id)
    op = lane.history[-1].opened.op
    assert isinstance(op, JobComplete)
    return ended, statement_of(op.mesh, op.author, op.body, op.body.proof).predicate


async def never_ends() -> None:
    await asyncio.sleep(FOREVER_S)


@on_both_engines
async def test_a_job_over_its_beats_ends_as_failed_without_another_attempt(engine):
    async with a_mesh(engine) as mesh:
        await with_policy(mesh, policy(bpm=600))
        caller = (await mesh.connection()).session
        await mesh.worker(never_ends)
        ended, said = await ended_with(caller, Budget(max_bu=3), retry=Retry(attempts=5))
    assert (ended.job.state, ended.job.outcome, ended.job.attempts) == (State.FAILED, "failed", 0)
    assert ended.error.name == "OverBudget"
    assert (
        "beats, and may use 3 (max_bu). Submit it again with a larger max_bu" in ended.error.message
    )
    assert said.status == "failed"
    assert said.cost.policy == policy_hash(policy(bpm=600))
    assert said.cost.beats_milli >= 3_000
    if engine == "memory":
        assert said.cost.beats_milli < 3_100, "the timer ended it in time"


@pytest.mark.virtual_time
async def test_without_a_policy_a_beat_has_four_seconds():
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(never_ends)
        ended, said = await ended_with(caller, Budget(max_bu=2))
    assert ended.error.name == "OverBudget"
    assert 8_000 <= said.usage.wall_ms < 8_100
    assert (said.cost.beats_milli, said.cost.amount_nano) == (2_000, None)


@pytest.mark.virtual_time
async def test_a_job_ends_at_the_downbeat_that_is_its_hard_end():
    async with a_mesh("memory") as mesh:
        await with_policy(mesh, policy(bpm=60))
        caller = (await mesh.connection()).session
        await mesh.worker(never_ends)
        await asyncio.sleep(3.0)  # the middle of a bar of eight seconds
        ended, said = await ended_with(caller, Budget(hard_end="bar+2"))
    assert "it was still running at bar+2, its end (hard_end)" in ended.error.message
    assert ended.job.ended_ms % 8_000 < 1_000, "a downbeat, and what it takes to write"
    assert 12_000 <= said.usage.wall_ms <= 14_000


@pytest.mark.virtual_time
async def test_a_job_that_stays_within_its_budget_is_left_alone():
    async def handler() -> int:
        await asyncio.sleep(7.9)
        return 5

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        ended, said = await ended_with(caller, Budget(max_bu=2, hard_end="bar+9"))
    assert ended.job.state is State.SUCCEEDED
    assert 1_975 <= said.cost.beats_milli < 2_000


@pytest.mark.virtual_time
async def test_a_device_that_is_reported_counts_at_once():
    async def handler(ctx: JobContext) -> None:
        ctx.used(gpu_sec={"a100": 1.5})
        await asyncio.sleep(0.5)
        ctx.used(gpu_sec={"a100": 0.6})
        await asyncio.sleep(FOREVER_S)

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        budget = read_budget({"per_bu": {"gpu_sec": {"a100": 2}}})
        ended, said = await ended_with(caller, budget)
    assert ended.error.message.startswith(
        "it used 2.1 gpu_sec[a100] within one beat, and may use 2 in each (per_bu.gpu_sec[a100])"
    )
    assert said.usage.reported == Reported(gpu_ms={"a100": 2_100})
    assert said.usage.wall_ms < 1_000


@pytest.mark.virtual_time
async def test_a_job_over_its_cost_ends_and_its_proof_says_what_it_cost():
    rates = read_rates({"currency": "EUR", "role_rate_bu": {"default": 0.5}})
    async with a_mesh("memory") as mesh:
        await with_policy(mesh, policy(rates=rates))
        caller = (await mesh.connection()).session
        await mesh.worker(never_ends)
        ended, said = await ended_with(caller, read_budget({"max_cost": 1.25}))
    assert "EUR, and may cost 1.25 (max_cost)" in ended.error.message
    assert said.cost.currency == "EUR"
    again = price(rates, KIND, beats_milli=said.cost.beats_milli, used=said.usage)
    assert said.cost.amount_nano == again.nano > 1_250_000_000
    assert ended.job.spent == (
        (
            said.worker,
            Spent(
                beats_milli=said.cost.beats_milli,
                currency="EUR",
                amount_nano=said.cost.amount_nano,
            ),
        ),
    )


@pytest.mark.virtual_time
async def test_beats_of_attempts_that_failed_count_too():
    tries = []

    async def handler() -> None:
        tries.append(1)
        await asyncio.sleep(4.0)
        raise RuntimeError("no")

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        budget = Budget(max_bu=3)
        called = await call(caller, budget=budget, retry=Retry(attempts=9, base_ms=0, cap_ms=0))
        ended = await submission.wait_for_end(caller, KIND, called.id)
        lane = await caller.read_lane(KIND, called.id)
    assert ended.error.name == "OverBudget"
    assert "in all its attempts" in ended.error.message
    assert len(tries) == 3
    yields = [one.opened.op for one in lane.history if isinstance(one.opened.op, JobYield)]
    assert [1_000 <= one.body.cost.beats_milli < 1_100 for one in yields] == [True, True]
    assert 3_000 <= ended.job.total_spent.beats_milli < 3_100


@pytest.mark.virtual_time
async def test_a_handler_that_ignores_its_end_keeps_its_job_no_longer():
    async def handler() -> None:
        while True:
            try:
                await asyncio.sleep(FOREVER_S)
            except asyncio.CancelledError:
                if stop.is_set():
                    raise

    stop = asyncio.Event()
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(handler)
        ended, _ = await ended_with(caller, Budget(max_bu=1))
        assert ended.error.name == "OverBudget"
        stop.set()
        await eventually(lambda: worker.busy == 0)


@pytest.mark.virtual_time
async def test_a_handler_that_returns_after_its_end_has_no_result():
    async def handler() -> int:
        try:
            await asyncio.sleep(FOREVER_S)
        except asyncio.CancelledError:
            return 5
        return 6

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        ended, _ = await ended_with(caller, Budget(max_bu=1))
    assert (ended.error.name, ended.outputs) == ("OverBudget", ())


async def test_a_thread_is_told_and_its_job_ends_without_it():
    seen, told = threading.Event(), []

    def handler(ctx: JobContext) -> None:
        told.append(ctx.stop.wait(60))
        seen.set()

    async with a_mesh("memory") as mesh:
        await with_policy(mesh, policy(bpm=600))
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        ended, _ = await ended_with(caller, Budget(max_bu=2))
        assert ended.error.name == "OverBudget"
        assert await asyncio.to_thread(seen.wait, 30)
    assert told == [True]


async def test_a_thread_that_computes_too_much_in_a_beat_is_over_its_ceiling():
    done = threading.Event()

    def handler(ctx: JobContext) -> None:
        while not ctx.cancelled:
            sum(range(1_000))
        done.set()

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        ended, said = await ended_with(caller, read_budget({"per_bu": {"cpu_sec": 0.1}}))
        assert await asyncio.to_thread(done.wait, 30)
    assert "(per_bu.cpu_sec)" in ended.error.message
    assert said.usage.cpu_ms > 100


@pytest.mark.processes
async def test_a_process_over_its_budget_is_killed():
    async with a_mesh("memory") as mesh:
        await with_policy(mesh, policy(bpm=60))
        caller = (await mesh.connection()).session
        await mesh.worker(spawned.spins, how=HandlerOptions(run_in="process"))
        ended, said = await ended_with(caller, read_budget({"per_bu": {"cpu_sec": 0.2}}))
    assert "(per_bu.cpu_sec)" in ended.error.message
    assert said.usage.cpu_ms > 200, "what was measured until then"


# --- what a proof says without a budget -----------------------------------------------------------


@pytest.mark.exact_times
@pytest.mark.virtual_time
async def test_a_mesh_without_rates_says_no_cost_and_one_with_them_says_it_for_every_job():
    async def handler() -> int:
        await asyncio.sleep(4.0)
        return 1

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        called = await call(caller)
        await submission.wait_for_end(caller, KIND, called.id)
        lane = await caller.read_lane(KIND, called.id)
        said = lane.history[-1].opened.op.body.proof
        assert said.cost is None
        assert said.usage.storage_kbh == 0, "nothing is stored outside the log"
    rates = read_rates(
        {
            "currency": "EUR",
            "role_rate_bu": {"default": 0.5},
            "cpu_sec": {"rate": 1, "source": "tco"},
        }
    )
    async with a_mesh("memory") as mesh:
        await with_policy(mesh, policy(rates=rates))
        caller = (await mesh.connection()).session
        await mesh.worker(handler)
        called = await call(caller)
        await submission.wait_for_end(caller, KIND, called.id)
        lane = await caller.read_lane(KIND, called.id)
        said = lane.history[-1].opened.op.body.proof
    assert 500_000_000 <= said.cost.amount_nano < 510_000_000
    assert said.cost.unmeasured == ("cpu_sec",), "a coroutine shares its thread"
    assert lane.lane.job.total_spent.is_partial
