"""The table of nodes: what silence means, who is live, what is a change, and what is bounded."""

import pytest

from antiphon.core.presence.cards import LONGEST_BEAT_MS, SHORTEST_BEAT_MS, Card
from antiphon.core.presence.presence_table import (
    DEAD_KEPT_MS,
    GONE_KEPT_MS,
    GRACE_MS,
    STALE_MS,
    Heard,
    Level,
    PresenceTable,
    level_of,
    misses,
)


def card(name="a", **fields):
    return Card(node=f"did:{name}", alias=name, role="worker", version="1", at_ms=0, **fields)


def nobody(_):
    return False


def hear(table, name="a", *, at_ms=0, **fields):
    heard = Heard("user", b"{}", at_ms=at_ms, heard_ms=at_ms)
    return table.hear(card(name, **fields), heard)


def sweep(table, now_ms, has_ended=nobody):
    return [(one.alias, one.was, one.level, one.misses) for one in table.sweep(now_ms, has_ended)]


@pytest.mark.req("S11")
@pytest.mark.parametrize(
    "silent_ms, missed, level",
    [
        (0, 0, "alive"),
        (SHORTEST_BEAT_MS + GRACE_MS - 1, 0, "alive"),
        (SHORTEST_BEAT_MS + GRACE_MS, 1, "warn"),
        (3 * SHORTEST_BEAT_MS - 1, 2, "warn"),
        (3 * SHORTEST_BEAT_MS, 3, "alert"),
        (5 * SHORTEST_BEAT_MS - 1, 4, "alert"),
        (5 * SHORTEST_BEAT_MS, 5, "critical"),
        (STALE_MS - 1, 9, "critical"),
        (STALE_MS, 10, "dead"),
        (10 * STALE_MS, 100, "dead"),
    ],
)
def test_what_silence_means(silent_ms, missed, level):
    assert (misses(silent_ms), level_of(misses(silent_ms))) == (missed, level)


@pytest.mark.req("S11")
@pytest.mark.parametrize(
    "late_ms, missed",
    [(GRACE_MS - 1, 0), (GRACE_MS, 1), (2 * SHORTEST_BEAT_MS, 3), (9 * SHORTEST_BEAT_MS, 10)],
)
def test_misses_count_from_when_the_next_heartbeat_was_due(late_ms, missed):
    assert misses(LONGEST_BEAT_MS + late_ms, LONGEST_BEAT_MS) == missed


def test_only_changes_are_told_and_each_once():
    table = PresenceTable()
    assert hear(table).level == Level.ALIVE
    for at_ms in range(SHORTEST_BEAT_MS, 10 * SHORTEST_BEAT_MS, SHORTEST_BEAT_MS):
        assert hear(table, at_ms=at_ms) is None
        assert sweep(table, at_ms + SHORTEST_BEAT_MS) == []
    last_ms = 9 * SHORTEST_BEAT_MS
    told = [one for ms in range(0, 90_000, 500) for one in sweep(table, last_ms + ms)]
    assert told == [
        ("a", "alive", "warn", 1),
        ("a", "warn", "alert", 3),
        ("a", "alert", "critical", 5),
        ("a", "critical", "dead", 10),
    ]
    back = hear(table, at_ms=last_ms + 90_000)
    assert (back.was, back.level) == ("dead", "alive")


@pytest.mark.req("S11")
def test_live_nodes_are_those_heard_within_the_threshold_and_not_over():
    table = PresenceTable()
    for name, at_ms in (("old", 1), ("new", 50_000), ("left", 50_000), ("ended", 50_000)):
        hear(table, name, at_ms=at_ms)
    assert hear(table, "left", at_ms=50_001, is_away=True).level == "left"
    assert sweep(table, 50_002, lambda did: did == "did:ended")[-1][:3] == (
        "ended",
        "alive",
        "ended",
    )
    assert {one.card.alias for one in table.live(60_001)} == {"old", "new"}
    assert {one.card.alias for one in table.live(60_002)} == {"new"}
    assert {one.card.alias for one in table.live(60_001, stale_ms=10_000)} == set()


def test_a_replay_brings_nobody_back():
    table = PresenceTable()
    hear(table, at_ms=5)
    hear(table, at_ms=9, is_away=True)
    for at_ms in (5, 9):
        assert hear(table, at_ms=at_ms) is None
    assert table.live(10) == []
    assert hear(table, "never-seen", at_ms=1, is_away=True) is None


def test_it_is_bounded_and_those_that_are_gone_make_room():
    table = PresenceTable(most=3)
    for number in range(5):
        hear(table, f"n{number}", at_ms=1)
    assert len(table) == 3
    hear(table, "n0", at_ms=2, is_away=True)
    assert hear(table, "n4", at_ms=1).level == "alive"
    assert len(table) == 3
    sweep(table, STALE_MS + 1)
    hear(table, "n5", at_ms=1)
    assert [one.card.node for one in table.live(STALE_MS + 1)] == ["did:n5"], "the dead go first"


def test_who_left_is_forgotten_soon_and_who_died_after_a_day():
    table = PresenceTable()
    for name in ("left", "died", "ended"):
        hear(table, name, at_ms=1)
    hear(table, "left", at_ms=2, is_away=True)
    sweep(table, STALE_MS + 1)
    sweep(table, GONE_KEPT_MS + STALE_MS)
    assert {one.card.node for one in table.dead()} == {"did:died", "did:ended"}
    assert len(table) == 2
    (change,) = table.sweep(GONE_KEPT_MS + STALE_MS, {"did:ended"}.__contains__)
    assert (change.node, change.level) == ("did:ended", "ended"), "nobody misses it"
    sweep(table, DEAD_KEPT_MS)
    assert [one.card.node for one in table.dead()] == ["did:died"]
    sweep(table, DEAD_KEPT_MS + 2)
    assert len(table) == 0


def test_of_those_that_know_all_exactly_one_answers_each_question():
    table = PresenceTable()
    for name in "abc":
        hear(table, name, at_ms=1, knows_others=True)
    hear(table, "light", at_ms=1)
    winners = set()
    for number in range(30):
        answering = [name for name in "abc" if table.answers(f"inbox.{number}", f"did:{name}")]
        assert len(answering) == 1
        winners |= set(answering)
    assert winners == {"a", "b", "c"}
    sweep(table, 5 * SHORTEST_BEAT_MS)
    assert table.answers("inbox.0", "did:a"), "of others it does not know that they are there"
