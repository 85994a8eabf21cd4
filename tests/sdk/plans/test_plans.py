"""Plans from a program: written down by decorators, put once, listed with what they do next."""

import asyncio
import queue

import pytest

from antiphon import Mesh, cron, on
from antiphon.errors import Malformed, Misconfigured
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.req("P13")


@pytest.fixture
def mesh():
    return Mesh.open(engine="memory")


async def test_a_task_runs_at_its_ticks_and_when_others_end(mesh):
    ran: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    @mesh.cron("* * * * * *", zone="Europe/Berlin", args=("eu",))
    @mesh.task("report.daily", priority="high")
    async def report(region: str) -> None:
        await ran.put(("report", region))

    @mesh.on("succeeded", kind="report.*", name="after-reports")
    @mesh.task("mail.send")
    async def mail() -> None:
        await ran.put(("mail", ""))

    async with mesh, mesh.worker():
        assert await mesh.plans.put_all() == ["report", "after-reports"]
        assert await mesh.plans.put_all() == [], "what stands so is left alone"
        async with asyncio.timeout(60):
            seen = {await ran.get() for _ in range(4)}
        assert seen == {("report", "eu"), ("mail", "")}
        first, second = await mesh.plans.list()
        assert (first.name, first.kind, first.priority) == ("report", "report.daily", "high")
        assert (first.problem, second.problem, second.next) == ("", "", [])
        assert len(first.next) == 3
        assert str(first.next[0].tzinfo) == "Europe/Berlin"
        assert first.newest
        assert await mesh.plans.drop("after-reports") == "mail.send"
        assert [plan.name for plan in await mesh.plans.list()] == ["report"]


async def test_a_plan_is_replaced_by_another_of_its_name(mesh):
    async with mesh:
        daily, hourly = cron("@daily"), cron("@hourly", missed="skip")
        assert await mesh.plans.put("nightly", daily, mesh.bind("report.daily", 1))
        assert await mesh.plans.put("nightly", hourly, mesh.bind("report.daily", 1))
        assert not await mesh.plans.put("nightly", hourly, mesh.bind("report.daily", 1))
        assert await mesh.plans.put("nightly", hourly, mesh.bind("report.daily", 2))
        (plan,) = await mesh.plans.list()
        assert plan.when == "at '@hourly' in UTC"


async def test_a_name_alone_is_enough_where_one_kind_has_it(mesh):
    async with mesh:
        for kind in ("report.daily", "report.weekly"):
            await mesh.plans.put("nightly", cron("@daily"), mesh.bind(kind))
        with pytest.raises(Misconfigured, match=r"2 kinds have a plan named nightly"):
            await mesh.plans.drop("nightly")
        assert await mesh.plans.drop("nightly", kind="report.daily") == "report.daily"
        assert await mesh.plans.drop("nightly") == "report.weekly"
        with pytest.raises(Misconfigured, match="no plan named nightly"):
            await mesh.plans.drop("nightly")


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: cron("0 3 * *"), "hour 0-23"),
        (lambda: cron("@daily", zone="Berlin"), "Europe/Berlin"),
        (lambda: cron("@daily", missed="some"), "last"),
        (lambda: on("won", kind="a"), "succeeded"),
        (lambda: on("ended", kind="build*"), "build.*"),
    ],
)
def test_a_trigger_that_is_not_valid_says_what_would_be(make, says):
    with pytest.raises(Malformed) as caught:
        make()
    assert says in caught.value.hint


async def test_what_no_plan_can_have_is_refused_before_anything_is_written(mesh):
    async with mesh:
        before = (await mesh.connection.session.log.last()).seq
        with pytest.raises(Misconfigured, match="would trigger itself"):
            await mesh.plans.put("loop", on("ended", kind="a.*"), mesh.bind("a.b"))
        with pytest.raises(Misconfigured, match="cannot have delay"):
            await mesh.plans.put("late", cron("@daily"), mesh.bind("a.b", options={"delay": 5}))
        with pytest.raises(Malformed, match="not a plan's name"):
            await mesh.plans.put("Not a name", cron("@daily"), mesh.bind("a.b"))
        assert (await mesh.connection.session.log.last()).seq == before


