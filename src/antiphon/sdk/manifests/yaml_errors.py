"""Explains what the YAML parser could not read: the place, and what to write there."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from antiphon.errors import Malformed


class Place(NamedTuple):
    """A place in a text; both numbers begin at 1, as in editors."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


def objection(place: Place | None, sentence: str, *, hint: str, reason: str = "yaml") -> Malformed:
    """The error for something that is wrong at a place."""
    return Malformed(f"{place}: {sentence}" if place else sentence, reason=reason, hint=hint)


# libyaml's words, whether the beginning of the context is the better place, and our words.
_SAYINGS: Final = (
    (
        "mapping values are not allowed",
        False,
        "a ': ' is not allowed here",
        "put text with ': ' in it in quotes, and indent fields alike that belong together",
    ),
    (
        "could not find expected ':'",
        True,
        "this line has no ': ' and no '- '",
        "a field is 'name: value', an item of a list is '- value'",
    ),
    (
        "did not find expected key",
        False,
        "this does not continue what is before it",
        "indent lines that belong together alike, and put quotes around the whole text",
    ),
    (
        "did not find expected '-' indicator",
        False,
        "inside a list every item begins with '- '",
        "begin it with '- ', or indent it like the field that it is",
    ),
    (
        "block sequence entries are not allowed",
        False,
        "a list of '- ' items begins on a new line",
        "write [a, b] after the name, or each '- item' on the next lines",
    ),
    (
        "did not find expected ',' or",
        True,
        "this bracket is not closed, or a comma is missing inside it",
        "close it, put a comma between the items, and put text with brackets in quotes",
    ),
    (
        "found unexpected end of stream",
        True,
        "this quote is not closed",
        "end the text with the same quote",
    ),
    (
        "found unexpected ':'",
        False,
        "a space is missing after this ':'",
        "write name: value",
    ),
    (
        "found unknown escape character",
        False,
        "there is no such escape",
        "in double quotes a backslash is written \\\\; in single quotes it is a plain character",
    ),
    (
        "escape code",
        False,
        "this escape is not a character",
        "write the character itself, or \\U and eight digits",
    ),
)


def not_yaml(problem: Any, text: str) -> Malformed:
    """A complaint of libyaml as a sentence about what was written."""
    mark, opening = problem.problem_mark, problem.context_mark or problem.problem_mark
    said = str(problem.problem)
    context = str(problem.context)
    place = Place(mark.line + 1, mark.column + 1)
    here = text[mark.index : mark.index + 1]
    if "tab character" in said or here == "\t":
        return objection(
            place,
            "this line is indented with a tab, and YAML needs spaces",
            hint="replace each tab by two spaces",
        )
    begun = Place(opening.line + 1, opening.column + 1)
    for kind, sign in (("alias", "*"), ("anchor", "&")):
        if kind in context:
            return objection(
                begun,
                f"a word that begins with {sign} has a special meaning in YAML",
                hint=f"put it in quotes if it is text: '{sign}…'",
            )
    if "cannot start any token" in said:
        return objection(
            place, f"a word cannot begin with {here}", hint=f"put it in quotes: '{here}…'"
        )
    for theirs, at_opening, ours, hint in _SAYINGS:
        if theirs in said:
            return objection(begun if at_opening else place, ours, hint=hint)
    return objection(
        place, f"this is not YAML: {said}", hint="such as: {command: [echo, hello], timeout: 30}"
    )
