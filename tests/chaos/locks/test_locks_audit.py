"""The judges of `chaos locks`, on histories that are right and on histories that are not."""

import math

import pytest

from chaos.locks import audit
from chaos.locks.audit import Attempt
from simulator.linearizability import Operation, is_linearizable

A, B = ("a", 1), ("b", 1)


def held(who, asked, got, fence, certain, let=math.inf, freed=math.inf):
    return Attempt(who, 1, "k", asked, got, fence, certain, let, freed)


RIGHT = [held("a", 0, 1, "1", 2, 3, 4), held("b", 0, 5, "2", 6, 7, 8)]


def test_what_is_right_passes_every_judge():
    assert audit.violations(RIGHT) == audit.regressions(RIGHT) == []
    assert audit.linearizable(RIGHT, 2.0) == {"k": "yes"}
    assert audit.handovers_ms(RIGHT) == [2_000.0]


@pytest.mark.parametrize(
    "other, judge",
    [
        (held("b", 0, 2, "2", 3, 4, 5), "violations"),
        (held("b", 0, 5, "1", 6, 7, 8), "violations"),
        (held("b", 4.5, 5, "0", 6, 7, 8), "regressions"),
    ],
    ids=["certain at the same time", "the same fence", "a lower fence"],
)
def test_two_holders_one_fence_and_a_fence_that_goes_back_are_seen(other, judge):
    first = held("a", 0, 1, "1", 2.5, 3, 4)
    assert getattr(audit, judge)([first, other])


@pytest.mark.parametrize(
    "history, answer",
    [
        ([Operation(("take", A, "1"), 0, 1), Operation(("take", B, "2"), 2, 3)], "no"),
        ([Operation(("take", A, "1"), 0, 3), Operation(("free", B, ""), 1, 2)], "no"),
        (
            [
                Operation(("take", A, "2"), 0, 1),
                Operation(("free", A, ""), 2, 3),
                Operation(("take", B, "1"), 4, 5),
            ],
            "no",
        ),
        (
            [
                Operation(("take", A, "1"), 0, 1),
                Operation(("end", A, ""), 5),
                Operation(("take", B, "2"), 2, 4),
            ],
            "no",
        ),
        (
            [
                Operation(("take", A, "1"), 0, 1),
                Operation(("end", A, ""), 3),
                Operation(("take", B, "2"), 2, 4),
            ],
            "yes",
        ),
        ([Operation(("take", A, ""), 0), Operation(("take", B, "2"), 1, 2)], "yes"),
        ([Operation(("take", B, "2"), 0, 3), Operation(("take", A, "1"), 0, 1)], "no"),
        ([], "yes"),
    ],
)
def test_known_histories_of_a_lock(history, answer):
    assert is_linearizable(history, audit.model, ("", None)) == answer


def register(state, what):
    verb, value = what
    if verb == "write":
        return value
    return state if state == value else None


@pytest.mark.parametrize(
    "reads, answer",
    [((0, 1), "yes"), ((1, 0), "no"), ((1, 1), "yes"), ((0, 0), "yes"), ((2, 1), "no")],
)
def test_a_register_that_is_read_twice_during_a_write(reads, answer):
    history = [
        Operation(("write", 1), 0, 10),
        Operation(("read", reads[0]), 1, 2),
        Operation(("read", reads[1]), 3, 4),
    ]
    assert is_linearizable(history, register, 0) == answer


def test_a_search_that_is_too_long_says_so():
    history = [Operation(("write", number), 0, 100) for number in range(12)]
    history.append(Operation(("read", -1), 0, 100))
    assert is_linearizable(history, register, 0, most_steps=50) == "unknown"