def test_a_plan_needs_a_task_and_a_name_of_its_own(mesh):
    with pytest.raises(Misconfigured, match="needs a task"):
        mesh.cron("@daily")(lambda: None)

    @mesh.cron("@daily")
    @mesh.task("report.daily")
    def report() -> None: ...

    with pytest.raises(Misconfigured, match="already has a plan named report"):
        mesh.cron("@hourly")(report)
    mesh.cron("@hourly", name="hourly")(report)
    assert report() is None, "called directly it is just the function"


def test_the_blocking_mesh_plans_too():
    ran: queue.Queue[str] = queue.Queue()
    with Mesh.open(engine="memory").blocking() as mesh:

        @mesh.cron("* * * * * *")
        @mesh.task("report.daily")
        def report() -> None:
            ran.put("report")

        with mesh.worker():
            assert mesh.plans.put_all() == ["report"]
            assert ran.get(timeout=PATIENCE_S) == "report"
        assert [plan.name for plan in mesh.plans.list()] == ["report"]
        assert mesh.plans.drop("report") == "report.daily"


async def test_who_has_more_plans_than_run_is_told_and_can_still_find_and_drop_each():
    mesh = Mesh.open(engine="memory")
    async with mesh:
        await mesh.authority.set_rules({"plans_max": 2})
        for name in ("one", "two", "three"):
            await mesh.plans.put(name, cron("@daily"), mesh.bind("report.daily"))
        problems = {plan.name: plan.problem for plan in await mesh.plans.list()}
        assert (problems["one"], problems["two"]) == ("", "")
        assert "more than 2 plans" in problems["three"]
        assert "plans_max" in problems["three"]
        (third,) = await mesh.plans.list("three")
        assert (third.problem, third.next) == (problems["three"], [])
        assert await mesh.plans.drop("one") == "report.daily"
        assert [plan.problem for plan in await mesh.plans.list()] == ["", ""]


async def test_a_plan_whose_rate_is_used_up_says_so():
    mesh = Mesh.open(engine="memory")
    async with mesh:
        await mesh.authority.set_rules({"derived_per_minute": 2})
        await mesh.plans.put("often", cron("* * * * * *"), mesh.bind("report.daily"))
        async with asyncio.timeout(PATIENCE_S):
            while not (delayed := (await mesh.plans.list())[0].delayed):
                await asyncio.sleep(0.1)
        assert "derived_per_minute allows 2" in delayed
        assert (await mesh.plans.list())[0].problem == ""


async def test_a_reaction_can_read_the_result_of_its_cause(mesh):
    ran: asyncio.Queue[int] = asyncio.Queue()

    @mesh.task("shop.order")
    async def order(number: int) -> int:
        if number < 0:
            raise ValueError("there is no such order")
        return 10 * number

    @mesh.task("shop.ship")
    async def ship(total: int) -> None:
        await ran.put(total)

    async with mesh, mesh.worker():
        when = on("succeeded", kind="shop.order", result="/args/0")
        await mesh.plans.put("shipping", when, mesh.bind("shop.ship", None))
        (plan,) = await mesh.plans.list()
        assert plan.when == "whenever shop.order has succeeded, with its result as /args/0"
        for number in (7, -1, 8):
            await order.options(attempts=1).submit(number)
        async with asyncio.timeout(PATIENCE_S):
            assert {await ran.get(), await ran.get()} == {70, 80}


def test_only_a_job_that_has_succeeded_has_a_result_to_read():
    for ending in ("failed", "aborted", "ended"):
        with pytest.raises(Malformed, match="may have no result"):
            on(ending, kind="a", result="file")


def test_a_plan_can_name_an_output_of_its_cause():
    assert on("succeeded", kind="a", output="app.tar").result == "app.tar"
    both = on("succeeded", kind="a", result="given", output="app.tar")
    assert (both.result, both.output) == ("given", "app.tar")
    with pytest.raises(Malformed, match="may have no result"):
        on("ended", kind="a", output="app.tar")
