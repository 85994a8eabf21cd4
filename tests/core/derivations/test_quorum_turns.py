"""Which jobs with replicas are looked at next."""

from antiphon.core.derivations.quorum_turns import QuorumTurns


def key(name):
    return "test.work", str(name)


def taken(turns, *, most=100, room=lambda _: True):
    return [name for _, name in turns.take(most, room)]


def test_of_every_party_one_and_then_another_of_each():
    turns = QuorumTurns()
    for number in range(100):
        turns.touch(key(number), "greedy")
    turns.touch(key("modest"), "modest")
    assert taken(turns, most=3) == ["0", "modest", "1"]
    turns.touch(key("again"), "modest")
    assert taken(turns, most=3) == ["2", "again", "3"]


def test_a_job_is_looked_at_once_however_often_something_happened_to_it():
    turns = QuorumTurns()
    for _ in range(3):
        turns.touch(key("one"), "party")
    assert taken(turns) == ["one"]
    assert not turns.is_touched


def test_what_is_delayed_waits_for_its_own_party_alone_and_the_oldest_is_next():
    turns = QuorumTurns()
    for seq in (3, 1, 2, 1):
        turns.delay(key(seq), "full", seq)
    turns.delay(key("free"), "free", 9)
    assert taken(turns, room=lambda party: party == "free") == ["free"]
    assert turns.delayed == ("full",)
    turns.touch(key("result"), "full")
    assert taken(turns, room=lambda _: False) == ["result"]
    assert [taken(turns) for _ in range(4)] == [["1"], ["2"], ["3"], []]
    assert turns.delayed == ()


def test_a_younger_job_does_not_overtake_one_that_is_delayed():
    turns = QuorumTurns()
    turns.delay(key("old"), "party", 5)
    assert turns.is_behind("party", 6)
    assert not turns.is_behind("party", 5)
    assert not turns.is_behind("other", 6)
