"""What is encoded is decoded as exactly the same value, and equal values have one text."""

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.runtime.values.signature import codec_for
from tests.examples import examples
from tests.runtime.values.typed_values import TYPES, Color, Item, Line, described

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=examples(60), print_blob=True)
@given(data=st.data())
def test_every_type_arrives_as_it_was(name, data):
    annotation, values = TYPES[name]
    value = data.draw(values)
    codec = codec_for(annotation)
    text = codec.encode(value)
    found = codec.decode(text)
    assert described(found) == described(value)
    assert codec.encode(found) == text


@pytest.mark.parametrize("fold, offset", [(0, "+02:00"), (1, "+01:00")])
def test_the_hour_that_a_zone_has_twice_arrives_with_its_offset(fold, offset):
    moment = datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=BERLIN)
    codec = codec_for(datetime)
    assert codec.encode(moment).decode() == f'"2026-10-25T02:30:00{offset}"'
    assert codec.decode(codec.encode(moment)).utcoffset() == timedelta(hours=2 - fold)


def test_an_int_may_stand_for_a_float_and_arrives_as_one():
    @dataclass
    class Square:
        side: float

    for annotation, given_, meant in (
        (float, 3, 3.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (set[float], {1}, {1.0}),
        (dict[float, int], {1: 2}, {1.0: 2}),
        (Square, Square(2), Square(2.0)),
    ):
        codec = codec_for(annotation)
        assert described(codec.decode(codec.encode(given_))) == described(meant)


class Search(pydantic.BaseModel):
    terms: list[set[int]]
    by_name: dict[str, frozenset[int]] = {}


@dataclass(frozen=True)
class Node:
    links: frozenset[int]

    def __hash__(self):
        return 0


class Tint(enum.Enum):
    PALE = "pale"
    DARK = "dark"

    def __hash__(self):
        return 0


@dataclass(frozen=True, slots=True)
class Basket:
    colors: set[Tint]


@attrs.define
class Parcels:
    colors: set[Tint]


class Stock(msgspec.Struct, frozen=True, rename="upper"):
    colors: set[Tint]


def two_orders(members):
    """Equal sets of members that all have the same hash: iterated as they were added."""
    first, *others = members
    return {first, *others}, {*others, first}


# Two sets of the same numbers that Python iterates in different orders.
UP, DOWN = {0, 8}, {8, 0}


@pytest.mark.parametrize(
    "annotation, one, other",
    [
        (set[int], UP, DOWN),
        (dict[int, set[int]], {1: UP, 2: UP}, {2: DOWN, 1: DOWN}),
        (dict[str, int], {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (
            Search,
            Search(terms=[UP], by_name={"x": frozenset(UP)}),
            Search(terms=[DOWN], by_name={"x": frozenset(DOWN)}),
        ),
        (list[Node], [Node(frozenset(UP))], [Node(frozenset(DOWN))]),
        (set[Tint], *two_orders(Tint)),
        (set[Node], *two_orders([Node(frozenset(UP)), Node(frozenset())])),
        (dict[str, set[int | None]], *({"a": one} for one in ({0, 8, None}, {8, 0, None}))),
        (Basket, *map(Basket, two_orders(Tint))),
        (Parcels, *map(Parcels, two_orders(Tint))),
        (Stock, *map(Stock, two_orders(Tint))),
        (float, 1, 1.0),
        (list[float | None], [2, None], [2.0, None]),
    ],
)
def test_equal_values_have_one_text(annotation, one, other):
    assert list(UP) != list(DOWN)
    codec = codec_for(annotation)
    assert one == other
    assert codec.encode(one) == codec.encode(other)


@pytest.mark.parametrize(
    "annotation, value, text",
    [
        (float, 1.0, "1.0"),
        (float, -0.0, "-0.0"),
        (int, 2**80, "1208925819614629174706176"),
        (Decimal, Decimal("1.10"), '"1.10"'),
        (set[str], {"b", "a"}, '["a","b"]'),
        (dict[Color, Path], {Color.RED: Path("x/y")}, '{"red":"x/y"}'),
        (bytes, b"\0\xff", '"AP8="'),
        (Item, Item("tea"), '{"count":1,"name":"tea"}'),
        (timedelta, timedelta(days=1, seconds=2), '"P1DT2S"'),
    ],
)
def test_the_text_is_json_that_another_language_can_write(annotation, value, text):
    assert codec_for(annotation).encode(value).decode() == text


def test_a_model_is_written_by_its_aliases():
    line = Line(sku="0" * 32, price=1, orderedAt="2027-01-01T00:00:00Z")
    assert b'"orderedAt":"2027-01-01T00:00:00Z"' in codec_for(Line).encode(line)
