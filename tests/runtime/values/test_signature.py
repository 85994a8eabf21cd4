"""A call is bound like a Python call, encoded by annotations, and has one text."""

from __future__ import annotations

import functools
from datetime import date
from typing import TYPE_CHECKING

import pytest

from antiphon import JobContext
from antiphon.runtime.values.signature import CallSignature, plain_call

if TYPE_CHECKING:
    from decimal import Decimal


def book(ctx, room: Room, /, day: date, *guests: str, late: bool = False, **notes: int) -> Room:
    return room


async def unseen(amount: Decimal) -> None: ...


Room = int  # defined below where it is used, as classes often are


def signature(function=book):
    return CallSignature(function, name="hotel.book")


@pytest.mark.parametrize(
    "args, kwargs, said",
    [
        ((1,), {}, "missing a required argument: 'day'"),
        ((), {"room": 1}, "room"),
        ((1, "2027-01-01"), {}, "argument 'day' of hotel.book: a str would arrive as a date"),
        ((1, date(2027, 1, 1), "ann", 2), {}, r"argument '\*guests' of hotel.book: expected str"),
        ((1, date(2027, 1, 1)), {"late": 1}, "argument 'late' of hotel.book: expected bool"),
        ((1, date(2027, 1, 1)), {"dogs": "1"}, "argument 'dogs' of hotel.book: expected int"),
        ((True, date(2027, 1, 1)), {}, "argument 'room' of hotel.book: expected int, got True"),
    ],
)
def test_a_call_that_does_not_fit_says_which_argument(args, kwargs, said):
    with pytest.raises(TypeError, match=said):
        signature().encode(args, kwargs)


def test_extra_arguments_are_refused_with_the_signature():
    with pytest.raises(TypeError, match=r"hotel.book\(a: 'int'\) .*too many positional"):
        CallSignature(_one, name="hotel.book").encode((1, 2), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        CallSignature(_one, name="hotel.book").encode((1,), {"b": 2})


def _stay(nights: int, day: date) -> date:
    return day


def _one(a: int) -> int:
    return a


def test_a_call_arrives_as_it_was_made():
    call = (1, date(2027, 1, 1), "ann", "bob"), {"late": True, "dogs": 2, "cats": 1}
    args, kwargs = signature().decode(signature().encode(*call))
    assert (args, kwargs) == call
    assert type(args[1]) is date


def test_by_place_and_by_name_is_the_same_call():
    def add(a: int, b: int = 1) -> int:
        return a + b

    texts = {
        signature(add).encode(args, kwargs)
        for args, kwargs in [((1, 2), {}), ((1,), {"b": 2}), ((), {"b": 2, "a": 1})]
    }
    assert texts == {plain_call((1, 2), {})}


def test_an_annotation_that_is_never_defined_is_refused_at_the_first_call():
    late = signature(unseen)
    with pytest.raises(TypeError, match="'Decimal' is not defined; define the name at the top"):
        late.encode((1,), {})


def test_a_partial_and_a_callable_object_have_the_annotations_of_what_they_call():
    class Shop:
        def __call__(self, day: date) -> date:
            return day

    for function in (functools.partial(_stay, 3), Shop()):
        with pytest.raises(TypeError, match="argument 'day'"):
            signature(function).encode(("x",), {})


def test_what_is_not_a_call_is_a_type_error():
    for text in ("", "[]", '{"args":[]}', '{"args":[],"kwargs":{},"more":1}', "[" * 10_000):
        with pytest.raises(TypeError, match="a call is written as"):
            signature().decode(text)


def test_a_context_under_another_name_is_refused_with_the_name_to_use():
    def handler(job: JobContext, path: str) -> int: ...

    with pytest.raises(TypeError, match=r"parameter 'job' of a\.b: .* is called ctx"):
        CallSignature(handler, name="a.b")
