"""Whether a decoded value is what was encoded, type by type.

`==` is not enough: 1 equals 1.0 and True, 0.0 equals -0.0, and a dataclass may not define it.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from msgspec import Struct

from antiphon.runtime.values.custom_types import is_pydantic


def difference(given: Any, read: Any) -> str | None:
    """The first difference: where it is, and what becomes what; None if there is none."""
    found = _difference(given, read, "")
    if found is None:
        return None
    where, what = found
    return f"{where}: {what}" if where else what


def _difference(given: Any, read: Any, where: str) -> tuple[str, str] | None:
    if type(given) is not type(read):
        if type(read) is float and type(given) is int and given == read:
            return None  # an integer may be given where a float is expected
        return where, f"{_named(given)} would arrive as {_named(read)}"
    match given:
        case list() | tuple():
            return _of_items(given, read, where)
        case dict():
            return _of_mapping(given, read, where)
        case set() | frozenset():
            if given != read:
                return where, "its members would change"
            return _of_members(given, read, where)
    names = field_names(given)
    if names is None:
        return None if _is_same(given, read) else (where, f"{given!r} would arrive as {read!r}")
    for name in names:
        inside = f"{where}.{name}"
        found = _difference(getattr(given, name, None), getattr(read, name, None), inside)
        if found is not None:
            return found
    return None


def _is_same(given: Any, read: Any) -> bool:
    """Whether two values of one type, without parts, are the same."""
    match given:
        case float():
            return given == read and math.copysign(1, given) == math.copysign(1, read)
        case Decimal():
            return given.is_finite() and given.as_tuple() == read.as_tuple()
        case datetime() | time():
            return _is_same_time(given, read)
    return bool(given == read)


def _is_same_time(given: Any, read: Any) -> bool:
    """Whether the clock shows the same; a zone may have become its offset.

    `==` between zones is never true in the hour that a zone has twice (PEP 495).
    """
    offset = given.utcoffset()
    if offset is None and (given.tzinfo is not None or given.fold):
        return False  # no text says which zone, or which of two hours
    clocks = [one.replace(tzinfo=None, fold=0) for one in (given, read)]
    return bool(clocks[0] == clocks[1] and offset == read.utcoffset())


def _of_items(given: Any, read: Any, where: str) -> tuple[str, str] | None:
    if len(given) != len(read):
        return where, f"{len(given)} items would arrive as {len(read)}"
    for number, (one, other) in enumerate(zip(given, read, strict=True)):
        found = _difference(one, other, f"{where}[{number}]")
        if found is not None:
            return found
    return None


def _of_members(given: Any, read: Any, where: str) -> tuple[str, str] | None:
    """Members of a set, or keys: equal ones may still differ, as 1 and True do."""
    arrived = {one: one for one in read}
    found = (_difference(one, arrived[one], f"{where}[{one!r}]") for one in given)
    return next(filter(None, found), None)


def _of_mapping(given: dict[Any, Any], read: dict[Any, Any], where: str) -> tuple[str, str] | None:
    if given.keys() != read.keys():
        return where, "its keys would change"
    values = (_difference(one, read[key], f"{where}[{key!r}]") for key, one in given.items())
    return _of_members(given, read, where) or next(filter(None, values), None)


def field_names(value: Any) -> list[str] | None:
    """The fields of a record-like object; None for everything that is compared as a whole."""
    cls = type(value)
    if isinstance(value, Struct):
        return list(cls.__struct_fields__)
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    if is_pydantic(cls):
        return [*cls.model_fields, *(getattr(value, "model_extra", None) or {})]
    attributes = getattr(cls, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def _named(value: Any) -> str:
    """A value's type, and the value where that says more."""
    name = type(value).__name__
    if value is None:
        return "None"
    if type(value) in (bool, int, float):
        return f"{name} {value!r}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
