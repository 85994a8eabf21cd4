"""One member's rows do not push another's out of a list, whoever reads it."""

import pytest

from antiphon.core.authority.scope import EVERYTHING, Scope
from antiphon.core.families.jobs.state import State
from antiphon.runtime.attention.attention_table import Attention
from antiphon.sdk.dashboard.for_you import CONFLICTS_LISTED, for_you_view, waiting
from antiphon.sdk.memory import memory_space
from antiphon.sdk.queries import attention, many_jobs, namespace
from antiphon.sdk.queries.namespace import Queries
from tests.crowd import FRIEND, SPAMMER, START_MS, crowded

READS_SHOPS = Scope(by_command={"/job/read": ("shop.>",)})
SCOPES = pytest.mark.parametrize("scope", [EVERYTHING, READS_SHOPS])


async def items(mesh, scope, **how):
    """All pages of what needs attention."""
    queries, found, after = Queries(mesh.connection, scope=scope), [], ""
    while True:
        page = await queries.attention(after=after, **how)
        found += [one.item for one in page]
        after = page.next
        if not after:
            return found


@SCOPES
async def test_five_hundred_questions_of_one_member_hide_nobody_elses(scope):
    async with crowded() as (mesh, crowd):
        for _ in range(505):
            crowd.question(SPAMMER, "spam.q")
        mine = crowd.question(FRIEND, "shop.approve")
        found = await items(mesh, scope, limit=500)
        assert f"shop.approve {mine.id}" in found
        assert len(found) == (1 if scope is READS_SHOPS else attention.MOST)


@SCOPES
async def test_a_hundred_failed_jobs_of_one_member_hide_nobody_elses(scope):
    async with crowded() as (mesh, crowd):
        mine = crowd.dead(FRIEND, "shop.order")
        for _ in range(105):
            crowd.dead(SPAMMER, "spam.job")
        assert f"shop.order {mine.id}" in await items(mesh, scope)


@SCOPES
async def test_jobs_that_ask_for_somebody_hide_nobody_elses(scope, monkeypatch):
    monkeypatch.setattr(attention, "MOST_DEAD", 4)
    async with crowded() as (mesh, crowd):
        mine = crowd.escalated(FRIEND, "shop.price", mesh.connection.session)
        for _ in range(6):
            crowd.escalated(SPAMMER, "spam.job", mesh.connection.session)
        for _ in range(6):
            crowd.job(FRIEND, "shop.price", state=State.SUCCEEDED, artifacts=mine.artifacts)
        assert f"shop.price {mine.id}" in await items(mesh, scope), "nor do those that have ended"


@SCOPES
async def test_five_hundred_conflicts_of_one_member_hide_nobody_elses(scope):
    async with crowded() as (mesh, crowd):
        for number in range(505):
            crowd.document(SPAMMER, "junk.notes", f"a{number}", conflicts=1)
        crowd.document(FRIEND, "shop.notes", "plan", conflicts=1)
        assert "shop.notes plan" in await items(mesh, scope, limit=500)


async def test_the_first_page_of_attention_is_shared_and_the_others_leave_nothing_out():
    async with crowded() as (mesh, crowd):
        mine = crowd.question(FRIEND, "shop.approve")
        spam = [crowd.question(SPAMMER, "spam.q") for _ in range(100)]
        page = await mesh.queries.attention(limit=10)
        assert [page[0].since_ms, page[-1].item] == [
            START_MS + crowd.seq,
            f"shop.approve {mine.id}",
        ], "newest first"
        found = await items(mesh, EVERYTHING, limit=10)
        assert sorted(found) == sorted(f"{job.kind} {job.id}" for job in (mine, *spam))


async def test_what_services_set_aside_for_one_member_hides_nobody_elses():
    async with crowded() as (mesh, crowd):
        table = crowd.replica.attention
        table.put(Attention("offers", "shop.x 1", FRIEND, "why", START_MS, 1))
        for service in range(12):  # a hundred of a member are listed for each service
            for item in range(100):
                one = Attention(f"s{service}", f"spam {item}", SPAMMER, "why", START_MS + item, 1)
                table.put(one)
        assert "shop.x 1" in await items(mesh, EVERYTHING, limit=500)
        assert "shop.x 1" in {one.item for one in table.newest(limit=50)}


