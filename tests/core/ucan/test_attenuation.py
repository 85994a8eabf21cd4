"""A child never has more than its parent, whatever it says."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.core.ucan import Chain, ChainVerdict, Policy, covers
from tests.core.ucan.principals import ALICE, BOB, BRISK, CAROL, DAN, NOW, claims, delegate, holds

PEOPLE = (ALICE, BOB, CAROL, DAN)
COMMANDS = st.sampled_from(["/", "/job", "/job/claim", "/job/claim/now", "/jobs", "/artifact"])
POLICIES = st.lists(
    st.sampled_from(
        [
            ["like", ".kind", "render.*"],
            ["==", ".kind", "render.frame"],
            ["<", ".frames", 10],
            ["not", ["==", ".kind", "train"]],
            ["any", ".tags", ["==", ".", "gpu"]],
        ]
    ),
    max_size=2,
)
TIMES = st.integers(NOW - 3, NOW + 3)
LINK = st.fixed_dictionaries(
    {
        "sub": st.sampled_from([ALICE.did, None, UNSET, BOB.did]),
        "cmd": COMMANDS,
        "pol": POLICIES,
        "exp": st.none() | TIMES,
        "nbf": st.just(UNSET) | TIMES,
    }
)
INVOCATIONS = st.tuples(
    COMMANDS,
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["render.frame", "render.x", "train"]),
            "frames": st.integers(8, 12),
            "tags": st.lists(st.sampled_from(["gpu", "cpu"]), max_size=2),
        }
    ),
    st.lists(TIMES, min_size=1, max_size=2),
)


def chain_of(links):
    made = [
        delegate(iss, aud, **link)
        for iss, aud, link in zip(PEOPLE[: len(links)], PEOPLE[1:], links, strict=False)
    ]
    return Chain.of(ALICE.did, made, is_signed=lambda _: True)


@BRISK
@given(st.lists(LINK, min_size=1, max_size=3), INVOCATIONS)
def test_a_longer_chain_never_admits_what_its_parent_does_not(links, invocation):
    command, arguments, times = invocation
    whole = chain_of(links)
    if not whole.judge(whole.holder, command, arguments, times).ok:
        return
    for length in range(1, len(links)):
        shorter = chain_of(links[:length])
        assert shorter.judge(shorter.holder, command, arguments, times).ok


@BRISK
@given(st.lists(LINK, min_size=1, max_size=3), INVOCATIONS)
def test_what_is_admitted_every_link_allows_by_itself(links, invocation):
    command, arguments, times = invocation
    chain = chain_of(links)
    if not chain.judge(chain.holder, command, arguments, times).ok:
        return
    assert links[0]["sub"] == ALICE.did
    for link in links:
        assert link["sub"] in {ALICE.did, None, UNSET}
        assert covers(link["cmd"], command)
        assert holds(Policy(link["pol"]), arguments)
        assert all(link["nbf"] is UNSET or time >= link["nbf"] for time in times)
        assert all(link["exp"] is None or time <= link["exp"] for time in times)


@BRISK
@given(COMMANDS, COMMANDS, COMMANDS)
def test_a_child_that_names_a_wider_command_is_refused_whatever_is_asked(parent, child, asked):
    links = [claims(ALICE, BOB, cmd=parent), claims(BOB, CAROL, cmd=child)]
    chain = chain_of([{"cmd": payload.cmd} for payload in links])
    outcome = chain.judge(CAROL.did, asked, {}, [NOW])
    if not covers(parent, child):
        assert outcome.verdict is ChainVerdict.COMMAND
    assert outcome.ok is (covers(parent, child) and covers(child, asked))
