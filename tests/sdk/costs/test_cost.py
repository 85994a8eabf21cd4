"""`mesh.cost`: sums over the jobs that ended, equal to the sum of what their proofs say."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from antiphon import JobContext, Mesh, Misconfigured, Retry
from antiphon.core.cost.rates import read_rates
from antiphon.core.families.jobs.ops import JobYield
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.tempo.policy import TempoPolicy
from antiphon.errors import JobFailed, Rejected
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.sdk.proofs.estimate import estimate_like
from antiphon.sdk.proofs.proof import open_envelope, proof_of
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.req("B21", "B22")

RATES = read_rates(
    {
        "currency": "EUR",
        "role_rate_bu": {"default": 10, "b": 20},
        "gpu_sec": {"a100": {"rate": "0.5", "source": "list"}},
        "ecu": {"a100": 8, "old": 1},
    }
)


@asynccontextmanager
async def a_mesh():
    opened = Mesh.open(engine="memory")

    @opened.task("a.add")
    async def add(left: int, right: int) -> int:
        await asyncio.sleep(0.01)
        return left + right

    @opened.task("b.train")
    async def train(seconds: float, ctx: JobContext) -> None:
        ctx.used(gpu_sec={"a100": seconds})

    @opened.task("b.fail")
    async def fail() -> None:
        raise ValueError

    async with opened:
        await write_one(
            opened.connection.session, Intent(MeshTempo, TempoBody(policy=TempoPolicy(rates=RATES)))
        )
        async with opened.worker():
            yield opened


async def caught_up(mesh, handles):
    ended = max([(await handle.state()).ended_seq for handle in handles])
    async with mesh.replica() as replica:
        while replica.refresh().seq < ended:
            await asyncio.sleep(0.01)


async def test_the_totals_are_the_sum_of_the_proofs():
    async with a_mesh() as mesh:
        await check_totals(mesh)


async def check_totals(mesh):
    handles = [
        await mesh.submit("a.add", 1, 2, options={"budget": {"charge_to": "team-a"}}),
        await mesh.submit("a.add", 3, 4),
        await mesh.submit("b.train", 2.5, options={"budget": {"charge_to": "team-a"}}),
        await mesh.submit("b.fail", options={"attempts": 1}),
    ]
    for handle in handles:
        try:
            await handle.result(timeout=PATIENCE_S)
        except JobFailed:
            assert handle is handles[-1]
    await caught_up(mesh, handles)
    costs = [open_envelope(await proof_of(handle)).predicate.cost for handle in handles]
    nanos = [cost.amount_nano for cost in costs]
    assert nanos[2] >= 1_250_000_000, "2.5 s of a GPU, and its beats"
    for by in ("kind", "node", "account"):
        report = await mesh.cost(by=by)
        assert report.total.amounts == {"EUR": sum(nanos)}
        assert report.total.beats_milli == sum(cost.beats_milli for cost in costs)
        assert sum(line.amounts["EUR"] for line in report.lines) == sum(nanos)
    by_kind = {line.name: line for line in (await mesh.cost(by="kind")).lines}
    assert by_kind["a.add"].amounts["EUR"] == nanos[0] + nanos[1]
    assert by_kind["b.fail"].per_result("EUR") is None
    by_account = {line.name: line for line in (await mesh.cost(by="account")).lines}
    assert by_account["team-a"].amounts["EUR"] == nanos[0] + nanos[2]
    assert set(by_account) == {"team-a", mesh.did}
    assert (await mesh.cost(kind="a")).total.jobs == 2
    later = datetime.now(UTC) + timedelta(hours=1)
    assert (await mesh.cost(since=later)).total.jobs == 0
    assert (await mesh.cost(since=later - timedelta(hours=2))).total.jobs == 4


async def test_what_failed_attempts_cost_is_added_to_what_the_last_one_says():
    async with a_mesh() as mesh:
        again = Retry(attempts=2, base=0, cap=0)
        handle = await mesh.submit("b.fail", options={"retry": again})
        with pytest.raises(JobFailed):
            await handle.result(timeout=PATIENCE_S)
        await caught_up(mesh, [handle])
        view = await handle.lane()
        yields = [one.opened.op for one in view.history if isinstance(one.opened.op, JobYield)]
        last = open_envelope(await proof_of(handle)).predicate.cost
        total = (await mesh.cost()).total
    assert len(yields) == 1
    assert total.amounts["EUR"] == yields[0].body.cost.amount_nano + last.amount_nano


async def test_a_budget_that_cannot_be_is_refused_before_anything_is_submitted():
    async with Mesh.open(engine="memory") as mesh:
        with pytest.raises(Misconfigured, match="the budget is not valid"):
            await mesh.submit("a.add", 1, 2, options={"budget": {"max_tokens": 5}})


def test_a_program_without_a_loop_can_ask_too():
    with Mesh.open(engine="memory").blocking() as mesh:
        report = mesh.cost(by="account")
    assert (report.total.jobs, report.lines) == (0, ())


async def test_work_like_a_finished_job_is_estimated_on_other_devices():
    async with a_mesh() as mesh:
        handle = await mesh.submit("b.train", 4.0)
        await handle.result(timeout=PATIENCE_S)
        found = await estimate_like(handle, mesh.tempo.policy.rates)
        assert (found.effective_ms, found.currency) == (32_000, "EUR")
        listed = [(one.device, one.device_ms, one.amount_nano) for one in found.devices]
        assert listed == [("a100", 4_000, 2_000_000_000), ("old", 32_000, None)]
        plain = await mesh.submit("a.add", 1, 2)
        await plain.result(timeout=PATIENCE_S)
        with pytest.raises(Rejected, match="reported no time"):
            await estimate_like(plain, mesh.tempo.policy.rates)
