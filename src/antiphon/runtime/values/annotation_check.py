"""Whether values of an annotation can be carried at all.

Loaded with the first task that has annotations: msgspec's inspection is slow to import.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as types

from antiphon.runtime.values import custom_types


def check_annotation(annotation: Any) -> None:
    """`TypeError` for what could not be told apart when it is read, or not be read at all."""
    try:
        found = types.type_info(annotation)
        msgspec.json.Decoder(annotation, dec_hook=custom_types.decode)
    except TypeError as problem:
        raise TypeError(f"it cannot be carried: {problem}") from None
    _check(found, set())


def _check(found: Any, seen: set[Any]) -> None:
    if isinstance(found, types.CustomType):
        if not custom_types.is_carried(found.cls):
            raise TypeError(
                f"{found.cls.__qualname__} cannot be carried; use a dataclass, a pydantic model, or"
                " anything in docs/values.md"
            )
        return
    for inside in _inside(found):
        cls = getattr(inside, "cls", None)
        if cls is not None and not isinstance(inside, types.CustomType):
            if cls in seen:
                continue
            seen.add(cls)
        _check(inside, seen)


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
