"""Kinds whose jobs wait and that nobody runs: which count, for whom, and in which words."""

import pytest

from antiphon import Mesh
from antiphon.core.authority.scope import EVERYTHING, Scope
from antiphon.core.families.jobs.state import State
from antiphon.core.presence.cards import Card
from antiphon.core.proof.answer import Question
from antiphon.runtime.presence.known_nodes import StoredNode
from antiphon.sdk.jobs import unserved_kinds as module
from antiphon.sdk.jobs import waiting_kinds
from antiphon.sdk.jobs.unserved_kinds import unserved_here, unserved_kinds
from antiphon.sdk.queries.namespace import Queries
from tests.crowd import FRIEND, LATER_MS, SPAMMER, START_MS, crowded

READS_SHOPS = Scope(by_command={"/job/read": ("shop.>",)})
WORKER = Card(node=FRIEND, alias="w", role="worker", version="0", at_ms=1, kinds=("shop.price",))


async def kinds(mesh, scope=EVERYTHING, cards=(), **how):
    async with mesh.replica() as replica:
        found = await unserved_kinds(mesh.connection, replica, scope=scope, cards=cards, **how)
    return [(one.kind, one.jobs) for one in found]


async def test_what_a_worker_could_run_now_counts_and_nothing_else():
    async with crowded() as (mesh, crowd):
        assert await kinds(mesh) == []
        for _ in range(3):
            crowd.job(FRIEND, "shop.price", calls=1)
        crowd.job(FRIEND, "shop.later", state=State.WAITING, not_before_ms=LATER_MS)
        crowd.job(FRIEND, "shop.retried", retry_after_ms=LATER_MS)
        crowd.job(FRIEND, "shop.over", start_by_ms=START_MS)
        crowd.job(FRIEND, "shop.approve", question=Question(text="?"))
        crowd.job(FRIEND, "shop.held", state=State.RUNNING, claimer=FRIEND, deadline_ms=LATER_MS)
        crowd.dead(FRIEND, "shop.dead")
        assert await kinds(mesh) == [("shop.price", 3)]
        assert await kinds(mesh, cards=(WORKER,)) == [], "it may claim on an open mesh"
        assert await kinds(mesh, Scope(by_command={"/job/read": ("bank.>",)})) == []
        now_ms = mesh.connection.session.wall.now_ms()
        assert await kinds(mesh, waited_ms=now_ms) == [], "they wait for less"


async def test_jobs_that_are_paused_wait_for_no_worker():
    mesh = Mesh.open(engine="memory")
    async with mesh:
        await mesh.submit("shop.price", 1)
        await mesh.submit("shop.ship", 1)
        await mesh.authority.pause(kind="shop.price")
        assert [one.kind for one in await unserved_here(mesh)] == ["shop.ship"]
        assert await unserved_here(mesh, kind="shop.price") == []


async def test_many_jobs_are_counted_without_being_read(monkeypatch):
    monkeypatch.setattr(module, "LOOKED_AT", 4)
    async with crowded() as (mesh, crowd):
        for _ in range(20):
            crowd.job(FRIEND, "shop.price")
        assert await kinds(mesh) == [("shop.price", 20)]


async def test_the_words_name_who_ran_the_kind_last_also_if_it_is_gone():
    async with crowded() as (mesh, crowd):
        crowd.job(FRIEND, "shop.price", state=State.SUCCEEDED, claimer=FRIEND, ended_ms=START_MS)
        newer = START_MS + 3_600_000
        crowd.job(SPAMMER, "shop.price", state=State.FAILED, claimer=SPAMMER, ended_ms=newer)
        crowd.job(FRIEND, "shop.price")
        crowd.replica.known_nodes.put(
            StoredNode(SPAMMER, "worker-2", "u", b"", at_ms=1, heard_ms=1, level="dead")
        )
        (one,) = await unserved_here(mesh, cards=())
        assert one.words == (
            "nobody runs shop.price: 1 job waits since 2023-11-14 22:13 UTC"
            " (last: worker-2, 2023-11-14 23:13 UTC)"
        )
        assert one.hint.startswith("antiphon worker MODULE")


async def test_a_worker_that_was_lost_with_the_job_is_the_last_one():
    async with crowded() as (mesh, crowd):
        crowd.job(FRIEND, "shop.price", attempts=1, cooling=((SPAMMER, START_MS),))
        (one,) = await unserved_here(mesh, cards=())
        assert f"(last: {SPAMMER[-8:]}, " in one.words


@pytest.mark.parametrize("scope", [EVERYTHING, READS_SHOPS])
@pytest.mark.parametrize("bound", ["MOST_LISTED", "MOST_KINDS"])
async def test_a_hundred_kinds_of_one_member_hide_nobody_elses(monkeypatch, scope, bound):
    monkeypatch.setattr(module if bound == "MOST_LISTED" else waiting_kinds, bound, 5)
    monkeypatch.setattr(module, "LOOKED_AT", 5)
    async with crowded() as (mesh, crowd):
        for number in range(50):
            crowd.job(SPAMMER, f"shop.a{number}")
        crowd.job(FRIEND, "shop.price")
        found = await kinds(mesh, scope)
        assert ("shop.price", 1) in found
        assert len(found) <= 10


async def test_attention_has_it_after_a_while_until_a_worker_runs_it(monkeypatch):
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.price")
    async def price(item: int) -> int:
        return item

    async with mesh:
        job = await price.submit(1)
        assert await mesh.queries.attention() == [], "a worker may be about to start"
        monkeypatch.setattr("antiphon.sdk.queries.attention.WAITED_MS", 0)
        (one,) = await mesh.queries.attention()
        assert (one.service, one.item, one.count) == ("workers", "shop.price", 1)
        assert one.reason.startswith("nobody runs shop.price: 1 job waits since ")
        found = await Queries(mesh.connection, scope=READS_SHOPS).attention()
        assert [one.item for one in found] == ["shop.price"]
        async with mesh.worker():
            assert await job.result() == 1
            assert await mesh.queries.attention() == []
