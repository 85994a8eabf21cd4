"""What an engine can hold of a node's authority: kinds to read, to work on and to announce."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.authority.scope import (
    EVERYTHING,
    MAX_FILTERS,
    NOTHING,
    Scope,
    admits,
    fewest,
    filter_of,
    kinds_of,
    narrower,
    scope_of,
)
from antiphon.core.ucan import Policy
from tests.core.authority.test_chain_check import DAY_MS, RENDER, Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, Ledger
from tests.core.ucan.principals import holds
from tests.cpu_cost import times_the_cost
from tests.families.polls import WITH_POLLS
from tests.job_scopes import BRANCHES, calls, job_scope, reads, works

NOW_S = T0 // 1000
KINDS = ("render", "render.video", "render.video.hd", "renders.x", "build", "build.wheel")


def scope(court: Court, who=ALICE, now_s: int = NOW_S) -> Scope:
    return scope_of(court.ledger.history.current, BRANCHES, who.did, now_s)


@pytest.mark.parametrize(
    "glob, wanted",
    [
        ("*", ">"),
        ("render.*", "render.>"),
        ("render.video.*", "render.video.>"),
        ("render.video", "render.video"),
        ("render*", None),
        ("ren*der", None),
        ("*.video", None),
        (".*", None),
        (r"render.\*", None),
        ("Render", None),
        ("", None),
    ],
)
def test_globs_become_filters_only_where_subjects_can_say_the_same(glob, wanted):
    assert filter_of(glob) == wanted


@given(st.sampled_from(["*", "render.*", "render.video.*", "render.video", "build"]))
def test_a_filter_admits_what_its_glob_does(glob):
    policy = Policy([["like", ".kind", glob]])
    for kind in KINDS:
        assert admits(filter_of(glob), kind) == holds(policy, {"kind": kind})


leaves = st.one_of(
    st.builds(lambda g: ["like", ".kind", g], st.sampled_from(["*", "render.*", "build", "r*"])),
    st.builds(lambda k: ["==", ".kind", k], st.sampled_from(KINDS)),
    st.builds(lambda k: ["!=", ".kind", k], st.sampled_from(KINDS)),
    st.just(["like", '.["kind"]', "render.*"]),
    st.builds(
        lambda over, where, kind: [over, where, ["==", ".", kind]],
        st.sampled_from(["any", "all"]),
        st.sampled_from([".", ".?", ".??", ".[]", ".[]?", ".kind", ".kind?"]),
        st.sampled_from(KINDS),
    ),
)
statements = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda one: ["not", one], inner),
        st.builds(lambda many: ["and", many], st.lists(inner, max_size=3)),
        st.builds(lambda many: ["or", many], st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@given(st.lists(statements, max_size=3))
def test_no_kind_is_admitted_that_the_policy_refuses(source):
    policy, filters = Policy(source), kinds_of(source)
    for kind in KINDS:
        if any(admits(one, kind) for one in filters):
            assert holds(policy, {"kind": kind})


def test_what_a_policy_says_of_other_things_is_the_logs_to_judge():
    short = ["<", ".lease_ms", 1000]
    assert kinds_of([short]) == (">",)
    assert kinds_of([short, ["like", ".kind", "render.*"]]) == ("render.>",)
    assert kinds_of([["not", ["==", ".", {"kind": "build"}]]]) == ()
    assert kinds_of([["any", ".requires?", ["==", ".", "gpu"]]]) == (">",)


@pytest.mark.parametrize("where", [".", ".?", ".??", ".[]", ".[]?", ".kind?", '.["kind"]', "!"])
def test_whatever_looks_at_everything_looks_at_the_kind(where):
    assert kinds_of([["any", where, ["==", ".", "render.video"]]]) == ()


@pytest.mark.req("M29")
def test_claiming_includes_reading_that_kind_and_no_others():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    held = scope(court)
    assert reads(held) == works(held) == ("render.>",)
    assert held.admits("render.frame", *READ_BY)
    assert not held.admits("build.wheel", *READ_BY)


def test_reading_alone_admits_no_writing():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/read")
    assert scope(court) == job_scope(reads=(">",), until_s=(T0 + DAY_MS) // 1000)


def test_calling_admits_announcements_and_the_taking_back_but_no_reading():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/schedule", pol=RENDER)
    held = scope(court)
    assert (reads(held), works(held), calls(held)) == ((), ("render.>",), ("render.>",))


def test_a_chain_admits_what_all_its_links_do():
    court = Court()
    court.grant(OWNER, BOB, cmd="/job", pol=RENDER)
    court.grant(BOB, ALICE, cmd="/job/claim", pol=[["==", ".kind", "render.frame"]])
    assert reads(scope(court)) == ("render.frame",)
    build = [["==", ".kind", "build"]]
    court.grant(BOB, ALICE, cmd="/job/claim", pol=build, nonce=b"another nonce")
    assert reads(scope(court)) == ("render.frame",)


def test_ends_and_beginnings_and_revocations_count():
    court = Court()
    cid = court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    end_s = (T0 + DAY_MS) // 1000
    assert scope(court).until_s == end_s
    assert reads(scope(court, now_s=end_s))
    assert scope(court, now_s=end_s + 1) == NOTHING
    court.revoke(cid, OWNER)
    assert scope(court) == NOTHING


def test_owner_and_open_meshes_are_not_limited():
    assert scope(Court(), OWNER) == EVERYTHING
    assert (
        scope_of(Ledger(authority="open").history.current, BRANCHES, ALICE.did, NOW_S) == EVERYTHING
    )


def test_the_fewest_filters_say_it():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=[["==", ".kind", "render.frame"]])
    assert reads(scope(court)) == ("render.>",)


@pytest.mark.parametrize(
    "now, before, is_narrower",
    [
        (NOTHING, job_scope(reads=("a",)), True),
        (job_scope(reads=("a",)), NOTHING, False),
        (job_scope(reads=("a.>",)), job_scope(reads=("a.b",)), False),
        (job_scope(reads=("a.b",)), job_scope(reads=("a.>",)), True),
        (EVERYTHING, job_scope(works=("a",), calls=("b.>",)), False),
        (job_scope(reads=(">",)), EVERYTHING, True),
    ],
)
def test_a_scope_is_narrower_if_anything_is_gone(now, before, is_narrower):
    assert narrower(now, before, BRANCHES) is is_narrower


LONG_MS = 2 * DAY_MS
FRAME = [["==", ".kind", "render.frame"]]


def lending(court: Court, **how) -> str:
    """Bob, who holds everything for long, lends something to Alice, who holds `build`."""
    if not court.ledger.history.current.grants.given_to(ALICE.did, before=2**63):
        court.grant(OWNER, ALICE, cmd="/job/claim", pol=[["==", ".kind", "build"]])
        court.grant(OWNER, BOB, cmd="/job", until_ms=LONG_MS)
    nonce = b"nonce of %03d" % court.ledger.history.applied
    return court.grant(BOB, ALICE, **{"cmd": "/job/claim", "nonce": nonce, **how})


def asking(court: Court, *kinds: str) -> Scope:
    return scope_of(court.ledger.history.current, BRANCHES, ALICE.did, NOW_S, kinds)


def test_what_others_lend_counts_for_the_kinds_that_were_asked_for():
    court = Court()
    cid = lending(court, pol=RENDER)
    assert reads(asking(court)) == ("build",)
    assert reads(asking(court, "build", "render.frame")) == ("build", "render.frame")
    assert reads(asking(court, "other")) == ("build",)
    court.revoke(cid, BOB)
    assert reads(asking(court, "build", "render.frame")) == ("build",)


def test_what_others_lend_and_take_back_changes_nothing_for_who_did_not_ask():
    court = Court()
    before = scope(court)
    cid = lending(court)
    lent = scope(court)
    assert before == NOTHING
    assert reads(lent) == ("build",)
    court.revoke(cid, BOB)
    assert scope(court) == lent
    assert asking(court, "build") == lent


def test_what_others_lend_shortens_nothing_that_is_held_anyway():
    court = Court()
    lending(court, until_ms=5_000)
    end_s = (T0 + DAY_MS) // 1000
    assert asking(court, "build").until_s == end_s
    lending(court, pol=FRAME, until_ms=LONG_MS)
    lending(court, pol=FRAME, until_ms=5_000)
    held = asking(court, "build", "render.frame")
    assert (reads(held), held.until_s) == (("build", "render.frame"), end_s)
    assert asking(court, "render.clip").until_s == (T0 + 5_000) // 1000, "whoever asks wants it"


def test_with_nothing_from_the_owner_the_first_lender_counts():
    court = Court()
    court.grant(OWNER, BOB, cmd="/job", until_ms=LONG_MS)
    court.grant(OWNER, CAROL, cmd="/job", pol=FRAME, until_ms=LONG_MS)
    court.grant(BOB, ALICE, cmd="/job/read", pol=RENDER)
    court.grant(BOB, ALICE, cmd="/job/schedule", pol=FRAME)
    cid = court.grant(CAROL, ALICE, cmd="/job/claim", until_ms=5_000)
    held = scope(court)
    assert (reads(held), calls(held)) == (("render.>",), ("render.frame",))
    assert held.until_s == (T0 + DAY_MS) // 1000
    court.revoke(cid, CAROL)
    assert scope(court) == held


def kinds_by_the_hundred(start: int, count: int) -> list[object]:
    return [["or", [["==", ".kind", f"render.k{n}"] for n in range(start, start + count)]]]


def test_more_kinds_than_a_login_can_name_are_none():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=kinds_by_the_hundred(0, MAX_FILTERS))
    court.grant(OWNER, BOB, cmd="/job/claim", pol=kinds_by_the_hundred(0, MAX_FILTERS + 1))
    assert len(reads(scope(court))) == MAX_FILTERS
    assert reads(scope(court, BOB)) == ()


def test_lenders_cannot_make_a_scope_large():
    court = Court()
    court.grant(OWNER, BOB, cmd="/job")
    for part in range(5):
        nonce = b"nonce %08d" % part
        court.grant(BOB, ALICE, cmd="/job", pol=kinds_by_the_hundred(100 * part, 40), nonce=nonce)
    assert 0 < len(reads(scope(court))) <= MAX_FILTERS


@pytest.mark.parametrize("kind", ["render.a.b.c.d{}", "{}.a.b"])
def test_eight_times_the_kinds_take_about_eight_times_as_long(kind):
    def read(size):
        many = [["or", [["==", ".kind", kind.format(f"x{n}")] for n in range(size)]]]
        assert len(kinds_of([*many, *many, ["like", ".kind", "*"]])) == size

    growth = times_the_cost(lambda: read(2_000), of=lambda: read(250))
    assert growth < 32, "64 would be the square of it"


filters = st.lists(
    st.sampled_from([">", "a.>", "a.b.>", "a", "a.b", "a.b.c", "b", "b.>", "ab.c"]),
    min_size=1,
    max_size=6,
)


@given(filters, filters)
def test_filters_are_met_and_reduced_without_gain_or_loss(one, other):
    kinds = ("a", "a.b", "a.b.c", "a.b.c.d", "b", "b.a", "ab", "ab.c", "c")

    def admitted(some):
        return {kind for kind in kinds if any(admits(each, kind) for each in some)}

    assert admitted(fewest(one)) == admitted(one)
    assert not any(fewest([a, b]) == (a,) for a in fewest(one) for b in fewest(one) if a != b)
    both = kinds_of([_saying(one), _saying(other)])
    assert admitted(both) == admitted(one) & admitted(other)


def _saying(some):
    globs = [one if one != ">" else "*" for one in some]
    return ["or", [["like", ".kind", one.replace(".>", ".*")] for one in globs]]


def test_commands_count_by_what_the_branches_say_of_them():
    court = Court()
    for cmd in ("/poll/vote", "/job/read", "/elsewhere"):
        court.grant(OWNER, ALICE, cmd=cmd, pol=RENDER)
    control = court.ledger.history.current
    for branches, commands in (
        (BRANCHES, ["/job/read"]),
        (WITH_POLLS.branches, ["/job/read", "/poll/vote"]),
    ):
        held = scope_of(control, branches, ALICE.did, NOW_S)
        assert held.by_command == dict.fromkeys(commands, ("render.>",))


def test_lent_commands_that_open_nothing_more_neither_shorten_nor_crowd_out():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=FRAME)
    court.grant(OWNER, ALICE, cmd="/job/read", pol=FRAME, nonce=b"nonce of reading")
    court.grant(OWNER, BOB, cmd="/", until_ms=LONG_MS)
    before = asking(court, "render.frame", "build")
    for number, cmd in enumerate(("/job/read", "/job/cancel", "/elsewhere", "/else/where")):
        nonce = b"nonce %08d" % number
        court.grant(BOB, ALICE, cmd=cmd, pol=FRAME, until_ms=5_000, nonce=nonce)
    assert asking(court, "render.frame", "build") == before
    court.grant(BOB, ALICE, cmd="/job/read", pol=[["==", ".kind", "build"]], until_ms=LONG_MS)
    assert reads(asking(court, "render.frame", "build")) == ("build", "render.frame")
