"""The tree of who holds what from whom: stories, names, and ten thousand of them."""

import math
from itertools import count, pairwise

import pytest
from msgspec import structs

from antiphon.core.authority.control import Quarantine
from antiphon.core.authority.delegations import Grants
from antiphon.core.authority.grant_reach import MAX_KINDS, State
from antiphon.core.authority.grant_tree import trace
from antiphon.core.authority.register import Register
from antiphon.core.ucan import MAX_LINKS, Chain, Delegation
from tests.core.ledger import Ledger
from tests.core.ucan.principals import (
    ALICE,
    BOB,
    CAROL,
    DAN,
    DAY,
    ERIN,
    EVERYONE,
    NOW,
    Principal,
    claims,
    delegate,
)
from tests.cpu_cost import times_the_cost

OWNER = ALICE
FOUNDED = Ledger(authority="chain").history.current
RENDER = [["like", ".kind", "render.*"]]
BUILD = [["like", ".kind", "build.*"]]


class Book:
    """Delegations and revocations as a log would hold them."""

    def __init__(self, *delegations, quarantined=()):
        self.grants = Grants()
        self.seq = count(1)
        self.quarantined = quarantined
        for one in delegations:
            self.grants.grant(next(self.seq), one)

    def revoke(self, delegation, by):
        self.grants.revoke(next(self.seq), delegation.cid, by.did)
        return self

    def control(self, owner=OWNER):
        quarantines = Register()
        for who in self.quarantined:
            quarantines.write(1, who.did, Quarantine(1, (0, 0)))
        return structs.replace(
            FOUNDED,
            owner=owner.did,
            grants=self.grants,
            since=next(self.seq),
            quarantines=quarantines,
        )

    def trace(self, now_s=NOW, owner=OWNER):
        return trace(self.control(owner), now_s)


def named(who, alias):
    return {"meta": {"alias": alias}, "nonce": f"nonce {who.name} {alias}".encode()}


def shape(holders):
    """A tree as names, without the grants."""
    return {EVERYONE[one.did].name: shape(one.children) for one in holders}


def states(tree):
    return {grant.cid: grant.state for grant in (*tree.grants(), *tree.void)}


# --- stories ---------------------------------------------------------------------------------


def test_what_the_owner_gave_stands_at_the_top_and_what_was_handed_on_below():
    first = delegate(OWNER, BOB, cmd="/job/claim", pol=RENDER, **named(BOB, "gpu-box"))
    second = delegate(BOB, CAROL, cmd="/job/claim", exp=None)
    tree = Book(first, second).trace()
    assert shape(tree.holders) == {"bob": {"carol": {}}}
    (bob,) = tree.holders
    assert (bob.alias, bob.grants[0].kinds, bob.grants[0].command) == (
        "gpu-box",
        ("render.*",),
        "/job/claim",
    )
    (carol,) = bob.children
    assert carol.alias == ""
    assert carol.grants[0].kinds == ("render.*",), "no more than Bob could give"
    assert (carol.grants[0].until_s, carol.grants[0].from_s) == (None, None)
    assert carol.grants[0].ends_s == NOW + DAY, "no longer than Bob has it"
    assert carol.grants[0].state is State.LIVE


def test_kinds_add_up_over_the_ways_and_shrink_along_each():
    book = Book(
        delegate(OWNER, BOB, pol=RENDER, nonce=b"nonce of one"),
        delegate(OWNER, BOB, pol=BUILD, nonce=b"nonce of two"),
        delegate(BOB, CAROL, nonce=b"everything!!"),
        delegate(BOB, DAN, pol=[["==", ".kind", "render.video"]], nonce=b"one kind only"),
        delegate(BOB, ERIN, pol=[["==", ".kind", "test.unit"]], nonce=b"none of Bob's"),
    )
    held = {EVERYONE[one.audience].name: one.kinds for one in book.trace().grants()}
    assert held["carol"] == ("build.*", "render.*")
    assert held["dan"] == ("render.video",)
    assert held["erin"] == ()


