"""The part of JSON Schema that a question may use, and what matches it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.proof.answer import (
    MAX_ANSWER,
    MAX_NESTING,
    Question,
    answer_problem,
    question_problem,
)
from antiphon.core.proof.answer_schema import MAX_PARTS, schema_problem, value_problem
from tests.core.strategies import THOROUGH

TEXT = {"type": "string", "minLength": 2, "maxLength": 4}
WHOLE = {"type": "integer", "minimum": 1, "maximum": 3}
LIST = {"type": "array", "items": WHOLE, "minItems": 1, "maxItems": 2}
MIXED = {"enum": ["a", 1, None, True]}
FORM = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "schema, right, wrong",
    [
        ({}, [None, 1, "a", [], {}], []),
        (TEXT, ["ab", "abcd"], ["a", "abcde", 12, None, ["ab"]]),
        (WHOLE, [1, 3], [0, 4, True, 1.5, "1"]),
        ({"type": "number", "maximum": 2.5}, [2, 2.5, -1], [2.75, False, "2"]),
        ({"type": "boolean"}, [True, False], [0, 1, "true"]),
        ({"type": "null"}, [None], [0, ""]),
        (MIXED, ["a", 1, None, True], ["b", 0, False, [1]]),
        ({"enum": [1]}, [1], [True]),
        (LIST, [[1], [1, 2]], [[], [1, 2, 3], [4], [True], 1]),
        (FORM, [{"n": 1}, {"n": 1, "why": "so"}], [{}, {"n": "1"}, {"n": 1, "x": 1}, []]),
        ({"properties": {"n": WHOLE}}, [{"m": 9}, 7], [{"n": 9}]),
    ],
)
def test_it_decides_as_json_schema_does(schema, right, wrong):
    assert schema_problem(schema) == ""
    assert [value_problem(schema, one) for one in right] == [""] * len(right)
    assert all(value_problem(schema, one) for one in wrong)


@pytest.mark.parametrize(
    "schema, word",
    [
        ([], "not an object"),
        ({"type": "text"}, "type"),
        *(({"type": odd}, "type") for odd in (["string"], {"string": 1}, [], {}, 1, None, True)),
        ({"properties": {"n": {"type": ["string"]}}}, ".n has a type"),
        ({"items": {"type": {}}}, "the items of the schema has a type"),
        ({"$ref": "#"}, "$ref"),
        ({"pattern": "(a+)+"}, "pattern"),
        ({"enum": []}, "enum"),
        ({"enum": [[1]]}, "enum"),
        ({"minimum": "1"}, "minimum"),
        ({"maxLength": 1.5}, "maxLength"),
        ({"required": "n"}, "required"),
        ({"required": [1]}, "required"),
        ({"properties": {"n": 1}}, ".n"),
        ({"additionalProperties": {}}, "additionalProperties"),
        ({"properties": {str(n): {} for n in range(MAX_PARTS)}}, "too many"),
    ],
)
def test_what_a_question_cannot_use_is_named(schema, word):
    assert word in schema_problem(schema)


def test_a_deep_schema_or_answer_is_no_crash():
    assert schema_problem(_nested(20))
    assert question_problem(Question(text="?", schema="[" * 5_000))
    assert answer_problem(Question(text="?"), "[" * 5_000)
    assert answer_problem(Question(text="?"), '"' + "x" * 20_000 + '"')


def _nested(depth):
    return {"items": _nested(depth - 1)} if depth else {}


@pytest.mark.parametrize("opening, closing", ["[]", ('{"a":', "}")])
def test_whether_a_nested_answer_counts_does_not_depend_on_the_readers_stack(opening, closing):
    question = Question(text="what?", schema="{}")

    def said(depth):
        return answer_problem(question, opening * depth + "1" + closing * depth)

    assert (said(MAX_NESTING), said(MAX_NESTING + 1)) == ("", "the answer is not JSON")
    assert said(MAX_ANSWER // (len(opening) + 1) - 1) == "the answer is not JSON"
    quoted = '["\\"' + "[" * 100 + '", "\\\\"]'
    assert answer_problem(question, quoted) == "", "brackets in a text open nothing"


_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
)
_WORDS = (
    *("$schema", "title", "description", "default", "type", "enum", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "items", "required", "properties"),
    *("additionalProperties", "pattern"),
)
_TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")
_VALUES = st.recursive(
    st.one_of(_PLAIN, st.sampled_from(_TYPES)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4)
    ),
    max_leaves=8,
)


@THOROUGH
@given(schema=_VALUES, value=_VALUES)
def test_any_json_is_a_schema_or_none_but_raises_nothing(schema, value):
    question = Question(text="?", schema=json.dumps(schema))
    problem = question_problem(question)
    assert isinstance(problem, str)
    if not problem:
        assert isinstance(answer_problem(question, json.dumps(value)), str)