async def test_for_you_shows_everybodys_questions_conflicts_and_other_items():
    async with crowded() as (mesh, crowd):
        dead = crowd.dead(FRIEND, "shop.order")
        for number in range(55):
            crowd.question(SPAMMER, "spam.q")
            crowd.dead(SPAMMER, "spam.job")
            crowd.document(SPAMMER, "spam.notes", f"a{number}", conflicts=1)
        mine = crowd.question(FRIEND, "shop.approve")
        crowd.document(FRIEND, "shop.notes", "plan", conflicts=1)
        crowd.replica.flush()
        view = await for_you_view(mesh)
        assert view.is_cut
        assert mine.id in {one.id for one in view.questions}
        assert "shop.notes" in {one.space for one in view.conflicts}
        assert len(view.conflicts) == CONFLICTS_LISTED
        assert dead.id in {one.job for one in view.items}
        assert await waiting(mesh) == len(view.questions) + len(view.conflicts)


async def test_a_list_of_open_questions_is_shared(monkeypatch):
    async with crowded() as (mesh, crowd):
        crowd.question(SPAMMER, "spam.q")
        crowd.repeat("lanes_jobs", 1_100)
        mine = crowd.question(FRIEND, "shop.approve")
        crowd.replica.flush()
        assert mine.id in {one.job_id for one in await mesh.questions.open()}
        assert [one.job_id for one in await mesh.questions.open(kind="shop")] == [mine.id]
        pages = Queries(mesh.connection, scope=READS_SHOPS)
        assert [one.job_id for one in await pages.questions()] == [mine.id]


@SCOPES
async def test_pages_of_locks_go_on_to_the_last_one(scope):
    async with crowded() as (mesh, crowd):
        for number in range(1_200):
            crowd.lock(SPAMMER, "junk.x", f"file {number:04}")
        crowd.lock(FRIEND, "shop.money", "ledger")
        crowd.replica.flush()
        queries = Queries(mesh.connection, scope=scope)
        found, after = [], ""
        while True:
            page = await queries.locks(limit=500, after=after)
            found += [(one.scope, one.key) for one in page]
            after = page.next
            if not after:
                break
        junk = [("junk.x", f"file {number:04}") for number in range(1_200)]
        assert found == [*(junk if scope is EVERYTHING else []), ("shop.money", "ledger")]


async def test_ten_thousand_locks_of_one_member_hide_nobody_elses():
    async with crowded() as (mesh, crowd):
        crowd.lock(SPAMMER, "junk.x", "k")
        crowd.repeat("lanes_locks", 10_001)
        crowd.lock(FRIEND, "shop.money", "ledger")
        crowd.replica.flush()
        assert "ledger" in {one.key for one in await mesh.locks.list()}
        assert [one.key for one in await mesh.locks.list("shop.money")] == ["ledger"]


async def test_all_keys_of_a_space_are_listed(monkeypatch):
    monkeypatch.setattr(memory_space, "MOST_LISTED", 3)
    monkeypatch.setattr(memory_space, "AT_ONCE", 3)
    async with crowded() as (mesh, crowd):
        for number in range(7):
            crowd.document(SPAMMER, "notes", f"a{number}")
        crowd.document(FRIEND, "notes", "plan")
        crowd.document(FRIEND, "notes.below", "plan")
        crowd.replica.flush()
        assert await mesh.memory["notes"].keys() == [*(f"a{one}" for one in range(7)), "plan"]
        assert await mesh.memory["notes"].keys("p") == ["plan"]


