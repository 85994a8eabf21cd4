"""A question as a form: fields from the JSON Schema of its answer, and the answer from the fields.

Works without a script. What a form cannot ask for in fields, such as a list, is typed as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.sdk.dashboard.for_you import Asked

ANSWER: Final = "answer"
"""The name of the form's one field, or the beginning of their names."""
LONG: Final = 200
"""A text that may be longer gets several lines."""
YES, NO = "yes", "no"

As = Literal["text", "long", "number", "choice", "truth", "json", "group"]


class Field(Struct, frozen=True, kw_only=True):
    """One field, or several under a heading."""

    name: str
    label: str
    hint: str
    as_: As
    value: str
    is_needed: bool
    choices: tuple[str, ...] = ()
    """By their numbers: a choice need not be a text."""
    least: str = ""
    most: str = ""
    step: str = ""
    fields: tuple[Field, ...] = ()


def form_of(asked: Asked, typed: Mapping[str, str] | None = None) -> Field | None:
    """The form of a question, with what was typed; None: it has choices, and each is a button."""
    if asked.choices:
        return None
    schema = asked.schema if asked.schema is not None else {"type": "string"}
    return _field(ANSWER, "Your answer", schema, typed, is_needed=True)


def _field(
    name: str,
    label: str,
    schema: Mapping[str, Any],
    typed: Mapping[str, str] | None,
    *,
    is_needed: bool,
) -> Field:
    shown = _as(schema)
    needed, fields = schema.get("required", ()), tuple[Field, ...]()
    if shown == "group":
        fields = tuple(
            _field(f"{name}.{number}", part, one, typed, is_needed=part in needed)
            for number, (part, one) in enumerate(schema["properties"].items())
        )
    values = schema.get("enum", ())
    begin = _default(schema, shown, values) if typed is None else typed.get(name, "")
    return Field(
        name=name,
        label=str(schema.get("title", label)),
        hint=str(schema.get("description", "")),
        as_=shown,
        value=begin,
        is_needed=is_needed,
        choices=tuple(_plain(one) for one in values),
        least=_plain(schema.get("minimum", "")),
        most=_plain(schema.get("maximum", "")),
        step="1" if schema.get("type") == "integer" else "any",
        fields=fields,
    )


def _as(schema: Mapping[str, Any]) -> As:
    if "enum" in schema:
        return "choice"
    match schema.get("type"):
        case "object" if schema.get("properties"):
            return "group"
        case "string":
            return "long" if schema.get("maxLength", LONG + 1) > LONG else "text"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "truth"
    return "json"


def _default(schema: Mapping[str, Any], shown: As, values: tuple[Any, ...] | list[Any]) -> str:
    if "default" not in schema:
        return ""
    given = schema["default"]
    if shown == "choice":
        return str(values.index(given)) if given in values else ""
    if shown == "truth":
        return YES if given else NO
    return _plain(given) if shown != "json" else msgspec.json.encode(given).decode()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def answer_in(asked: Asked, form: Mapping[str, str]) -> Any:
    """What was answered; `Malformed` if a field has something that it cannot have."""
    if asked.choices or asked.schema is None:
        return form.get(ANSWER, "")
    found = _read(ANSWER, "your answer", asked.schema, form, is_needed=True)
    return None if found is msgspec.UNSET else found


def _read(
    name: str, label: str, schema: Mapping[str, Any], form: Mapping[str, str], *, is_needed: bool
) -> Any:
    """The value of a field; `UNSET` if it was left empty and need not be given."""
    label, shown = str(schema.get("title", label)), _as(schema)
    if shown == "group":
        return _members(name, schema, form)
    typed = form.get(name, "").replace("\r\n", "\n")
    if not typed.strip() and not is_needed:
        return msgspec.UNSET
    match shown:
        case "choice":
            values = schema["enum"]
            if not typed.isdecimal() or int(typed) >= len(values):
                raise Malformed(f"{label}: choose one", reason="answer")
            return values[int(typed)]
        case "truth":
            if typed not in {YES, NO}:
                raise Malformed(f"{label}: choose yes or no", reason="answer")
            return typed == YES
        case "number" | "json":
            return _decoded(label, typed, is_number=shown == "number")
    return typed


def _members(name: str, schema: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    needed, found = schema.get("required", ()), dict[str, Any]()
    for number, (part, one) in enumerate(schema["properties"].items()):
        is_needed = part in needed
        value = _read(f"{name}.{number}", part, one, form, is_needed=is_needed)
        is_empty = value is msgspec.UNSET or (value == {} and not is_needed)
        if not is_empty:
            found[part] = value
    return found


def _decoded(label: str, typed: str, *, is_number: bool) -> Any:
    try:
        value = msgspec.json.decode(typed)
    except UNREADABLE:
        value = None if is_number else msgspec.UNSET
    if is_number and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Malformed(f"{label}: {typed[:40]!r} is not a number", reason="answer")
    if value is msgspec.UNSET:
        raise Malformed(f"{label} has to be JSON, such as [1, 2]", reason="answer")
    return value
