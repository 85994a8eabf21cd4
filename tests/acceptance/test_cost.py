"""`antiphon cost`, budgets as typed, and what `show`, `proof` and `verify` say about them."""

import asyncio
from decimal import Decimal

import pytest

from antiphon.core.cost.rates import read_rates
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.tempo.policy import TempoLimits, TempoPolicy
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.sdk.hosting.strongest_key import with_authority
from tests.acceptance.shell import Shell, until

pytestmark = [pytest.mark.nats, pytest.mark.req("B21")]

RATES = {
    "currency": "EUR",
    "role_rate_bu": {"default": 1},
    "cpu_sec": {"rate": "0.5", "source": "tco"},
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev():
        asyncio.run(_set_rates(typed))
        yield typed


async def _set_rates(shell: Shell) -> None:
    policy = TempoPolicy(
        initial_bpm=60, limits=TempoLimits(min_bpm=6, max_bpm=600), rates=read_rates(RATES)
    )
    async with with_authority(shell.home) as mesh:
        await write_one(mesh.connection.session, Intent(MeshTempo, TempoBody(policy=policy)))


def test_a_job_over_its_budget_says_so_and_its_cost_is_counted(shell):
    done = shell.run("submit", "example.add", "2", "3", "--budget", "charge_to=team-a")
    assert done.out.strip() == "5"
    over = shell.run(
        "submit", "example.sleep", "60", "--budget", "max_bu=1", "--budget", "charge_to=team-a"
    )
    assert over.code != 0
    assert "OverBudget" in over.err
    assert "may use 1 (max_bu)" in over.err

    def both() -> bool:
        return shell.run("cost", "--json").json["total"]["jobs"] == 2

    until(both)
    told = shell.run("cost", "--by", "account", "--json").json
    assert [line["name"] for line in told["lines"]] == ["team-a"]
    total = told["total"]
    assert (total["jobs"], total["succeeded"], total["without_cost"]) == (2, 1, 0)
    jobs = shell.run("jobs", "--json").json["jobs"]
    spent = [Decimal(one["cost"]["EUR"]) for job in jobs for one in job["spent"]]
    assert Decimal(total["cost"]["EUR"]) == sum(spent) > 1
    assert total["cpd"]["EUR"] == total["cost"]["EUR"], "one result has to pay for both"

    table = shell.run("cost").out
    assert "PER RESULT" in table
    assert "total" in table
    slept = next(job["job"] for job in jobs if job["kind"] == "example.sleep")
    shown = shell.run("show", slept[:8]).out
    assert "charged to team-a" in shown
    said = shell.run("proof", slept[:8]).out
    assert "the tempo policy sha256:" in said


def test_a_budget_that_cannot_be_is_a_sentence(shell):
    answer = shell.run("submit", "example.add", "2", "3", "--budget", "max_bu")
    assert "is not NAME=VALUE" in answer.err
    answer = shell.run("submit", "example.add", "2", "3", "--budget", "max_tokens=5")
    assert "the budget is not valid" in answer.err


def test_an_estimate_needs_a_job_that_reported_device_time(shell):
    job = shell.run("submit", "example.add", "7", "8", "--json").json["job"]
    answer = shell.run("cost", "--like", job)
    assert answer.code != 0
    assert "reported no time of a GPU" in answer.err
    assert "ctx.used(gpu_sec=" in answer.err