async def test_model_calls_are_looked_for_in_everybodys_jobs(monkeypatch):
    monkeypatch.setattr(namespace, "CALLING_JOBS", 4)
    read = []

    async def read_lane(kind, job):
        read.append(kind)

    async def no_calls(_view, _artifacts):
        return []

    async with crowded() as (mesh, crowd):
        crowd.calling(FRIEND, "shop.ask")
        for _ in range(6):
            crowd.calling(SPAMMER, "spam.ask")
        crowd.replica.flush()
        monkeypatch.setattr(mesh.connection.session, "read_lane", read_lane)
        monkeypatch.setattr("antiphon.runtime.caller.model_calls.calls_on", no_calls)
        await mesh.queries.model_calls()
        assert sorted(read) == ["shop.ask", "spam.ask", "spam.ask", "spam.ask"]
        read.clear()
        await Queries(mesh.connection, scope=READS_SHOPS).model_calls()
        assert read == ["shop.ask"]


async def test_jobs_that_are_overdue_or_can_be_claimed_are_everybodys():
    async with crowded() as (mesh, crowd):
        for _ in range(30):
            crowd.job(SPAMMER, "spam.job", start_by_ms=START_MS + crowd.seq)
        late = crowd.job(FRIEND, "shop.order", start_by_ms=START_MS + 100)
        for _ in range(30):
            crowd.job(SPAMMER, "spam.job", recall_after_ms=1)
        free = crowd.job(FRIEND, "shop.order", recall_after_ms=1)
        crowd.replica.flush()
        overdue = await mesh.jobs(overdue=True, limit=10)
        assert late.id in {job.id for job in overdue}
        assert {job.id for job in await mesh.jobs(overdue=True, kind="shop")} == {late.id}
        claimable = await mesh.jobs(claimable_by=mesh.did, limit=10)
        assert free.id in {job.id for job in claimable}
        assert free.id in {job.id for job in await mesh.jobs(claimable_by=mesh.did, kind="shop")}


@pytest.mark.parametrize("words", [{}, {"kind": "shop"}, {"by": FRIEND}, {"state": "failed"}])
async def test_a_limit_of_jobs_to_retry_is_shared(words, monkeypatch):
    monkeypatch.setattr(many_jobs, "DEAD_LETTERS_MAX", 40)
    async with crowded() as (mesh, crowd):
        mine = crowd.dead(FRIEND, "shop.order")
        for _ in range(60):
            crowd.dead(SPAMMER, "spam.job")
        crowd.replica.flush()
        chosen = await many_jobs.retryable(mesh, limit=10, **words)
        assert mine.id in {job.id for job in chosen.jobs}
        seqs = [job.scheduled_seq for job in chosen.jobs]
        assert seqs == sorted(seqs, reverse=True), "newest first"
        assert chosen.has_more is (words in ({}, {"state": "failed"}))


async def test_a_job_is_found_by_its_id_however_many_of_other_kinds_have_the_same(monkeypatch):
    async with crowded() as (mesh, crowd):
        mine = crowd.job(FRIEND, "shop.order")
        for number in range(20):
            crowd.job(SPAMMER, f"a.spam{number}", id=mine.id)
        crowd.replica.flush()
        shops = Queries(mesh.connection, scope=READS_SHOPS)
        for text in (mine.id, mine.id[:60]):
            assert (await shops.job(text)).kind == "shop.order"


async def test_the_newest_records_are_everybodys():
    async with crowded() as (mesh, crowd), mesh.connection.memory.connection("other") as other:
        await other.session.sync_control()
        crowd.escalated(FRIEND, "shop.price", other.session)
        for _ in range(30):
            crowd.escalated(SPAMMER, "spam.job", mesh.connection.session)
        crowd.replica.flush()
        found = await mesh.queries.latest(since_ms=0, limit=8)
        kinds = [one.opened.place and one.opened.place.key.kind for one in found]
        assert "shop.price" in kinds
        assert kinds[-1] == "spam.job"
        assert found[-1].opened.seq == crowd.seq, "of each party, the newest"
        seqs = [one.opened.seq for one in found]
        assert seqs == sorted(seqs)
        shops = await Queries(mesh.connection, scope=READS_SHOPS).latest(since_ms=0, limit=8)
        assert {one.opened.place.key.kind for one in shops} == {"shop.price"}
