"""Lists of lanes: what whoever asks may see, in turns by party, the same as looking at each row."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.authority.scope import EVERYTHING, Scope, admits
from antiphon.core.families.jobs.state import State
from antiphon.core.party_turns import shared
from antiphon.runtime.replica import lane_lists
from antiphon.runtime.replica.lane_lists import Lists, kind_and_below
from antiphon.runtime.replica.replica import Replica
from antiphon.sdk.dead_letters import DEAD_JOBS
from antiphon.sdk.locks.namespace import HELD_LOCKS
from antiphon.sdk.memory.memory_space import DOCUMENTS, DOCUMENTS_IN_CONFLICT
from antiphon.sdk.questions.namespace import OPEN_QUESTIONS
from tests.core.ledger import Ledger
from tests.cpu_cost import times_the_cost
from tests.crowd import FRIEND, SPAMMER, Crowd
from tests.examples import examples

MESH = "bbbbbbbbbbbbbbbb"
OPEN = Ledger(authority="open").history.current
KINDS = ("build", "build.linux", "build.linux.arm", "buildx", "render.a", "zoo")
SEEN = st.sampled_from(((">",), ("build.>",), ("build", "build.>"), ("render.>", "zoo"), ("none",)))


def a_crowd() -> Crowd:
    return Crowd(Replica(":memory:", mesh=MESH))


def reads(*kinds: str, command: str = "/job/read") -> Scope:
    return Scope(by_command={command: kinds})


@pytest.fixture(scope="module")
def written():
    """Rows of all sorts by five parties, and what they are: family, party, kind, name."""
    crowd, chance, rows = a_crowd(), random.Random(3), []
    for number in range(240):
        by, kind = f"did:key:z{min(int(chance.expovariate(0.7)), 4)}", chance.choice(KINDS)
        match chance.choice(("question", "dead", "lock", "document", "other")):
            case "question":
                rows.append(("question", by, kind, crowd.question(by, kind).id))
            case "dead":
                rows.append(("dead", by, kind, crowd.dead(by, kind).id))
            case "lock":
                crowd.lock(by, kind, f"k{number}")
                rows.append(("lock", by, kind, f"k{number}"))
            case "document":
                crowd.document(by, kind, f"k{number}", conflicts=number % 2)
                rows.append(("document", by, kind, f"k{number}"))
                if number % 2:
                    rows.append(("conflict", by, kind, f"k{number}"))
            case _:
                crowd.job(by, kind)
                crowd.job(by, kind, state=State.FAILED, outcome="cancelled")
                crowd.dead(by, kind, replica_of="x")
    crowd.replica.flush()
    return crowd.replica, rows


SHARED = {
    "question": (OPEN_QUESTIONS, lambda job: job.id),
    "dead": (DEAD_JOBS, lambda job: job.id),
    "lock": (HELD_LOCKS, lambda lock: lock.key),
    "conflict": (DOCUMENTS_IN_CONFLICT, lambda document: document.key),
}


@pytest.mark.req("S14")
@pytest.mark.parametrize("sort", SHARED)
@given(visible=SEEN, kind=st.sampled_from(("", "build", "zoo")), limit=st.integers(1, 60))
@settings(max_examples=examples(60))
def test_parties_share_what_may_be_seen(written, sort, visible, kind, limit):
    replica, rows = written
    of, name = SHARED[sort]
    seen = [
        row
        for row in rows
        if row[0] == sort
        and any(admits(one, row[2]) for one in visible)
        and any(admits(one, row[2]) for one in kind_and_below(kind))
    ]
    if of.is_newest_first:
        seen.reverse()
    part = Lists(replica, OPEN, reads(*visible)).shared(of, among=kind_and_below(kind), limit=limit)
    expected = shared(seen, lambda row: row[1], limit)
    assert [(row.whose, row.kind, name(row.state)) for row in part.rows] == [
        row[1:] for row in expected
    ]
    assert part.is_cut == (len(seen) > limit)


@given(visible=SEEN, limit=st.integers(1, 40))
@settings(max_examples=examples(40))
def test_a_list_is_walked_to_its_end_and_each_row_is_shown_once(written, visible, limit):
    replica, rows = written
    lists = Lists(replica, OPEN, reads(*visible))

    def seen(sort):
        mine = [row for row in rows if row[0] == sort]
        return [row[2:] for row in mine if any(admits(one, row[2]) for one in visible)]

    for of, sort in ((HELD_LOCKS, "lock"), (DOCUMENTS, "document")):
        found, place = [], ("", "")
        while page := lists.named(of, after=place, limit=limit):
            found += [(row.kind, row.state.key) for row in page]
            place = found[-1]
        assert found == sorted(seen(sort))
    asked, at = [], 0
    while True:
        page, at = lists.in_order(OPEN_QUESTIONS, after=at, limit=limit)
        asked += [(row.kind, row.state.id) for row in page]
        assert len(page) <= limit
        if not at:
            break
    assert asked == seen("question")


def test_a_page_in_order_looks_at_a_bounded_number_of_rows(monkeypatch):
    monkeypatch.setattr(lane_lists, "EXAMINED", 10)
    crowd = a_crowd()
    for _ in range(25):
        crowd.question(SPAMMER, "spam.q")
    mine = crowd.question(FRIEND, "shop.approve")
    crowd.replica.flush()
    lists, pages, at = Lists(crowd.replica, OPEN, reads("shop.>")), [], 0
    while True:
        page, at = lists.in_order(OPEN_QUESTIONS, after=at, limit=5)
        pages.append([row.state.id for row in page])
        if not at:
            break
    assert pages == [[], [], [mine.id]]


@pytest.mark.parametrize(
    "command, sees",
    [
        ("/job/read", {"question", "dead", "lock", "conflict"}),
        ("/job/claim", {"question", "dead"}),
        ("/job/answer", {"question", "dead"}),
        ("/lock/take", {"lock"}),
        ("/memory/read", {"conflict"}),
        ("/memory", {"conflict"}),
        ("/", {"question", "dead", "lock", "conflict"}),
        ("/job/schedule", set()),
        ("/message/send", set()),
    ],
)
def test_each_list_takes_the_right_of_what_it_shows(written, command, sees):
    replica, _ = written
    lists = Lists(replica, OPEN, reads("build.>", command=command))
    assert {sort for sort, (of, _) in SHARED.items() if lists.shared(of, limit=9).rows} == sees


def test_somebody_with_more_kinds_than_are_read_hides_nobody(monkeypatch):
    monkeypatch.setattr(lane_lists, "MOST_KINDS", 3)
    crowd = a_crowd()
    for number in range(9):
        crowd.question(SPAMMER, f"shop.spam{number}")
    mine = crowd.question(FRIEND, "shop.zoo")
    crowd.replica.flush()
    found = Lists(crowd.replica, OPEN, reads("shop.>")).shared(OPEN_QUESTIONS, limit=50)
    assert mine.id in {row.state.id for row in found.rows}
    assert len(found.rows) == 4


CHEAP = {
    "questions": (OPEN_QUESTIONS, lambda crowd, by, kind: crowd.question(by, kind), "lanes_jobs"),
    "dead": (DEAD_JOBS, lambda crowd, by, kind: crowd.dead(by, kind), "lanes_jobs"),
    "locks": (HELD_LOCKS, lambda crowd, by, kind: crowd.lock(by, kind, "k"), "lanes_locks"),
    "conflicts": (
        DOCUMENTS_IN_CONFLICT,
        lambda crowd, by, kind: crowd.document(by, kind, "k", conflicts=1),
        "lanes_memory",
    ),
}


@pytest.mark.parametrize("sort", CHEAP)
def test_a_hundred_times_the_rows_of_one_party_cost_a_reader_the_same(sort):
    of, put, table = CHEAP[sort]

    def flooded(times):
        crowd = a_crowd()
        put(crowd, FRIEND, "shop.x")
        put(crowd, SPAMMER, "spam.x")
        crowd.repeat(table, times)
        return crowd.replica

    few, many = flooded(200), flooded(20_000)
    for scope in (EVERYTHING, reads("shop.>"), reads("spam.>", "shop.>")):
        part = Lists(many, OPEN, scope).shared(of, limit=50)
        assert FRIEND in {row.whose for row in part.rows}
        growth = times_the_cost(
            lambda scope=scope: Lists(many, OPEN, scope).shared(of, limit=50),
            of=lambda scope=scope: Lists(few, OPEN, scope).shared(of, limit=50),
        )
        assert growth < 4, scope
