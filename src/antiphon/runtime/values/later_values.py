"""Arguments that are results of other jobs: where they belong in a call, and putting them there.

A call's text has `null` where such a value will be. Its place is a path such as `/args/0`,
`/kwargs/page` or, inside a list, `/args/0/3`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from antiphon.decoding import UNREADABLE
from antiphon.runtime.values.signature import CallSignature, read_call, written
from antiphon.runtime.values.value_codec import ValueCodec

_PLACE: Final = re.compile(
    r"/(?:args/(?P<at>\d{1,6})|kwargs/(?P<name>[^/]+))(?:/(?P<item>\d{1,6}))?"
)
_items: Final = msgspec.json.Decoder(list[Raw]).decode


class LaterValue(Struct, frozen=True):
    """Stands for the result of a job while a call is written."""

    kind: str
    job_id: str


def encode_call(
    signature: CallSignature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[bytes, dict[str, LaterValue]]:
    """A call's text and what belongs where in it; `TypeError` if the function cannot be called so.

    An argument may be a `LaterValue`, or a list of nothing else.
    """
    bound = signature.converted(args, kwargs, _encoded)
    places: dict[str, LaterValue] = {}

    def one(place: str, value: Any) -> Raw:
        if isinstance(value, Raw):
            return value
        if isinstance(value, LaterValue):
            places[place] = value
            return Raw(b"null")
        places.update((f"{place}/{number}", each) for number, each in enumerate(value))
        return Raw(msgspec.json.encode([None] * len(value)))

    positional = [one(f"/args/{at}", value) for at, value in enumerate(bound.args)]
    named = {name: one(f"/kwargs/{name}", value) for name, value in bound.kwargs.items()}
    return written(positional, named), places


def _encoded(codec: ValueCodec, value: Any) -> Any:
    if isinstance(value, LaterValue):
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(one, LaterValue) for one in value):
        if not all(isinstance(one, LaterValue) for one in value):
            raise TypeError("a list with results of other jobs may contain nothing else")
        return value
    return Raw(codec.encode(value))


def is_place(name: object) -> bool:
    """Whether an input's name is a place in a call."""
    return isinstance(name, str) and _PLACE.fullmatch(name) is not None


def fill(text: str | bytes, values: Mapping[str, str | bytes]) -> bytes:
    """A call's text with each value, itself a JSON text, in its place; `TypeError` if it has none.

    A value is checked with the argument that it becomes.
    """
    call = read_call(text)
    lists: dict[tuple[str, int | str], list[Raw]] = {}
    for name, value in values.items():
        place = _PLACE.fullmatch(name)
        if place is None:
            raise TypeError(f"{name!r} is not a place in a call")
        raw = Raw(value.encode() if isinstance(value, str) else value)
        target: Any = call.args if place["at"] is not None else call.kwargs
        key: int | str = int(place["at"]) if place["at"] is not None else place["name"]
        try:
            if place["item"] is None:
                target[key] = raw
            else:
                which = ("args" if place["at"] is not None else "kwargs", key)
                if which not in lists:
                    lists[which] = _items(target[key])
                lists[which][int(place["item"])] = raw
        except (*UNREADABLE, IndexError, KeyError):
            raise TypeError(f"the call has no place {name}") from None
    for (part, key), items in lists.items():
        target = call.args if part == "args" else call.kwargs
        target[key] = Raw(msgspec.json.encode(items))
    return written(call.args, call.kwargs)
