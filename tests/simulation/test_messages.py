"""Simulated inboxes: every law holds while gates crash, and each deliberate bug breaks one."""

import pytest

from simulator.messages import message_mutants
from simulator.messages.message_laws import Line, judge
from simulator.messages.message_world import MessagePlan, run

CAUGHT_BY = {
    message_mutants.acknowledgements_are_kept_in_memory: (0, "delivered_twice"),
    message_mutants.threads_have_no_order: (0, "reordered"),
    message_mutants.confirmed_before_it_is_stored: (1, "lost"),
    message_mutants.registers_are_not_compared: (0, "delivered_twice"),
}
"""For each bug a seed that shows it, and the law that it breaks."""


@pytest.mark.req("S9")
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_doubled_or_reordered(seed):
    outcome = run(MessagePlan(seed=seed))
    assert outcome.violations == [], outcome
    assert outcome.facts.sent == outcome.facts.handed == 48
    assert sum(outcome.faults.values()) == 12


@pytest.mark.parametrize("mutant", message_mutants.MUTANTS, ids=lambda one: one.__name__)
def test_a_bug_breaks_a_law(mutant):
    seed, law = CAUGHT_BY[mutant]
    assert run(MessagePlan(seed=seed)).violations == []
    with mutant():
        assert any(one.startswith(law) for one in run(MessagePlan(seed=seed)).violations)


def seen(text):
    """Lines as `S a.b.0`, one after the other."""
    return [Line(one[0], one[1:], at * 10**6) for at, one in enumerate(text.split())]


@pytest.mark.parametrize(
    "sender, reader, broken",
    [
        ("Sa.b.0 Aa.b.0 Sa.b.1 Aa.b.1", "Ha.b.0 Ka.b.0 Ha.b.1 Ka.b.1", set()),
        ("Sa.b.0 Aa.b.0", "", {"lost"}),
        ("Sa.b.0", "Ha.b.0", {"unconfirmed"}),
        ("Sa.b.0 Aa.b.0", "Ha.b.0 Ha.b.0 Ka.b.0", {"redelivered"}),
        ("Sa.b.0 Aa.b.0", "Ha.b.0 Ka.b.0 Ha.b.0", {"delivered_twice"}),
        ("Sa.b.0 Aa.b.0 Sa.b.1 Aa.b.1", "Ha.b.1 Ka.b.1 Ha.b.0 Ka.b.0", {"reordered"}),
    ],
)
def test_the_laws_say_what_is_wrong(sender, reader, broken):
    facts = judge([seen(sender), seen(reader)])
    names = ("lost", "unconfirmed", "redelivered", "delivered_twice", "reordered")
    assert {one for one in names if getattr(facts, one)} == broken