def test_a_powerline_passes_on_and_cannot_begin():
    machine = delegate(OWNER, BOB, cmd="/job/claim", pol=RENDER)
    process = delegate(BOB, CAROL, sub=None, cmd="/", exp=None)
    rootless = delegate(OWNER, DAN, sub=None, cmd="/")
    tree = Book(machine, process, rootless).trace()
    assert shape(tree.holders) == {"bob": {"carol": {}}}
    (carol,) = tree.holders[0].children
    assert carol.grants[0].is_powerline
    assert carol.grants[0].kinds == ("render.*",)
    assert [one.cid for one in tree.void] == [rootless.cid]


def test_whoever_holds_from_several_stands_below_each_and_its_own_below_one():
    book = Book(
        delegate(OWNER, BOB),
        delegate(OWNER, CAROL),
        delegate(BOB, DAN, exp=NOW - 1),
        delegate(CAROL, DAN),
        delegate(DAN, ERIN),
    )
    tree = book.trace()
    assert shape(tree.holders) == {"bob": {"dan": {}}, "carol": {"dan": {"erin": {}}}}
    bob, carol = tree.holders
    assert (bob.children[0].is_elsewhere, carol.children[0].is_elsewhere) == (True, False)
    assert [one.state.value for one in bob.children[0].grants] == ["expired"]


@pytest.mark.parametrize(
    "changes, state",
    [
        ({}, State.LIVE),
        ({"exp": NOW}, State.LIVE),
        ({"exp": NOW - 1}, State.EXPIRED),
        ({"nbf": NOW}, State.LIVE),
        ({"nbf": NOW + 1}, State.NOT_YET),
        ({"nbf": NOW + 1, "exp": NOW - 1}, State.EXPIRED),
        ({"cmd": "/"}, State.VOID),
        ({"cmd": "/artifact"}, State.VOID),
        ({"sub": CAROL.did}, State.VOID),
    ],
)
def test_every_state_has_its_cause_and_what_hangs_below_shares_it(changes, state):
    top = delegate(OWNER, BOB)
    middle = delegate(BOB, CAROL, **changes)
    bottom = delegate(CAROL, DAN, cmd="/job/claim")
    found = states(Book(top, middle, bottom).trace())
    assert [found[one.cid] for one in (top, middle, bottom)] == [State.LIVE, state, state]


@pytest.mark.parametrize(
    "by, is_revoked",
    [(OWNER, True), (BOB, True), (CAROL, True), (DAN, False), (ERIN, False)],
)
def test_a_revocation_counts_from_those_above(by, is_revoked):
    links = [delegate(one, other) for one, other in pairwise((OWNER, BOB, CAROL, DAN))]
    found = states(Book(*links).revoke(links[2], by).trace())
    assert found[links[2].cid] is (State.REVOKED if is_revoked else State.LIVE)
    assert found[links[1].cid] is State.LIVE


def test_a_revocation_by_one_giver_leaves_the_way_by_another():
    """Bob, above Carol on one way only, revokes what she handed on."""
    by_bob, of_bob = delegate(OWNER, BOB), delegate(BOB, CAROL)
    by_erin, of_erin = delegate(OWNER, ERIN), delegate(ERIN, CAROL)
    handed_on = delegate(CAROL, DAN)
    alone = Book(by_bob, of_bob, handed_on).revoke(handed_on, BOB)
    assert states(alone.trace())[handed_on.cid] is State.REVOKED
    both = Book(by_bob, of_bob, by_erin, of_erin, handed_on).revoke(handed_on, BOB)
    assert states(both.trace())[handed_on.cid] is State.LIVE
    chain = Chain.of(OWNER.did, [by_erin, of_erin, handed_on])
    revoked = both.grants.revoked((handed_on.cid,), before=99)
    assert chain.judge(DAN.did, "/job/claim", {}, (NOW,), revoked).ok


