"""From root to invoker: every verdict, and the link that decides it."""

import pytest
from msgspec import UNSET

from antiphon.core.ucan import MAX_LINKS, Chain, ChainVerdict, SignatureCache, open_envelope
from tests.core.ucan.principals import (
    ALICE,
    BOB,
    CAROL,
    DAN,
    DAY,
    ERIN,
    MALLORY,
    NOW,
    Principal,
    delegate,
    forge,
    line,
)

RENDER = [["like", ".kind", "render.*"]]
SMALL = [["<", ".frames", 100]]
JOB = {"kind": "render.frame", "frames": 10}
AB, BC, CD = line(ALICE, BOB, CAROL, DAN)


def verdict(links, invoker, arguments=JOB, times=(NOW,), revoked=None):
    chain = Chain.of(ALICE.did, links)
    outcome = chain.judge(invoker.did, "/job/claim", arguments, times, revoked or {})
    return (outcome.verdict.value, outcome.link)


OK = ("ok", None)
STORIES = {
    # --- alignment
    "one link": ([AB], BOB, OK),
    "three links": ([AB, BC, CD], DAN, OK),
    "the root itself, without a chain": ([], ALICE, OK),
    "somebody without a chain": ([], BOB, ("no_chain", None)),
    "somebody else's chain": ([AB, BC], MALLORY, ("misaligned", 1)),
    "a chain that ends before the invoker": ([AB, BC], DAN, ("misaligned", 1)),
    "a chain that the root did not begin": ([BC, CD], DAN, ("misaligned", 0)),
    "a gap": ([AB, CD], DAN, ("misaligned", 1)),
    "from leaf to root": ([CD, BC, AB], DAN, ("misaligned", 0)),
    "a link twice": ([AB, AB], BOB, ("misaligned", 1)),
    "a grant to oneself changes nothing": ([AB, *line(BOB, BOB, CAROL)], CAROL, OK),
    "a root that grants itself": (line(ALICE, ALICE, BOB), BOB, OK),
    "somebody's own root": (
        [delegate(MALLORY, BOB, sub=MALLORY.did)],
        BOB,
        ("misaligned", 0),
    ),
    "a claim to speak for the root": ([delegate(MALLORY, BOB)], BOB, ("misaligned", 0)),
    # --- subject
    "about somebody else at the root": (
        [delegate(ALICE, BOB, sub=BOB.did)],
        BOB,
        ("misaligned", 0),
    ),
    "about somebody else further down": (
        [AB, delegate(BOB, CAROL, sub=BOB.did)],
        CAROL,
        ("misaligned", 1),
    ),
    "a powerline passes the subject on": ([AB, delegate(BOB, CAROL, sub=None)], CAROL, OK),
    "a powerline that leaves the subject out": (
        [AB, delegate(BOB, CAROL, sub=UNSET), CD],
        DAN,
        OK,
    ),
    "a powerline at the root": ([delegate(ALICE, BOB, sub=None)], BOB, ("misaligned", 0)),
    "a powerline of everything carries what it is given": (
        [AB, delegate(BOB, CAROL, sub=None, cmd="/")],
        CAROL,
        OK,
    ),
    "a powerline narrows": (
        [AB, delegate(BOB, CAROL, sub=None, cmd="/job/read")],
        CAROL,
        ("command", 1),
    ),
    "a powerline for something else": (
        [AB, delegate(BOB, CAROL, sub=None, cmd="/artifact")],
        CAROL,
        ("command", 1),
    ),
    "a powerline of everything does not widen what follows": (
        [AB, delegate(BOB, CAROL, sub=None, cmd="/"), delegate(CAROL, DAN, cmd="/")],
        DAN,
        ("command", 2),
    ),
    # --- commands
    "a narrower link": ([AB, delegate(BOB, CAROL, cmd="/job/claim")], CAROL, OK),
    "a link for something else": (
        [AB, delegate(BOB, CAROL, cmd="/job/read")],
        CAROL,
        ("command", 1),
    ),
    "a root for something else": ([delegate(ALICE, BOB, cmd="/artifact")], BOB, ("command", 0)),
    "a widened child": ([AB, delegate(BOB, CAROL, cmd="/")], CAROL, ("command", 1)),
    "a widened grandchild": (
        [AB, delegate(BOB, CAROL, cmd="/job/claim"), delegate(CAROL, DAN, cmd="/job")],
        DAN,
        ("command", 2),
    ),
    # --- time
    "expired": ([delegate(ALICE, BOB, exp=NOW - 1)], BOB, ("expired", 0)),
    "in its last second": ([delegate(ALICE, BOB, exp=NOW)], BOB, OK),
    "in its first second": ([delegate(ALICE, BOB, nbf=NOW)], BOB, OK),
    "not yet": ([AB, delegate(BOB, CAROL, nbf=NOW + 1)], CAROL, ("not_yet", 1)),
    "for ever": ([delegate(ALICE, BOB, exp=None, nbf=None)], BOB, OK),
    "an expired link in the middle": (
        [AB, delegate(BOB, CAROL, exp=NOW - 1), CD],
        DAN,
        ("expired", 1),
    ),
    "a child that outlives its parent": (
        [delegate(ALICE, BOB, exp=NOW - 1), delegate(BOB, CAROL, exp=NOW + DAY)],
        CAROL,
        ("expired", 0),
    ),
    "never valid": ([delegate(ALICE, BOB, nbf=NOW + 1, exp=NOW - 1)], BOB, ("not_yet", 0)),
    # --- policy
    "policies of every link": (
        [delegate(ALICE, BOB, pol=RENDER), delegate(BOB, CAROL, pol=SMALL)],
        CAROL,
        OK,
    ),
    "a root's policy": (
        [delegate(ALICE, BOB, pol=[["==", ".kind", "train"]]), BC],
        CAROL,
        ("policy", 0),
    ),
    "a leaf's policy": (
        [delegate(ALICE, BOB, pol=RENDER), delegate(BOB, CAROL, pol=[["<", ".frames", 5]])],
        CAROL,
        ("policy", 1),
    ),
    "a policy that cannot be met, dropped by the child": (
        [delegate(ALICE, BOB, pol=[["or", [["not", ["and", []]]]]]), BC],
        CAROL,
        ("policy", 0),
    ),
    # --- signatures
    "signed by somebody else": ([AB, forge(BC, MALLORY)], CAROL, ("bad_signature", 1)),
    "changed after signing": (
        [forge(AB, None, exp=None), BC],
        CAROL,
        ("bad_signature", 0),
    ),
}


