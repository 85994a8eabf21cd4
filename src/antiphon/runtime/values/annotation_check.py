"""Whether values of an annotation can be carried at all.

Loaded with the first task that has annotations: msgspec's inspection is slow to import.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from antiphon.runtime.values import custom_types

NO_KEYS: Final = (
    types.UnionType,
    types.BoolType,
    types.NoneType,
    types.CollectionType,
    types.TupleType,
    types.DictType,
    types.StructType,
    types.DataclassType,
    types.TypedDictType,
    types.NamedTupleType,
)
"""What the keys of a dict cannot be."""


def check_annotation(annotation: Any) -> bool:
    """Whether floats are expected anywhere in it, where integers may be given.

    `TypeError` for what could not be told apart when it is read, or not be read at all.
    """
    try:
        found = types.type_info(annotation)
        msgspec.json.Decoder(annotation, dec_hook=custom_types.decode)
    except TypeError as problem:
        raise TypeError(f"it cannot be carried: {problem}") from None
    inside = list(_all(found, set()))
    for one in inside:
        _check(one)
    return any(isinstance(one, types.FloatType) for one in inside)


def _check(found: Any) -> None:
    match found:
        case types.CustomType(cls=cls) if not custom_types.is_carried(cls):
            raise TypeError(
                f"{cls.__qualname__} cannot be carried; use a dataclass, a pydantic model, an enum,"
                " or what Python has built in: numbers, text, bytes, dates, lists, dicts"
            )
        case types.DictType(key_type=key) if isinstance(key, NO_KEYS):
            raise TypeError(
                "keys of a dict become text in JSON, so they cannot be told apart when they are"
                " read, unless all are text, numbers, UUIDs, dates or members of one enum"
            )


def _all(found: Any, seen: set[Any]) -> Iterator[Any]:
    """A type and all that it is made of; a class only once, since it may contain itself."""
    cls = getattr(found, "cls", None)
    if cls is not None and not isinstance(found, types.CustomType):
        if cls in seen:
            return
        seen.add(cls)
    yield found
    for one in _inside(found):
        yield from _all(one, seen)


def _inside(found: Any) -> list[Any]:
    """The types that a type is made of."""
    inside: list[Any] = []
    for name in ("item_type", "key_type", "value_type", "type"):
        one = getattr(found, name, None)
        if isinstance(one, types.Type):
            inside.append(one)
    for name in ("item_types", "types"):
        inside.extend(getattr(found, name, ()))
    inside.extend(field.type for field in getattr(found, "fields", ()))
    return inside
