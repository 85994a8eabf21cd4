"""`mesh.queries`: pages and counts of everything, as one party may see it."""

import asyncio
import inspect
from contextvars import ContextVar
from datetime import UTC, datetime

import pytest

from antiphon import Mesh, cron, gather, on
from antiphon.core.authority.scope import Scope
from antiphon.errors import Malformed, Misconfigured, Rejected
from antiphon.runtime.replica.job_pages import JobPages
from antiphon.runtime.replica.lane_lists import Lists
from antiphon.runtime.replica.replica_records import ReplicaRecords
from antiphon.sdk.queries import log_status, record_lists
from antiphon.sdk.queries.namespace import Queries
from antiphon.sdk.queries.page import Query


def reads(*kinds: str) -> Scope:
    return Scope(by_command={"/job/read": kinds})


def a_mesh() -> Mesh:
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.ship", attempts=1)
    async def ship(order: int) -> int:
        if order < 0:
            raise ValueError(f"order {order} has no address")
        return order

    @mesh.task("bank.pay", attempts=1)
    async def pay(order: int) -> int:
        return order

    mesh.ship, mesh.pay = ship, pay
    return mesh


async def test_jobs_are_paged_by_a_cursor_while_new_ones_come():
    async with a_mesh() as mesh:
        handles = await mesh.ship.submit_many(range(7))
        written = [handle.id for handle in reversed(handles)]
        first = await mesh.jobs(limit=3)
        await mesh.ship.submit(8)
        second = await mesh.jobs(limit=3, after=first.next)
        third = await mesh.jobs(limit=3, after=second.next)
        assert [job.id for job in (*first, *second, *third)] == written
        assert (bool(first.next), bool(second.next), third.next) == (True, True, "")


@pytest.mark.req("S14")
async def test_jobs_are_found_by_error_submitter_worker_time_and_label():
    async with a_mesh() as mesh, mesh.worker() as worker:
        good = await mesh.ship.submit(1)
        bad = await mesh.ship.submit(-4)
        labelled = await mesh.submit("shop.ship", 2, options={"concurrency": "vans"})
        await gather(good, bad, labelled, return_exceptions=True)
        waits = await mesh.submit("shop.ship", 3, options={"delay": "1h"})

        async def found(**wanted) -> set[str]:
            return {job.id for job in await mesh.jobs(**wanted)}

        assert await found(text="no address") == {bad.id}
        assert await found(text="nowhere") == set()
        assert await found(by=mesh.did) == {good.id, bad.id, labelled.id, waits.id}
        assert await found(worker=worker.did) == {good.id, bad.id, labelled.id}
        assert await found(worker=worker.did, state="failed", kind="shop", since="1h") == {bad.id}
        assert await found(label="vans") == {labelled.id}
        assert await found(until="1h") == set()
        assert await found(since=datetime.now(UTC), state="succeeded") == set()
        with pytest.raises(Rejected, match="no node"):
            await mesh.jobs(by="nobody")


async def test_jobs_are_found_by_their_graph():
    async with a_mesh() as mesh:
        async with mesh.graph() as graph:
            first = graph.add(mesh.ship, 1)
            graph.add(mesh.pay, first)
        alone = await mesh.ship.submit(9)
        connected = await mesh.jobs(graph=first.job_key()[1][:16])
        assert {job.kind for job in connected} == {"shop.ship", "bank.pay"}
        assert alone.id not in {job.id for job in connected}


async def test_jobs_are_found_by_the_plan_that_they_follow_from_replaced_or_not():
    async with a_mesh() as mesh, mesh.worker():
        follow = on("succeeded", kind="bank.pay")
        await mesh.plans.put("shipping", follow, mesh.ship.bind(1))
        await (await mesh.pay.submit(1)).result()

        async def derived(count: int) -> None:
            while len(await mesh.jobs(plan="shipping")) < count:
                await asyncio.sleep(0.01)

        await derived(1)
        await mesh.plans.put("shipping", follow, mesh.ship.bind(2))
        await (await mesh.pay.submit(2)).result()
        await derived(2)
        assert [one.name for one in await mesh.queries.plans()] == ["shipping"]
        assert await mesh.jobs(plan="no-such-plan") == []