def test_a_longer_way_counts_where_the_shorter_one_does_not():
    """Carol holds from Bob, and the long way round from Erin and Dan."""
    end = delegate(CAROL, BOB, cmd="/job/claim")
    longer = [delegate(OWNER, ERIN), delegate(ERIN, DAN), delegate(DAN, CAROL, pol=BUILD)]

    def way_by_bob(**changes):
        return [delegate(OWNER, BOB), delegate(BOB, CAROL, **changes)]

    revoked = Book(*way_by_bob(), *longer, end).revoke(end, BOB)
    assert states(revoked.trace())[end.cid] is State.LIVE
    for dead in ({"exp": NOW - 1}, {"nbf": NOW + 1}, {"cmd": "/job/read"}):
        book = Book(*way_by_bob(**dead), *longer, end)
        assert states(book.trace())[end.cid] is State.LIVE, dead
    brief = Book(*way_by_bob(exp=NOW + 60), *longer, end)
    ends = {grant.cid: grant.ends_s for grant in brief.trace().grants()}
    assert ends[end.cid] == NOW + DAY
    both = Book(*way_by_bob(pol=RENDER), *longer, end).trace()
    kinds = {grant.cid: grant.kinds for grant in both.grants()}
    assert kinds[end.cid] == ("build.*", "render.*")


def test_with_a_new_owner_what_the_old_one_gave_leads_nowhere():
    book = Book(delegate(OWNER, BOB), delegate(BOB, CAROL))
    tree = book.trace(owner=ERIN)
    assert tree.holders == ()
    assert len(tree.void) == 2


def test_a_chain_may_be_so_long_and_no_longer():
    people = [OWNER, *(Principal(f"link {n}") for n in range(MAX_LINKS + 3))]
    links = [delegate(one, other) for one, other in pairwise(people)]
    found = states(Book(*links).trace())
    assert [found[one.cid] for one in links] == [State.LIVE] * MAX_LINKS + [State.VOID] * 3


def test_the_quarantined_are_marked():
    tree = Book(delegate(OWNER, BOB), delegate(OWNER, CAROL), quarantined=[CAROL]).trace()
    assert [one.is_quarantined for one in tree.holders] == [False, True]


# --- names -----------------------------------------------------------------------------------


def called(book, text, *, trusted=(), known=()):
    found = book.trace().nodes_called(
        text, trusted=frozenset(one.did for one in trusted), known=[one.did for one in known]
    )
    return sorted(EVERYONE[did].name for did in found)


def test_a_node_is_found_by_id_by_the_end_of_it_and_by_name():
    book = Book(delegate(OWNER, BOB, **named(BOB, "gpu-box")))
    for text in (BOB.did, BOB.did[-8:], BOB.did[-4:], "gpu-box"):
        assert called(book, text) == ["bob"]
    assert called(book, BOB.did[-3:]) == [], "too short to be an id"
    assert called(book, ERIN.did[-8:]) == []
    assert called(book, ERIN.did[-8:], known=[ERIN]) == ["erin"]
    assert called(book, OWNER.did[-8:]) == ["alice"]


def test_nobody_can_stand_in_for_a_name_that_the_owner_gave():
    true = delegate(OWNER, BOB, **named(BOB, "gpu-box"))
    rival = delegate(OWNER, CAROL)
    false = delegate(CAROL, DAN, **named(DAN, "gpu-box"))
    assert called(Book(rival, false), "gpu-box") == ["dan"], "the only one of that name"
    assert called(Book(rival, false, true), "gpu-box") == ["bob"]
    assert called(Book(rival, false, true), "gpu-box", trusted=[CAROL]) == ["bob", "dan"]
    tree = Book(true, rival, delegate(CAROL, BOB, **named(BOB, "mine"))).trace()
    assert tree.names[BOB.did] == "gpu-box", "the owner's word counts"
    as_an_id = delegate(CAROL, DAN, **named(DAN, BOB.did[-8:]))
    assert called(Book(true, rival, as_an_id), BOB.did[-8:]) == ["bob"]


