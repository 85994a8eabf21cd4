"""The tree of who holds what from whom, held against every chain there is."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.core.authority.grant_reach import State
from antiphon.core.authority.scope import admits, filter_of, kinds_of
from antiphon.core.ucan import MAX_LINKS, Chain, ChainVerdict
from tests.core.authority.test_grant_tree import OWNER, Book
from tests.core.ucan.principals import ALICE, BOB, BRISK, CAROL, DAN, DAY, ERIN, NOW, delegate

PEOPLE = (ALICE, BOB, CAROL, DAN, ERIN)
KINDS = ("render", "render.video", "render.video.h264", "build", "build.wheel", "test")
GLOBS = ("*", "render.*", "render.video", "render.video.*", "build.*", "test")

principals = st.sampled_from(PEOPLE)
times = st.sampled_from([None, NOW - DAY, NOW - 1, NOW, NOW + 1, NOW + DAY])
commands = st.sampled_from(["/", "/job", "/job/claim", "/job/claim/x", "/job/read", "/lock"])


@st.composite
def delegations(draw):
    glob = draw(st.sampled_from(GLOBS))
    other = draw(st.sampled_from(GLOBS))
    pol = draw(
        st.sampled_from(
            [
                [],
                [["like", ".kind", glob]],
                [["or", [["like", ".kind", glob], ["like", ".kind", other]]]],
                [["like", ".kind", glob], ["like", ".kind", other]],
            ]
        )
    )
    start = draw(times)
    return delegate(
        draw(principals),
        draw(principals),
        cmd=draw(commands),
        pol=pol,
        sub=draw(st.sampled_from([OWNER.did] * 4 + [None, None, BOB.did])),
        exp=draw(st.sampled_from([None] * 4) | times),
        nbf=UNSET if start is None or start <= NOW else start,
        nonce=draw(st.binary(min_size=12, max_size=12)),
    )


@st.composite
def books(draw):
    made = draw(st.lists(delegations(), min_size=1, max_size=5))
    # Most begin at the owner, or little would lead anywhere.
    made += [delegate(OWNER, who, cmd="/job", nonce=b"from the top") for who in PEOPLE[1:3]]
    book = Book(*draw(st.permutations(made)))
    for revoked, by in draw(st.lists(st.tuples(st.sampled_from(made), principals), max_size=4)):
        book.revoke(revoked, by)
    return book


def every_chain(book):
    """Every chain from the owner that holds together and uses no delegation twice."""
    links = [link.delegation for link in book.grants.everything()]
    left = [()]
    while left:
        so_far = left.pop()
        end = so_far[-1].payload.aud if so_far else OWNER.did
        for link in links:
            if link.payload.iss != end or link in so_far or len(so_far) >= MAX_LINKS:
                continue
            chain = Chain.of(OWNER.did, (*so_far, link), is_signed=lambda _: True)
            if chain.fault is None:
                yield chain
                left.append(chain.links)


WORTH = {
    ChainVerdict.OK: State.LIVE,
    ChainVerdict.POLICY: State.LIVE,  # what a policy says of an op is not a matter of the grant
    ChainVerdict.NOT_YET: State.NOT_YET,
    ChainVerdict.EXPIRED: State.EXPIRED,
    ChainVerdict.REVOKED: State.REVOKED,
}
BEST = [State.LIVE, State.NOT_YET, State.EXPIRED, State.REVOKED]


def worth_by_every_chain(book):
    """For each delegation: the best that any chain makes of it, for which kinds, until when."""
    found = {link.cid: {} for link in book.grants.everything()}
    for chain in every_chain(book):
        cids = tuple(link.cid for link in chain.links)
        revoked = book.grants.revoked(cids, before=10**9)
        outcome = chain.judge(chain.holder, chain.command, {}, (NOW,), revoked)
        filters = kinds_of([one for _, policy in chain.policies for one in policy.source])
        passing = {kind for kind in KINDS for one in filters if admits(one, kind)}
        worth = WORTH[outcome.verdict]
        if worth is State.NOT_YET and chain.expires is not None and chain.expires < NOW:
            worth = State.EXPIRED  # what has ended comes no more
        kinds, ends = found[cids[-1]].setdefault(worth, (set(), []))
        kinds.update(passing)
        ends.append(chain.expires)
    for cid, by_state in found.items():
        state = next((one for one in BEST if one in by_state), State.VOID)
        yield cid, state, *by_state.get(state, (None, None))


@BRISK
@given(books())
def test_every_delegation_is_worth_what_its_best_chain_is(book):
    tree = book.trace()
    shown = {grant.cid: grant for grant in (*tree.grants(), *tree.void)}
    assert len(shown) == len(book.grants.everything())
    for cid, state, kinds, ends in worth_by_every_chain(book):
        assert shown[cid].state is state
        if kinds is not None:
            assert shown[cid].ends_s == (None if None in ends else max(ends))
            globs = shown[cid].kinds
            assert {k for k in KINDS for glob in globs if admits(filter_of(glob), k)} == kinds


@BRISK
@given(books())
def test_every_delegation_stands_once_below_the_one_who_issued_it(book):
    tree = book.trace()
    seen, whole = [], set()
    left = [(OWNER.did, holder, True) for holder in tree.holders]
    while left:
        giver, holder, is_above_live = left.pop()
        is_live = any(grant.state is State.LIVE for grant in holder.grants)
        assert is_above_live or not is_live, "what is live hangs from what is live"
        assert {(one.issuer, one.audience) for one in holder.grants} == {(giver, holder.did)}
        seen += [grant.cid for grant in holder.grants]
        if holder.children:
            assert holder.did not in whole, "what it handed on stands in one place"
            assert not holder.is_elsewhere
            whole.add(holder.did)
        left += [(holder.did, child, is_live) for child in holder.children]
    void = [one.cid for one in tree.void]
    everything = [link.cid for link in book.grants.everything()]
    assert sorted(seen + void) == sorted(everything)
