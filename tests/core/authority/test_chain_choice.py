"""Choosing the delegations that an op names."""

import pytest

from antiphon.core.authority.chain_choice import MAX_CHAINS, ChainChoice, chains_to
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobSchedule, ScheduleBody
from antiphon.core.ucan import Chain
from tests.core.authority.test_chain_check import DAY_MS, RENDER, Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, manifest

ANY = 2**63


def claim(kind: str) -> ClaimBody:
    return ClaimBody(kind=kind, job="a" * 64, lease_ms=1000, begin=True)


def pick(court: Court, who=ALICE, kind="render.frame", op=JobClaim, now_ms=T0):
    control = court.ledger.history.current
    return ChainChoice(who.did).choose(control, op, claim(kind), now_ms)


def test_the_chain_that_admits_the_op_is_chosen_among_several():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/schedule")
    build = court.grant(OWNER, ALICE, cmd="/job/claim", pol=[["==", ".kind", "build"]])
    render = court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    assert pick(court) == (render,)
    assert pick(court, kind="build") == (build,)


def test_an_invitation_may_have_more_commands_than_a_few():
    """The oldest of them counts as much as the newest."""
    court = Court()
    claiming = court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    for number in range(20):
        court.grant(OWNER, ALICE, cmd=f"/other/{number}")
    assert pick(court) == (claiming,)


@pytest.mark.parametrize("order", [("low", "high"), ("high", "low")])
@pytest.mark.parametrize(
    "policy",
    [
        lambda word: ["==", ".priority", word],
        lambda word: ["not", ["!=", ".priority", word]],
        lambda word: ["or", [["==", ".kind", "none"], ["==", ".priority", word]]],
        lambda word: ["any", ".requires", ["==", ".", word]],
    ],
    ids=["field", "not", "or", "list"],
)
def test_of_two_chains_that_differ_by_another_field_each_op_names_its_own(policy, order):
    court = Court()
    chains = {
        word: court.grant(
            OWNER, ALICE, cmd="/job/schedule", pol=[policy(word)], nonce=word.encode() * 4
        )
        for word in order
    }
    chain_choice, control = ChainChoice(ALICE.did), court.ledger.history.current
    for word in (*order, *reversed(order)):
        body = ScheduleBody(kind="a", manifest=manifest(), priority=word, requires=(word,))
        assert chain_choice.choose(control, JobSchedule, body, T0) == (chains[word],)


def test_an_op_that_no_chain_admits_decides_nothing_for_the_next():
    court = Court()
    chains = {
        word: court.grant(OWNER, ALICE, cmd="/job/schedule", pol=[["==", ".priority", word]])
        for word in ("high", "low")
    }
    for word, cid in chains.items():
        chain_choice, control = ChainChoice(ALICE.did), court.ledger.history.current
        refused = ScheduleBody(kind="a", manifest=manifest(), priority="normal")
        nearest = chain_choice.choose(control, JobSchedule, refused, T0)
        assert set(nearest) < set(chains.values()), "the nearest, so that the verdict can say why"
        body = ScheduleBody(kind="a", manifest=manifest(), priority=word)
        assert chain_choice.choose(control, JobSchedule, body, T0) == (cid,)


def test_a_choice_by_kind_is_made_once(monkeypatch):
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    chain_choice, control, made = ChainChoice(ALICE.did), court.ledger.history.current, []
    monkeypatch.setattr(Chain, "judge", counted(Chain.judge, made))
    for _ in range(5):
        assert chain_choice.choose(control, JobClaim, claim("render.frame"), T0)
        assert chain_choice.choose(control, JobClaim, claim("another"), T0)
    assert len(made) == 2


def counted(function, calls):
    def called(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return called


def test_chains_run_from_root_to_leaf_through_everyone_between():
    court = Court()
    first = court.grant(OWNER, CAROL)
    second = court.grant(CAROL, BOB)
    third = court.grant(BOB, ALICE, subject=None)
    assert pick(court) == (first, second, third)
    assert pick(court, BOB) == (first, second)


def test_the_owner_and_members_of_open_meshes_name_nothing():
    court = Court()
    court.grant(OWNER, ALICE)
    assert pick(court, OWNER) == ()
    assert pick(court, BOB) == ()


def test_a_choice_is_dropped_when_it_ends_or_the_book_grows():
    court = Court()
    short = court.grant(OWNER, ALICE, until_ms=60_000)
    chain_choice, control = ChainChoice(ALICE.did), court.ledger.history.current
    assert chain_choice.choose(control, JobClaim, claim("a"), T0) == (short,)
    long = court.grant(OWNER, ALICE, until_ms=DAY_MS)
    assert chain_choice.choose(control, JobClaim, claim("a"), T0 + 61_000) == (long,)
    court.revoke(long, OWNER)
    other = court.grant(OWNER, ALICE, nonce=b"another nonce")
    assert chain_choice.choose(control, JobClaim, claim("a"), T0 + 61_000) == (other,)


def test_without_authority_the_nearest_chain_is_named_so_that_the_verdict_can_say_why():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/schedule")
    expired = court.grant(OWNER, ALICE, cmd="/job/claim", until_ms=1000)
    assert pick(court, now_ms=T0 + DAY_MS) == (expired,)


def test_circles_and_crowds_are_bounded():
    court = Court()
    court.grant(OWNER, BOB)
    for number in range(2 * MAX_CHAINS):
        court.grant(BOB, ALICE, nonce=b"nonce %08d" % number)
    court.grant(ALICE, BOB)
    control = court.ledger.history.current
    assert 0 < len(chains_to(control.grants, OWNER.did, ALICE.did, before=ANY)) <= MAX_CHAINS


def test_what_strangers_give_does_not_hide_what_counts():
    court = Court()
    first = court.grant(OWNER, BOB)
    second = court.grant(BOB, ALICE, subject=None)
    for number in range(2 * MAX_CHAINS):
        court.grant(CAROL, ALICE, nonce=b"nonce %08d" % number)
    assert pick(court) == (first, second)
