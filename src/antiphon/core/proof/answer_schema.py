"""The part of JSON Schema that a question to people may use, and whether an answer matches.

Every reader decides the same about an answer, so it is a small and closed part: no patterns, no
references, no formats. A form in a terminal can ask for all of it. Anyone may write a schema, so
any JSON value gets a verdict: what it raised here would end every reader.

    type (string, integer, number, boolean, null, object, array) · enum · title · description
    default · minimum · maximum · minLength · maxLength
    properties · required · additionalProperties · items · minItems · maxItems
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

MAX_DEPTH: Final = 8
MAX_PARTS: Final = 256
"""How many schemas one schema may contain."""

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS: Final = ("minimum", "maximum")
_WORDS: Final = frozenset(
    {
        "$schema",
        "title",
        "description",
        "default",
        "type",
        "enum",
        "properties",
        "required",
        "additionalProperties",
        "items",
        *_COUNTS,
        *_BOUNDS,
    }
)


def schema_problem(schema: Any) -> str:
    """Why this cannot be the schema of a question's answer; empty if it can."""
    left = [MAX_PARTS]
    return _schema_problem(schema, "the schema", left, 0)


def _schema_problem(schema: Any, where: str, left: list[int], depth: int) -> str:
    left[0] -= 1
    if not isinstance(schema, dict):
        return f"{where} is not an object"
    if depth > MAX_DEPTH or left[0] < 0:
        return f"{where} is nested too deeply, or has too many parts"
    unknown = sorted(schema.keys() - _WORDS)
    if unknown:
        return f"{where} says {unknown[0]!r}, which a question cannot use"
    kind = schema.get("type", "string")
    if not isinstance(kind, str) or kind not in _TYPES:  # a list cannot even be looked up
        return f"{where} has a type that there is not: {kind!r}"
    choices = schema.get("enum", [None])
    if not isinstance(choices, list) or not choices or not all(map(_is_plain, choices)):
        return f"the enum of {where} is not a list of plain values"
    for word in (*_COUNTS, *_BOUNDS):
        wanted = "integer" if word in _COUNTS else "number"
        if word in schema and not _TYPES[wanted](schema[word]):
            return f"{word} of {where} is not a number"
    return _parts_problem(schema, where, left, depth)


def _parts_problem(schema: Mapping[str, Any], where: str, left: list[int], depth: int) -> str:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return f"properties and required of {where} are an object and a list"
    if not all(isinstance(one, str) for one in required):
        return f"required of {where} is not a list of names"
    if not isinstance(schema.get("additionalProperties", True), bool):
        return f"additionalProperties of {where} is neither true nor false"
    parts = [(f"{where}.{name}", one) for name, one in properties.items()]
    if "items" in schema:
        parts.append((f"the items of {where}", schema["items"]))
    for name, one in parts:
        problem = _schema_problem(one, name, left, depth + 1)
        if problem:
            return problem
    return ""


def value_problem(schema: Mapping[str, Any], value: Any, where: str = "the answer") -> str:
    """Why a value does not match a usable schema; empty if it does."""
    wanted = schema.get("type")
    if wanted is not None and not _TYPES[wanted](value):
        return f"{where} is not of the type {wanted}"
    if "enum" in schema and not any(_same(one, value) for one in schema["enum"]):
        return f"{where} is not one of {', '.join(map(str, schema['enum']))}"
    if _TYPES["number"](value):
        return _bound_problem(value, schema.get("minimum"), schema.get("maximum"), where)
    if isinstance(value, str):
        least, most = schema.get("minLength"), schema.get("maxLength")
        return _bound_problem(len(value), least, most, f"the length of {where}")
    if isinstance(value, list):
        least, most = schema.get("minItems"), schema.get("maxItems")
        problem = _bound_problem(len(value), least, most, f"the number of items of {where}")
        items = schema.get("items", {})
        each = (value_problem(items, one, f"item {at} of {where}") for at, one in enumerate(value))
        return problem or next(filter(None, each), "")
    return _members_problem(schema, value, where) if isinstance(value, dict) else ""


def _members_problem(schema: Mapping[str, Any], value: dict[str, Any], where: str) -> str:
    properties = schema.get("properties", {})
    missing = next((name for name in schema.get("required", ()) if name not in value), None)
    if missing is not None:
        return f"{where} lacks {missing}"
    for name, one in value.items():
        if name in properties:
            problem = value_problem(properties[name], one, f"{name} of {where}")
            if problem:
                return problem
        elif schema.get("additionalProperties") is False:
            return f"{where} has {name}, which was not asked for"
    return ""


def _bound_problem(value: float, least: float | None, most: float | None, where: str) -> str:
    if least is not None and value < least:
        return f"{where} is below {least}"
    return f"{where} is above {most}" if most is not None and value > most else ""


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _same(one: Any, other: Any) -> bool:
    """Equal, and of one type: `true` is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
