"""Whether a decoded value is what was encoded, type by type.

`==` is not enough: 1 equals 1.0 and True, 0.0 equals -0.0, and a dataclass may not define it.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import datetime
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
        case float():
            same = given == read and math.copysign(1, given) == math.copysign(1, read)
            return None if same else (where, f"{given!r} would arrive as {read!r}")
        case list() | tuple():
            return _of_items(given, read, where)
        case dict():
            return _of_mapping(given, read, where)
        case set() | frozenset():
            same = {(type(one), one) for one in given} == {(type(one), one) for one in read}
            return None if same else (where, "its members would change")
        case datetime():
            same = given == read and given.utcoffset() == read.utcoffset()
            return None if same else (where, f"{given!r} would arrive as {read!r}")
    names = _field_names(given)
    if names is None:
        return None if given == read else (where, f"{given!r} would arrive as {read!r}")
    for name in names:
        inside = f"{where}.{name}"
        found = _difference(getattr(given, name, None), getattr(read, name, None), inside)
        if found is not None:
            return found
    return None


def _of_items(given: Any, read: Any, where: str) -> tuple[str, str] | None:
    if len(given) != len(read):
        return where, f"{len(given)} items would arrive as {len(read)}"
    for number, (one, other) in enumerate(zip(given, read, strict=True)):
        found = _difference(one, other, f"{where}[{number}]")
        if found is not None:
            return found
    return None


def _of_mapping(given: dict[Any, Any], read: dict[Any, Any], where: str) -> tuple[str, str] | None:
    keys = {(type(key), key) for key in given}
    if keys != {(type(key), key) for key in read}:
        return where, "its keys would change"
    for key, one in given.items():
        found = _difference(one, read[key], f"{where}[{key!r}]")
        if found is not None:
            return found
    return None


def _field_names(value: Any) -> list[str] | None:
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
