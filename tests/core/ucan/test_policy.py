"""What must be true of the arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ucan import Policy
from antiphon.core.ucan.budget import MAX_STEPS, Budget, Exhausted
from antiphon.core.ucan.glob import Glob
from antiphon.core.ucan.policy import MAX_DEPTH, MAX_STATEMENTS
from antiphon.errors import Malformed
from tests.core.ucan.principals import BRISK, holds
from tests.cpu_cost import times_the_cost

DATA = {
    "kind": "render.frame",
    "n": 5,
    "x": 2.5,
    "yes": True,
    "null": None,
    "raw": b"\x01\x02",
    "list": [1, 2, 3],
    "empty": [],
    "map": {"a": {"v": 1}, "b": {"v": 2}},
    "big": 2**63,
}

U = ["==", ".list[9]", 1]  # undecided: there is no tenth element
T = ["==", ".n", 5]
F = ["==", ".n", 6]

HOLDS = [
    ["==", ".n", 5],
    ["==", ".n", 5.0],
    ["==", ".x", 2.5],
    ["!=", ".n", "5"],
    ["!=", ".n", True],
    ["!=", ".yes", 1],
    ["!=", ".yes", 1.0],
    ["==", ".yes", True],
    ["==", ".null", None],
    ["==", ".missing", None],
    ["!=", ".missing", 1],
    ["==", ".raw", b"\x01\x02"],
    ["!=", ".raw", "\x01\x02"],
    ["==", ".list", [1, 2.0, 3]],
    ["!=", ".list", [1, 2]],
    ["!=", ".list", [1, 2, True]],
    ["==", ".map", {"b": {"v": 2.0}, "a": {"v": 1}}],
    ["!=", ".map", {"a": {"v": 1}}],
    ["!=", ".map", {"a": {"v": 1}, "c": {"v": 2}}],
    ["!=", ".map", []],
    ["==", ".big", 2**63],
    ["!=", ".big", float(2**63 + 2048)],
    ["<", ".n", 5.5],
    ["<=", ".n", 5.0],
    [">", ".x", 2],
    [">=", ".x", 2.5],
    [">", ".big", 2**63 - 1],
    ["not", ["<", ".kind", 1]],
    ["not", ["<", ".yes", 5]],
    ["not", ["like", ".n", "*"]],
    ["not", ["any", ".n", T]],
    ["not", ["all", ".kind", T]],
    ["like", ".kind", "render.*"],
    ["and", []],
    ["or", []],
    ["all", ".empty", F],
    ["all", ".list", [">", ".", 0]],
    ["any", ".list", ["==", ".", 3]],
    ["all", ".map", [">", ".v", 0]],
    ["any", ".map", ["==", ".v", 2]],
    ["any", ".map[]", ["==", ".v", 2]],
    ["all", ".[]", ["!=", ".", "nobody"]],
    ["or", [U, T]],
    ["or", [T, U]],
    ["not", ["and", [U, F]]],
    ["not", ["and", [F, U]]],
    ["any", ".list", ["or", [["==", ".[0]", 1], ["==", ".", 2]]]],
]

FAILS = [
    F,
    ["!=", ".n", 5],
    ["!=", ".n", 5.0],
    ["==", ".missing", 1],
    ["<", ".kind", 5],
    [">", ".missing", 0],
    ["<", ".missing", 0],
    ["<", ".yes", 5],
    ["like", ".n", "*"],
    ["like", ".missing", "*"],
    ["like", ".raw", "*"],
    ["like", ".kind", "render"],
    ["any", ".list", ["==", ".", 4]],
    ["all", ".list", ["<", ".", 3]],
    ["any", ".n", T],
    ["all", ".missing", T],
    ["or", [F, F]],
    ["not", T],
    # Undecided satisfies nothing, and neither does its negation.
    U,
    ["not", U],
    ["not", ["not", U]],
    ["!=", ".list[9]", 1],
    ["and", [T, U]],
    ["not", ["and", [T, U]]],
    ["or", [F, U]],
    ["not", ["or", [F, U]]],
    ["any", ".empty", T],
    ["not", ["any", ".empty", T]],
    ["all", ".list", ["not", ["==", ".x", 1]]],
    ["not", ["all", ".list", ["==", ".x", 1]]],
    ["any", ".list[9]", T],
]


@pytest.mark.parametrize("statement", HOLDS, ids=str)
def test_it_holds(statement):
    assert holds(Policy([statement]), DATA)


@pytest.mark.parametrize("statement", FAILS, ids=str)
def test_it_does_not_hold(statement):
    assert not holds(Policy([statement]), DATA)


def test_a_policy_is_the_conjunction_of_its_statements():
    assert holds(Policy([]), DATA)
    assert holds(Policy([T, T]), DATA)
    assert not holds(Policy([T, F]), DATA)
    assert not holds(Policy([T, U]), DATA)


@pytest.mark.parametrize(
    "source",
    [
        None,
        {},
        "==",
        [None],
        [[]],
        [["=="]],
        [["==", ".a"]],
        [["==", ".a", 1, 2]],
        [["==", 1, 1]],
        [["==", "a", 1]],
        [["===", ".a", 1]],
        [["<", ".a", "1"]],
        [["<", ".a", True]],
        [["<", ".a", None]],
        [["like", ".a", 1]],
        [["like", ".a", b"*"]],
        [["not", [["==", ".a", 1]]]],
        [["not", ["==", ".a", 1], 2]],
        [["and", ["==", ".a", 1]]],
        [["and", ["==", ".a", 1], ["==", ".a", 1]]],
        [["or", {}]],
        [["all", ".a", [["==", ".", 1]]]],
        [["any", ".a"]],
        [[["==", ".a", 1]]],
    ],
    ids=str,
)
def test_other_data_is_no_policy(source):
    with pytest.raises(Malformed):
        Policy(source)


def nested(depth, inner):
    for _ in range(depth):
        inner = ["not", inner]
    return inner


def test_depth_and_size_are_bounded():
    Policy([nested(MAX_DEPTH - 1, T)])
    with pytest.raises(Malformed):
        Policy([nested(MAX_DEPTH, T)])
    with pytest.raises(Malformed):
        Policy([nested(100_000, T)])
    Policy([T] * MAX_STATEMENTS)
    with pytest.raises(Malformed):
        Policy([T] * (MAX_STATEMENTS + 1))


# --- globs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, text, answer",
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "anything\nat all", True),
        ("**", "", True),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("*c", "abcc", True),
        ("a*c", "ac", True),
        ("a*c", "a", False),
        ("ab*bc", "abc", False),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "aXbYcZ", False),
        ("a*a", "a", False),
        ("*ab*ab*", "abab", True),
        ("*ab*ab*", "aab", False),
        (r"a\*c", "a*c", True),
        (r"a\*c", "abc", False),
        (r"a\b", r"a\b", True),
        ("a\\", "a\\", True),
        ("\\\\*", "\\*", True),
        ("\\\\*", "\\x", False),
        ("a?c", "abc", False),
        ("a.c", "abc", False),
        ("[a]", "a", False),
        ("render.*", "render.", True),
        ("render.*", "renderx", False),
        ("é*", "éa", True),
    ],
)
def test_globs(pattern, text, answer):
    assert Glob(pattern).matches(text) is answer


@BRISK
@given(st.text("ab*\\", max_size=8), st.text("ab*\\", max_size=10))
def test_globs_agree_with_the_plain_definition(pattern, text):
    def fits(pattern, text):
        if not pattern:
            return not text
        if pattern.startswith("\\*"):
            return text.startswith("*") and fits(pattern[2:], text[1:])
        if pattern[0] == "*":
            return any(fits(pattern[1:], text[i:]) for i in range(len(text) + 1))
        return text[:1] == pattern[0] and fits(pattern[1:], text[1:])

    assert Glob(pattern).matches(text) == fits(pattern, text)


# --- cost ------------------------------------------------------------------------------------

HOSTILE = {
    "nested quantifiers": (
        ["all", ".l", ["all", ".", ["all", ".", ["all", ".", ["==", ".", 1]]]]],
        {"l": [[[[1] * 30] * 30] * 30] * 30},
    ),
    "a long list": (["all", ".l", ["!=", ".", 1]], {"l": [0] * 100_000}),
    "a long literal, often": (
        ["any", ".l", ["==", ".", ["a"] * 2000 + ["b"]]],
        {"l": [["a"] * 2001] * 1000},
    ),
    "a long text, often": (
        ["any", ".l", ["==", ".", "a" * 12_000 + "b"]],
        {"l": ["a" * 12_001] * 2000},
    ),
    "a glob that almost matches": (
        ["any", ".l", ["like", ".", "*" + "a" * 600 + "b" + "a" * 599 + "*"]],
        {"l": ["a" * 2499] * 100},
    ),
    "a glob of many pieces": (["any", ".l", ["like", ".", "*a" * 2000]], {"l": ["a" * 999] * 500}),
    "a huge text": (["like", ".l", "*b*"], {"l": "a" * 10_000_000}),
    "slices of slices": (["==", ".l" + "[0:-1]" * 30, 1], {"l": [0] * 100_000}),
    "many values, sorted": (
        ["==", ".l[]", 1],
        {"l": {str(number): number for number in range(20_000)}},
    ),
    "wide and deep": (
        ["any", ".l", ["or", [["any", ".", ["==", ".", n]] for n in range(1, 60)]]],
        {"l": [[0] * 50] * 50},
    ),
}


@pytest.mark.parametrize("statement, arguments", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_policy_costs_no_more_than_the_budget(statement, arguments):
    """Against the plainest way to spend all of it."""
    hostile = Policy([statement])
    plain, all_steps = Policy([["all", ".l", ["==", ".", 1]]]), {"l": [1] * MAX_STEPS}
    assert not holds(hostile, arguments)
    cost = times_the_cost(
        lambda: holds(hostile, arguments),
        of=lambda: holds(plain, all_steps),
        rounds=20,
    )
    assert cost < 4


def test_steps_are_counted_and_not_measured():
    policy = Policy([["all", ".l", ["==", ".", 1]]])
    assert holds(policy, {"l": [1] * 900})
    assert not holds(policy, {"l": [1] * 1001})
    with pytest.raises(Exhausted):
        policy.judge({"l": [1] * 1001}, Budget())
    spent = Budget()
    policy.judge({"l": [1] * 900}, spent)
    assert MAX_STEPS - spent.left == 901  # the quantifier, and one for each element


def test_an_exhausted_policy_is_not_satisfied_by_being_negated():
    assert not holds(Policy([["not", ["all", ".l", ["==", ".", 1]]]]), {"l": [1] * 5000})


# --- any policy, any data --------------------------------------------------------------------


def untupled(value):
    return [untupled(each) for each in value] if isinstance(value, (tuple, list)) else value


SELECTORS = st.sampled_from(
    [".", ".a", ".a?", ".b[0]", ".b[-1]?", ".b[0:1]", ".[]", ".a[]?", '.["b"]', ".a.b", ".[0]"]
)
LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text("ab*", max_size=3)
) | st.binary(max_size=2)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=8,
)
NUMBERS = st.integers(-3, 3) | st.floats(allow_nan=False)
STATEMENTS = st.recursive(
    st.tuples(st.sampled_from(["==", "!="]), SELECTORS, VALUES)
    | st.tuples(st.sampled_from(["<", "<=", ">", ">="]), SELECTORS, NUMBERS)
    | st.tuples(st.just("like"), SELECTORS, st.text("ab*\\", max_size=4)),
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, max_size=3))
        | st.tuples(st.sampled_from(["all", "any"]), SELECTORS, inner)
    ),
    max_leaves=6,
).map(untupled)


@BRISK
@given(STATEMENTS, VALUES)
def test_any_statement_is_judged_and_never_together_with_its_negation(statement, value):
    answer = Policy([statement]).statements[0].judge(value, Budget())
    assert answer in {True, False, None}
    if answer is not False:
        assert not holds(Policy([["not", statement]]), value)
    assert holds(Policy([["not", ["not", statement]]]), value) is (answer is True)


@BRISK
@given(STATEMENTS, st.dictionaries(st.sampled_from("ab"), VALUES))
def test_a_policy_says_which_fields_it_depends_on(statement, arguments):
    policy = Policy([statement])
    if policy.reads is not None:
        read = {name: value for name, value in arguments.items() if name in policy.reads}
        assert holds(policy, read) is holds(policy, arguments)


@pytest.mark.parametrize(
    "statement, reads",
    [
        (["like", ".kind", "render.*"], {"kind"}),
        (["not", ["or", [["==", ".a.b", 1], ["==", '.["c d"]', 1]]]], {"a", "c d"}),
        (["==", ".[0]", 1], None),
        (["and", [["==", ".a", 1], ["==", ".", {}]]], None),
    ],
)
def test_what_policies_read(statement, reads):
    assert Policy([statement]).reads == reads


@BRISK
@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4), max_leaves=12), VALUES)
def test_any_data_is_a_policy_or_malformed(source, value):
    try:
        policy = Policy(source)
    except Malformed:
        return
    assert holds(policy, value) in {True, False}


@BRISK
@given(STATEMENTS, VALUES)
def test_what_is_accepted_the_two_valued_reading_accepts(statement, value):
    """The specification's words: an unresolved selector makes its statement false."""
    if holds(Policy([statement]), value):
        assert literally(statement, value)


def literally(statement, value):
    match statement:
        case ["not", inner]:
            return not literally(inner, value)
        case ["and", inner]:
            return all(literally(each, value) for each in inner)
        case ["or", []]:
            return True
        case ["or", inner]:
            return any(literally(each, value) for each in inner)
        case ["all" | "any" as name, selector, inner]:
            found = Policy([["==", selector, None]]).statements[0].selector.select(value, Budget())
            if not isinstance(found, (dict, list)):
                return False
            answers = [
                literally(inner, each)
                for each in (found.values() if isinstance(found, dict) else found)
            ]
            return all(answers) if name == "all" else (any(answers) or not answers)
        case _:
            return Policy([statement]).statements[0].judge(value, Budget()) is True