def test_a_name_given_anew_means_the_new_one():
    old = delegate(OWNER, BOB, **named(BOB, "gpu-box"))
    new = delegate(OWNER, CAROL, **named(CAROL, "gpu-box"))
    assert called(Book(old, new), "gpu-box") == ["bob", "carol"]
    assert called(Book(old, new).revoke(old, OWNER), "gpu-box") == ["carol"]
    renamed = delegate(OWNER, BOB, **named(BOB, "attic"))
    assert Book(old, renamed).trace().names[BOB.did] == "attic"


def test_a_name_on_a_delegation_that_leads_nowhere_is_nobodys():
    assert called(Book(delegate(CAROL, DAN, **named(DAN, "gpu-box"))), "gpu-box") == []


# --- much of it ------------------------------------------------------------------------------

FEW, MANY = 500, 4_000


def star(size):
    return [(OWNER, n) for n in range(size)]


def families(size):
    """Machines with ninety-nine processes each."""
    machines = size // 100
    return [
        *((OWNER, n) for n in range(machines)),
        *((n % machines, machines + n) for n in range(size - machines)),
    ]


def crowd(size):
    """Everybody to everybody: cycles wherever one looks."""
    heads = math.isqrt(size)
    others = [(n, m) for n in range(heads) for m in range(heads - 1)]
    return [(OWNER, n) for n in range(heads)] + others


def ladder(size):
    """Sixteen levels, each level to the whole next one: of 4,000, that is 16^15 chains."""
    wide = math.isqrt(size // 15)
    rungs = [(OWNER, n) for n in range(wide)]
    for level in range(15):
        here, below = level * wide, (level + 1) * wide
        rungs += [(here + n, below + m) for n in range(wide) for m in range(wide)]
    return rungs


def snake(size):
    return [(OWNER, 0)] + [(n, n + 1) for n in range(size - 1)]


def control_of(pairs):
    """A mesh in which these (giver, holder) happened, and one in 97 was taken back."""
    book, one = Book(), claims(OWNER, BOB, pol=RENDER)
    dids = {OWNER: OWNER.did, **{n: f"did:key:z{n}" for n in range(MANY + 1)}}
    for n, (giver, holder) in enumerate(pairs):
        payload = structs.replace(one, iss=dids[giver], aud=dids[holder])
        book.grants.grant(n + 1, Delegation(raw=b"%d" % n, cid=f"cid {n}", payload=payload))
    for n, link in enumerate(book.grants.everything()[::97]):
        book.grants.revoke(MANY + n, link.cid, dids[n])
    return book.control()


@pytest.mark.parametrize("plan", [star, families, crowd, ladder, snake])
def test_eight_times_the_delegations_take_about_eight_times_as_long(plan, record_property):
    few, many = control_of(plan(FEW)), control_of(plan(MANY))
    tree = trace(many, NOW)
    assert sum(1 for _ in tree.grants()) + len(tree.void) == len(plan(MANY))
    growth = times_the_cost(lambda: trace(many, NOW), of=lambda: trace(few, NOW), rounds=3)
    record_property("growth", round(growth, 1))
    assert growth < 32, "64 would be the square of it"


def test_no_list_of_kinds_grows_without_bound():
    book = Book(
        *(
            delegate(OWNER, BOB, pol=[["==", ".kind", f"k{n}"]], nonce=b"%012d" % n)
            for n in range(3 * MAX_KINDS)
        ),
        delegate(BOB, CAROL),
    )
    (carol,) = book.trace().holders[0].children
    assert len(carol.grants[0].kinds) == MAX_KINDS
    assert carol.grants[0].state is State.LIVE
