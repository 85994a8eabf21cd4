"""Selectors: which part of the arguments a policy statement is about.

    .                     everything
    .kind   .["a.b"]      a field of a map; a missing field is null
    .inputs[0]   [-1]     an element of a list, or a byte of bytes
    .inputs[1:3] [:2]     a part of a list, of bytes or of text
    .limits[]             the values of a map, as a list; a list stays as it is
    .inputs[9]?           null if the step before it fails

Steps are taken from left to right. A step that fails makes the whole selector unresolved, unless it
is optional: then it gives null and the next step starts from null.

Parsing does not depend on the interpreter's Unicode tables: a dotted name begins with an ASCII
letter, `_` or any non-ASCII character, and continues with those, digits, `$` and `-`. A quoted name
is a JSON string. The values of a map are in DAG-CBOR's order of its keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from antiphon.core.ucan.budget import Budget
from antiphon.core.ucan.dag_cbor import malformed
from antiphon.decoding import UNREADABLE

MAX_LETTERS: Final = 256
MAX_STEPS: Final = 32
_MAX_DIGITS: Final = 15  # below 2^53

_STEP: Final = r"""(?: \.(?P<field>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff-]*)
          | \.?\[ (?: (?P<name>"(?:[^"\\]|\\.)*")
                    | (?P<index>-?[0-9]+)
                    | (?P<slice>(?P<low>-?[0-9]+)?:(?P<high>-?[0-9]+)?)
                    | ) \]
        ) (?P<optional>\?*)"""


@cache
def _pattern() -> re.Pattern[str]:
    """Compiled with the first selector: it takes longer than the rest of this module."""
    return re.compile(_STEP, re.VERBOSE | re.ASCII | re.DOTALL)


class Unresolved:
    """The type of `UNRESOLVED`: there is no value, which is not the same as null."""

    def __repr__(self) -> str:
        return "UNRESOLVED"


UNRESOLVED: Final = Unresolved()


class Step:
    """One step of a selector."""

    __slots__ = ("optional",)

    def __init__(self, *, optional: bool) -> None:
        self.optional = optional

    def take(self, value: Any, budget: Budget) -> Any:
        """The value after this step, or `UNRESOLVED`."""
        raise NotImplementedError


class Field(Step):
    """A field of a map."""

    __slots__ = ("name",)

    def __init__(self, name: str, *, optional: bool) -> None:
        super().__init__(optional=optional)
        self.name = name

    def take(self, value: Any, budget: Budget) -> Any:
        """The field; null if the map lacks it."""
        del budget
        return value.get(self.name) if isinstance(value, dict) else UNRESOLVED


class Index(Step):
    """An element by its index, from the end if negative."""

    __slots__ = ("at",)

    def __init__(self, at: int, *, optional: bool) -> None:
        super().__init__(optional=optional)
        self.at = at

    def take(self, value: Any, budget: Budget) -> Any:
        """The element; bytes give numbers."""
        del budget
        if not isinstance(value, (list, tuple, bytes)):
            return UNRESOLVED
        if not -len(value) <= self.at < len(value):
            return UNRESOLVED
        return value[self.at]


class Slice(Step):
    """A slice, clamped to the value's length."""

    __slots__ = ("part",)

    def __init__(self, part: slice, *, optional: bool) -> None:
        super().__init__(optional=optional)
        self.part = part

    def take(self, value: Any, budget: Budget) -> Any:
        """The slice, of the same type as the value."""
        if not isinstance(value, (list, tuple, bytes, str)):
            return UNRESOLVED
        budget.spend(len(value) >> 6)
        return value[self.part]


class Values(Step):
    """All values of a collection."""

    __slots__ = ()

    def take(self, value: Any, budget: Budget) -> Any:
        """The values as a list."""
        if isinstance(value, (list, tuple)):
            return value
        if not isinstance(value, dict):
            return UNRESOLVED
        budget.spend(4 * len(value))  # they are sorted
        return [value[key] for key in sorted(value, key=_dag_cbor_order)]


class Selector:
    """A parsed selector."""

    __slots__ = ("_only_field", "steps")

    def __init__(self, text: str) -> None:
        self.steps = _parse(text)
        only = self.steps[0] if len(self.steps) == 1 else None
        # By far the most common selector is one field of the arguments.
        self._only_field = only.name if isinstance(only, Field) and not only.optional else None

    @property
    def first_field(self) -> str | None:
        """The field of the arguments that it selects from; None if it selects all of them."""
        first = self.steps[0] if self.steps else None
        return first.name if isinstance(first, Field) else None

    def select(self, value: Any, budget: Budget) -> Any:
        """The selected part of `value`, or `UNRESOLVED`."""
        if self._only_field is not None:
            return value.get(self._only_field) if isinstance(value, dict) else UNRESOLVED
        if not self.steps:
            return value
        budget.spend(len(self.steps))
        for step in self.steps:
            value = step.take(value, budget)
            if value is UNRESOLVED:
                if not step.optional:
                    return UNRESOLVED
                value = None
        return value


def _parse(text: str) -> tuple[Step, ...]:
    if len(text) > MAX_LETTERS:
        raise malformed(
            f"a selector of {len(text)} characters is too long; the limit is {MAX_LETTERS}"
        )
    rest = text.rstrip("?")
    if rest == ".":
        return ()
    if not text.startswith("."):
        raise malformed(f"selector {text!r} does not begin with a dot")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _pattern().match(text, at)
        # Only the first bracket may follow a dot: `.[0]`, but `.a[0]`.
        if found is None or (at and text.startswith(".[", at)) or len(steps) >= MAX_STEPS:
            raise malformed(f"selector {text!r} cannot be read from {text[at:]!r} on")
        steps.append(_step(text, found.groupdict()))
        at = found.end()
    return tuple(steps)


def _step(text: str, parts: Mapping[str, str | None]) -> Step:
    optional = bool(parts["optional"])
    if parts["field"] is not None:
        return Field(parts["field"], optional=optional)
    if parts["name"] is not None:
        try:
            return Field(msgspec.json.decode(parts["name"], type=str), optional=optional)
        except UNREADABLE as problem:
            raise malformed(f"selector {text!r} has a name that is not a JSON string") from problem
    if parts["index"] is not None:
        return Index(_number(text, parts["index"]), optional=optional)
    if parts["slice"] is not None:
        low, high = parts["low"], parts["high"]
        if low is None and high is None:
            raise malformed(f"selector {text!r} has a slice without bounds")
        part = slice(
            None if low is None else _number(text, low),
            None if high is None else _number(text, high),
        )
        return Slice(part, optional=optional)
    return Values(optional=optional)


def _number(text: str, digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise malformed(f"selector {text!r} has a number that is too large")
    return int(digits)


def _dag_cbor_order(key: Any) -> tuple[int, bytes]:
    raw = str(key).encode("utf-8", "surrogatepass")
    return len(raw), raw