async def test_a_cursor_of_another_query_is_refused_and_never_widens_one():
    async with a_mesh() as mesh:
        await mesh.ship.submit_many(range(4))
        await mesh.pay.submit_many(range(4))
        page = await mesh.jobs(kind="bank", limit=2)
        with pytest.raises(Malformed, match="another query") as refused:
            await mesh.jobs(kind="shop", limit=2, after=page.next)
        assert refused.value.reason == "cursor"
        for made_up in ("x", "====", "A" * 5_000, page.next[:-1], "é"):
            with pytest.raises(Malformed):
                await mesh.jobs(kind="bank", after=made_up)
        # Whoever sees only shops gets shops at any place that it can name.
        shops = Queries(mesh.connection, scope=reads("shop.>"))
        with pytest.raises(Malformed, match="another query"):
            await shops.jobs(kind="bank", limit=2, after=page.next)
        every = await shops.jobs(limit=2)
        more = await shops.jobs(limit=50, after=every.next)
        assert {job.kind for job in (*every, *more)} == {"shop.ship"}


def test_a_place_of_the_wrong_sort_is_no_cursor():
    query = Query("jobs", 1)
    assert query.number(query.cursor(7)) == 7
    assert query.text(query.cursor("key")) == "key"
    for wrong in (lambda: query.number(query.cursor("key")), lambda: query.text(query.cursor(7))):
        with pytest.raises(Malformed, match="not a cursor"):
            wrong()


async def test_who_may_not_read_a_kind_sees_neither_its_rows_nor_its_counts():
    async with a_mesh() as mesh, mesh.worker():
        paid = await mesh.pay.submit(1)
        shipped = await mesh.ship.submit(1)
        await gather(paid, shipped)
        await mesh.plans.put("payday", cron("0 3 * * *"), mesh.pay.bind(1))
        await mesh.memory["bank"].put("balance", 1)
        async with mesh.lock("vault", scope="bank"):
            shops = Queries(mesh.connection, scope=reads("shop.>"))
            assert await shops.counts() == {"succeeded": 1}
            assert await mesh.queries.counts() == {"succeeded": 2}
            assert [one.kind for one in await shops.kinds()] == ["shop.ship"]
            assert [one.kind for one in await mesh.queries.kinds()] == ["bank.pay", "shop.ship"]
            assert await shops.jobs(kind="bank") == []
            assert await shops.plans() == await shops.locks() == []
            assert await shops.documents("bank") == []
            assert [one.key for one in await mesh.queries.locks()] == ["vault"]
        assert [one.key for one in await mesh.queries.documents("bank")] == ["balance"]
        assert [line.name for line in (await shops.cost()).lines] == ["shop.ship"]
        with pytest.raises(Rejected, match="no job"):
            await shops.job(paid.id)
        with pytest.raises(Rejected, match="no job"):
            await shops.jobs(graph=paid.id)
        assert (await shops.job(shipped.id)).id == shipped.id
        assert await shops.attention() == []
        for about_all in (shops.limits(), shops.reports()):
            with pytest.raises(Rejected, match="every kind") as refused:
                await about_all
            assert refused.value.reason == "project"


HOW = {"documents": {"space": "bank.pay"}, "latest": {"since_ms": 0}}
"""How methods are called that need to be told something."""
FOR_EVERYBODY = {"nodes", "messages", "readable"}
"""Who is online, this program's own inbox, and what this machine reads."""
WHOLE = {"job", "counts", "readable", "reports", "log", "cost"}
"""One thing, sums, or what is about the whole mesh: nothing of it is cut."""
IN_TURNS = {"nodes", "model_calls", "attention", "latest"}
"""These are cut, so parties share them."""
PAGED = {"jobs", "kinds", "plans", "locks", "documents", "questions", "refusals", "messages"}
PAGED |= {"limits", "model_calls"}
"""These go on to the last row that may be seen."""
METHODS = [name for name, _ in inspect.getmembers(Queries, inspect.isfunction) if name[0] != "_"]


class Watched(Scope, frozen=True, kw_only=True):
    """Everything, and whether somebody asked what that is."""

    asked: list[tuple[str, ...]]

    def of(self, *commands: str) -> tuple[str, ...]:
        self.asked.append(commands)
        return super().of(*commands)


is_asking = ContextVar("is_asking", default=False)
"""Services of the same process read lists, too."""


@pytest.fixture
def ways(monkeypatch):
    """In which ways the test itself read lists."""
    used = set()

    def watch(owner, name, way):
        really = getattr(owner, name)

        def watched(*args, **how):
            if is_asking.get():
                used.add(way)
            return really(*args, **how)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in ((Lists, "shared"), (Query, "in_turns"), (record_lists, "shared")):
        watch(owner, name, "turns")
    for owner, name in (
        *((Lists, "named"), (Lists, "in_order"), (JobPages, "page"), (JobPages, "counts_by_kind")),
        *((ReplicaRecords, "refused"), (Query, "cut")),
    ):
        watch(owner, name, "pages")
    return used


