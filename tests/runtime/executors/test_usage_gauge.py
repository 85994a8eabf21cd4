"""What a run has used: a thread's own clock, what a handler reports, and what stays unknown."""

import asyncio
import threading

import pytest

from antiphon.core.cost.usage import Reported, Resources
from antiphon.core.manifest import author
from antiphon.runtime.executors.executor import Assignment
from antiphon.runtime.executors.handler_call import JobContext, call_text
from antiphon.runtime.executors.handlers import HandlerOptions, Handlers
from antiphon.runtime.executors.usage_gauge import UsageGauge
from tests.runtime import spawned
from tests.runtime.meshes import KIND

pytestmark = pytest.mark.req("B21")


async def used_by(function, *args, run_in=None) -> Resources:
    """What is known after a run."""
    handlers = Handlers()
    handlers.register(KIND, function, HandlerOptions(run_in=run_in))
    own = handlers.executors()
    content = author({"command": [f"@{KIND}"], "args": [call_text(args, {})], "timeout": 30})
    assignment = Assignment(kind=KIND, job_id="0" * 64, fence="f" * 16, attempt=1, manifest=content)
    try:
        await own.find(KIND, content).run(assignment)
    except ZeroDivisionError:
        pass
    finally:
        await own.close()
    return assignment.run.gauge.now()


def spin(rounds: int) -> int:
    return sum(at * at for at in range(rounds))


def spin_and_fail(rounds: int) -> None:
    spin(rounds)
    raise ZeroDivisionError


async def test_a_thread_has_its_own_processor_time_and_no_memory_of_its_own():
    used = await used_by(spin, 1_000_000)
    assert used.cpu_ms > 10
    assert used.disk_io_bytes == 0
    assert (used.mem_kbs, used.max_rss_kb, used.net_egress_bytes) == (None, None, None)


async def test_a_thread_that_fails_has_used_something_too():
    assert (await used_by(spin_and_fail, 1_000_000)).cpu_ms > 10


async def test_nothing_is_measured_for_a_coroutine():
    async def handler() -> None:
        spin(100_000)

    assert await used_by(handler) == Resources()


async def test_a_coroutine_that_a_thread_made_is_not_measured_by_half():
    def handler():
        spin(1_000_000)
        return asyncio.sleep(0)

    assert await used_by(handler) == Resources()


async def test_the_clock_of_a_thread_can_be_read_while_it_runs():
    gauge, go_on, spun = UsageGauge(), threading.Event(), threading.Event()

    def work() -> None:
        with gauge.this_thread():
            spin(1_000_000)
            spun.set()
            go_on.wait()

    running = asyncio.ensure_future(asyncio.to_thread(work))
    await asyncio.to_thread(spun.wait)
    assert gauge.now().cpu_ms > 10
    go_on.set()
    await running
    assert gauge.now().cpu_ms > 10


@pytest.mark.processes
async def test_a_process_has_its_own_memory_and_says_what_it_reports():
    used = await used_by(spawned.reports_a_device, "a100", 2.5, run_in="process")
    assert used.cpu_ms is not None
    assert used.mem_kbs is not None
    assert used.disk_io_bytes is not None
    assert used.net_egress_bytes is None, "it shares the machine's network"
    assert used.reported == Reported(gpu_ms={"a100": 2_500})


async def test_what_a_handler_reports_adds_up_and_is_kept_apart():
    async def handler(ctx: JobContext) -> None:
        ctx.used(gpu_sec={"a100": 2.5})
        ctx.used(gpu_sec={"a100": 0.5, "h100": 1}, accel_sec={"tpu": 0.001})

    used = await used_by(handler)
    assert used == Resources(
        reported=Reported(gpu_ms={"a100": 3_000, "h100": 1_000}, accel_ms={"tpu": 1})
    )


@pytest.mark.parametrize(
    "said, why",
    [
        ({"A 100": 1.0}, "is not a device class"),
        ({"a100": -1.0}, "cannot have been used for -1.0 s"),
        ({"a100": float("nan")}, "cannot have been used"),
        ({"a100": 1e300}, "cannot have been used"),
        ({f"gpu{at}": 1.0 for at in range(33)}, "more than 32 device classes"),
    ],
)
def test_what_cannot_be_right_is_refused(said, why):
    context = JobContext(kind=KIND, job_id="0" * 64, fence="f" * 16, attempt=1)
    with pytest.raises(ValueError, match=why):
        context.used(gpu_sec=said)
