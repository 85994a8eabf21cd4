"""Simulated inboxes: every law holds while gates crash, and each deliberate bug breaks one."""

import json
import re
import shlex

import pytest

from simulator.messages import command, message_mutants
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


def test_the_command_printed_at_a_broken_law_replays_that_world_alone(capsys):
    def broken(*arguments):
        with message_mutants.threads_have_no_order():
            assert command.main(list(arguments)) == 1
        out = capsys.readouterr()
        printed = re.findall(r"replay it alone: +python -m simulator.messages (.+)", out.err)
        found = json.loads(out.out.splitlines()[-1])["broken"]
        return list(zip(found.items(), printed, strict=True))

    worlds = broken("--seed", "0", "--seeds", "2")
    assert len({digest for (_, digest), _ in worlds}) == 2
    assert all(broken(*shlex.split(printed)) == [(one, printed)] for one, printed in worlds)


def test_the_command_says_that_no_law_was_broken(capsys):
    assert command.main(["--seeds", "1"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["violations"], report["broken"], report["messages"]) == (0, {}, 48)
