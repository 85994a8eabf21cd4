"""A short run of the attacker, with the same seed every time."""

import pytest

from antiphon.core.ucan import Chain, chain, policy, signatures
from tests.core.ucan.fuzzing import ARGUMENTS, COMMANDS, HONEST, TIMES, does_alice_allow, fuzz
from tests.core.ucan.principals import ALICE, MALLORY


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_honest_chains_admit_what_the_fuzzer_believes(long, command):
    honest = Chain.of(ALICE.did, HONEST[long])
    for arguments in ARGUMENTS:
        for times in TIMES:
            admitted = honest.judge(MALLORY.did, command, arguments, times).ok
            assert admitted is does_alice_allow(long, command, arguments, times)


def test_nothing_is_raised_and_nothing_is_widened():
    tally = fuzz(5_000, seed=1)
    assert sum(tally.values()) == 5_000
    # Neither toothless nor harmless: many ends are reached, acceptance among them.
    assert tally["ok"] > 200
    reached = {"ok", "malformed", "misaligned", "bad_signature", "command", "policy", "expired"}
    assert reached <= tally.keys()


BROKEN = {
    "no signatures": (signatures, "is_signed", lambda _: True),
    "no commands": (chain, "covers", lambda *_: True),
    "no policies": (policy.Policy, "judge", lambda *_: True),
    "no time": (chain.Chain, "_time_fault", lambda *_: None),
}


@pytest.mark.parametrize("where, name, broken", BROKEN.values(), ids=BROKEN.keys())
def test_the_attacker_gets_through_where_a_check_is_missing(where, name, broken, monkeypatch):
    """The fuzzer itself is tested: each check, taken away, is missed."""
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(AssertionError, match="admitted"):
        fuzz(5_000, seed=1)
