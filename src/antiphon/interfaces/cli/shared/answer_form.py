"""A question as a form in the terminal, and answers that were typed as an argument."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import err

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antiphon.sdk.questions.namespace import OpenQuestion

_PLAIN = ("string", "integer", "number", "boolean")


def read_value(question: OpenQuestion, text: str) -> Any:
    """What was typed as the answer to a question: JSON where it has a schema, else the text."""
    if question.schema is None or question.schema.get("type") == "string":
        return text
    return _json(text)


def filled_in(question: OpenQuestion, *, as_json: bool) -> Any:
    """Ask whoever sits at the terminal; `WrongUsage` if nobody does."""
    if as_json or not (sys.stdin.isatty() and err.is_terminal):
        choices = f" ({', '.join(question.choices)})" if question.choices else ""
        raise WrongUsage(
            f"the answer is missing: {question.text}{choices}",
            hint=f"antiphon answer {short(question.job_id)} ANSWER",
        )
    err.say(question.text)
    err.say(f"  asked by {question.asked_by}, kind {question.kind}, open until {question.until}")
    if question.choices:
        return _choice("your answer", list(question.choices))
    if question.schema is not None:
        return _field("your answer", question.schema, is_needed=True)
    return typer.prompt("your answer", err=True)


def _choice(words: str, choices: list[Any]) -> Any:
    for number, one in enumerate(choices, start=1):
        err.say(f"  {number}  {one}")
    shown = [str(one) for one in choices]
    while True:
        typed = typer.prompt(f"{words} (a number, or the word)", err=True).strip()
        if typed in shown:
            return choices[shown.index(typed)]
        if typed.isdecimal() and 1 <= int(typed) <= len(choices):
            return choices[int(typed) - 1]
        err.say("that is none of them")


def _field(words: str, schema: Mapping[str, Any], *, is_needed: bool) -> Any:
    """The value of one field; None if it was left empty and need not be given."""
    label = schema.get("title", words)
    if "description" in schema:
        err.say(f"  {label}: {schema['description']}")
    if "enum" in schema:
        return _choice(label, schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        needed = schema.get("required", ())
        given = {
            name: _field(name, one, is_needed=name in needed)
            for name, one in schema.get("properties", {}).items()
        }
        return {name: value for name, value in given.items() if value is not None}
    if kind == "boolean":
        return typer.confirm(label, default=schema.get("default"), err=True)
    default = schema.get("default", None if is_needed else "")
    hint = "" if kind in _PLAIN else " (JSON)"
    while True:
        typed = typer.prompt(
            f"{label}{hint}", default=default, show_default=bool(default), err=True
        )
        if typed == "" and not is_needed:
            return None
        try:
            return _reader(kind)(str(typed))
        except (ValueError, WrongUsage):
            err.say(f"that is not {'JSON' if hint else f'of the type {kind}'}")


def _reader(kind: Any) -> Callable[[str], Any]:
    plain: dict[Any, Callable[[str], Any]] = {"string": str, "integer": int, "number": float}
    return plain.get(kind, _json)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise WrongUsage(
            f"the answer has to be JSON, as its schema describes it: {wrong}",
            hint="leave it out to get a form",
        ) from wrong
