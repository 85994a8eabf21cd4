"""For whom a row counts: the party behind a first delegation, or behind a key."""

from msgspec import structs

from antiphon.core.authority.parties import party_behind, party_of_key, whose
from tests.core.authority.test_grant_tree import Book
from tests.core.ucan.principals import ALICE, BOB, CAROL, DAN, delegate

OWNER = ALICE


def test_however_many_keys_and_delegations_a_member_has_it_is_one_party():
    first = delegate(OWNER, BOB, cmd="/job/claim", nonce=b"nonce of one")
    second = delegate(OWNER, BOB, cmd="/job/schedule", nonce=b"nonce of two")
    handed_on = delegate(BOB, CAROL, cmd="/job/claim")
    control = Book(first, second, handed_on).control()
    by_key = whose((first.cid, handed_on.cid), CAROL.did)
    assert by_key == first.cid
    assert {party_behind(control, one) for one in (by_key, second.cid)} == {BOB.did}
    assert party_of_key(control, CAROL.did) == party_of_key(control, BOB.did) == BOB.did


def test_who_acts_without_a_delegation_is_a_party_of_its_own():
    control = Book().control()
    for one in (OWNER, DAN):
        assert party_behind(control, whose((), one.did)) == one.did
        assert party_of_key(control, one.did) == one.did
    is_open = structs.replace(control, rules=structs.replace(control.rules, authority="open"))
    assert party_of_key(is_open, DAN.did) == DAN.did


def test_nobody_takes_somebody_elses_turns_by_naming_their_key():
    assert whose((BOB.did,), CAROL.did) == CAROL.did


def test_a_party_is_told_again_after_the_grants_changed():
    book = Book()
    assert party_of_key(book.control(), CAROL.did) == CAROL.did
    book.grants.grant(next(book.seq), delegate(OWNER, BOB))
    book.grants.grant(next(book.seq), delegate(BOB, CAROL))
    assert party_of_key(book.control(), CAROL.did) == BOB.did