@pytest.mark.parametrize("links, invoker, outcome", STORIES.values(), ids=STORIES.keys())
def test_the_story_ends_as_told(links, invoker, outcome):
    assert verdict(links, invoker) == outcome
    assert verdict([open_envelope(link.raw) for link in links], invoker) == outcome


def test_every_verdict_but_revoked_and_malformed_is_in_a_story():
    told = {outcome[0] for _, _, outcome in STORIES.values()}
    assert told == {each.value for each in ChainVerdict} - {"revoked", "malformed"}


def test_bounds_must_hold_at_every_time():
    """A claim dated Thursday and committed on Saturday, under a grant until Friday."""
    thursday, friday, saturday = NOW - DAY, NOW, NOW + DAY
    links = [delegate(ALICE, BOB, exp=friday)]
    assert verdict(links, BOB, times=[thursday]) == OK
    assert verdict(links, BOB, times=[thursday, friday]) == OK
    assert verdict(links, BOB, times=[thursday, saturday]) == ("expired", 0)
    assert verdict(links, BOB, times=[saturday, thursday]) == ("expired", 0)
    later = [delegate(ALICE, BOB, nbf=friday, exp=None)]
    assert verdict(later, BOB, times=[saturday, thursday]) == ("not_yet", 0)


def test_without_a_time_nothing_is_admitted():
    assert verdict([AB], BOB, times=[]) == ("malformed", None)
    assert verdict([], ALICE, times=[]) == ("malformed", None)


@pytest.mark.parametrize(
    "revoker, link, outcome",
    [
        (ALICE, 0, ("revoked", 0)),
        (ALICE, 1, ("revoked", 1)),
        (ALICE, 2, ("revoked", 2)),
        (BOB, 0, OK),
        (BOB, 1, ("revoked", 1)),
        (BOB, 2, ("revoked", 2)),
        (CAROL, 1, OK),
        (CAROL, 2, ("revoked", 2)),
        (DAN, 2, OK),
        (MALLORY, 0, OK),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_issuers_revoke_what_they_issued_and_everything_below(revoker, link, outcome):
    links = [AB, BC, CD]
    cid = links[link].cid
    assert verdict(links, DAN, revoked={cid: [MALLORY.did, revoker.did]}) == outcome
    assert Chain.of(ALICE.did, links).may_revoke(revoker.did, cid) == (outcome != OK)


def test_revoking_one_ticket_leaves_the_other():
    other = delegate(ALICE, BOB, nonce=b"another ticket")
    revoked = {AB.cid: {ALICE.did}}
    assert verdict([AB], BOB, revoked=revoked) == ("revoked", 0)
    assert verdict([other], BOB, revoked=revoked) == OK
    assert not Chain.of(ALICE.did, [AB]).may_revoke(ALICE.did, other.cid)


def test_a_chain_has_a_greatest_length():
    people = [ALICE, *(Principal(f"link {n}") for n in range(MAX_LINKS))]
    longest = line(*people)
    assert verdict(longest, people[-1]) == OK
    longer = [*longest, delegate(people[-1], ERIN)]
    assert verdict(longer, ERIN) == ("malformed", MAX_LINKS)
    assert verdict(longer * 100, ERIN) == ("malformed", MAX_LINKS)


def test_all_links_share_one_budget():
    count = [["all", ".l", ["==", ".", 1]]]
    links = line(ALICE, BOB, CAROL, DAN, pol=count)
    assert verdict(links, DAN, arguments={"l": [1] * 300}) == OK
    assert verdict(links[:1], BOB, arguments={"l": [1] * 400}) == OK
    assert verdict(links, DAN, arguments={"l": [1] * 400}) == ("policy", 2)


def test_what_a_chain_amounts_to_can_be_read():
    links = [
        delegate(ALICE, BOB, cmd="/job", nbf=NOW - 5, exp=NOW + 9),
        delegate(BOB, CAROL, cmd="/job/claim", nbf=NOW - 2, exp=NOW + 20, pol=RENDER),
        delegate(CAROL, DAN, cmd="/job/claim", exp=None),
    ]
    chain = Chain.of(ALICE.did, links)
    assert (chain.holder, chain.command) == (DAN.did, "/job/claim")
    assert (chain.not_before, chain.expires) == (NOW - 2, NOW + 9)
    assert [at for at, _ in chain.policies] == [1]


def test_signatures_are_asked_for_once_with_a_cache_and_not_at_all_for_broken_chains():
    asked = []

    def ask(delegation):
        asked.append(delegation.cid)
        return True

    assert Chain.of(ALICE.did, [BC], is_signed=ask).fault is not None
    assert asked == []
    assert Chain.of(ALICE.did, [AB, BC], is_signed=ask).fault is None
    assert asked == [AB.cid, BC.cid]
    cache = SignatureCache()
    for _ in range(2):
        assert Chain.of(ALICE.did, [AB, BC], is_signed=cache).fault is None
