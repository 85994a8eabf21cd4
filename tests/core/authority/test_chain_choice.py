"""Choosing the delegations that an op names."""

from antiphon.core.authority.chain_choice import MAX_CHAINS, ChainChoice, chains_to
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from tests.core.authority.test_chain_check import DAY_MS, RENDER, Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0

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