async def shown(mesh, scope, name, **how):
    """What somebody is shown; nothing, if it is refused for that reason."""
    try:
        found = await getattr(Queries(mesh.connection, scope=scope), name)(**how)
    except Rejected as refused:
        if refused.reason not in {"role", "project", "no_job"}:
            raise
        return []
    return found.lines if name == "cost" else found


async def test_every_list_takes_the_right_of_its_rows_and_is_shared_or_goes_on(ways):
    said = "read it with Lists or JobPages, and say here whether it is shared or paged"
    assert set(METHODS) == FOR_EVERYBODY | WHOLE | IN_TURNS | PAGED, f"a new list: {said}"
    async with a_mesh() as mesh, mesh.worker():
        job = await mesh.pay.submit(1)
        await job.result()
        await mesh.questions.ask("pay?", kind="bank.pay", choices=("yes", "no"))
        await mesh.plans.put("payday", cron("0 3 * * *"), mesh.pay.bind(1))
        await mesh.memory["bank.pay"].put("balance", 1)
        log, subject = mesh.connection.session.log, f"ap.{mesh.id}.jobs.job.bank.pay.x"
        await log.append(subject, b"no record", message_id="x", expected_last=0)
        async with mesh.lock("vault", scope="bank.pay"):
            for name in METHODS:
                how = {"text": job.id} if name == "job" else HOW.get(name, {})
                everything = Watched(by_command={"/": (">",)}, asked=[])
                ways.clear()
                is_asking.set(True)
                found = await shown(mesh, everything, name, **how)
                assert ("turns" in ways, "pages" in ways) == (name in IN_TURNS, name in PAGED), name
                assert bool(everything.asked) is (name not in FOR_EVERYBODY), name
                if name in FOR_EVERYBODY:
                    continue
                assert found or name in {"limits", "reports", "model_calls"}, name
                schedules = Scope(by_command={"/job/schedule": (">",)})
                for scope in (Scope(), reads("shop.>"), schedules):
                    assert not await shown(mesh, scope, name, **how), name


async def test_records_that_took_no_effect_are_listed_by_kind():
    async with a_mesh() as mesh:
        handle = await mesh.ship.submit(1)
        await handle.cancel("not wanted")
        await handle.cancel("again")
        before = await mesh.queries.refusals()
        assert all(one.verdict != "ok" for one in before)
        assert await mesh.queries.refusals(kind="bank") == []
        assert await Queries(mesh.connection, scope=reads("bank.>")).refusals() == []


async def test_every_list_ends_at_its_limit_and_goes_on():
    async with a_mesh() as mesh:
        for number in range(5):
            await mesh.memory["notes"].put(f"n{number}", number)
        page = await mesh.queries.documents("notes", limit=2)
        keys = [one.key for one in page]
        while page.next:
            page = await mesh.queries.documents("notes", limit=2, after=page.next)
            keys += [one.key for one in page]
        assert keys == [f"n{number}" for number in range(5)]
        assert await mesh.queries.attention() == await mesh.queries.reports() == []
        assert await mesh.queries.limits() == await mesh.queries.messages() == []
        for limit in (0, 501):
            with pytest.raises(Misconfigured, match="limit"):
                await mesh.queries.documents("notes", limit=limit)


async def test_the_log_is_counted_by_minute_kind_and_reason():
    async with a_mesh() as mesh:
        handles = [await mesh.ship.submit(number) for number in range(3)]
        await mesh.memory["notes"].put("a", 1)
        log, subject = mesh.connection.session.log, f"ap.{mesh.id}.jobs.job.shop.ship.x"
        await log.append(subject, b"no record", message_id="x", expected_last=0)
        status = await mesh.queries.log()
        assert status.applied == sum(one.records for one in status.minutes)
        assert sum(one.bytes for one in status.kinds) == sum(one.bytes for one in status.minutes)
        assert {one.name for one in status.kinds} >= {handles[0].kind, "notes", ""}
        assert status.things["jobs"] == 3
        assert status.reasons == {"frame": 1}
        assert sum(one.refused for one in status.minutes) == 1
        assert not status.is_cut
        with pytest.raises(Rejected, match="every kind"):
            await Queries(mesh.connection, scope=reads("bank.>")).log()


async def test_only_the_newest_records_of_the_hour_are_counted(monkeypatch):
    monkeypatch.setattr(log_status, "RECORDS_EXAMINED", 4)
    async with a_mesh() as mesh:
        for number in range(4):
            await mesh.ship.submit(number)
        status = await mesh.queries.log()
        assert status.is_cut
        assert sum(one.records for one in status.minutes) == 4
