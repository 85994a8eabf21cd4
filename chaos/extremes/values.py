"""Values at the ends of what a schema admits: the least and the most, the shortest and the longest.

`Extremes.draw` follows the schema of any msgspec type, so a field that is added tomorrow is drawn
without a change here. Where a text has to mean something (a job's id, a fence, a key), the run says
what it knows, by the text's pattern or by the field's name, and that is drawn most of the time:
what names nothing is soon rejected, and reaches no service.

The same seed draws the same values, as long as the run knows the same things.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec import inspect as schemas

ODD_TEXTS: Final = ("a", "\x00", "\n", "\\", '"', "é", "\u202e", "\ud7ff", "\U0001f600", "\uffff")
"""Control characters, what has to be escaped, what turns text around, the ends of Unicode."""
SHORT: Final = 256
"""Up to this size a text or a list is often as long as it may be; beyond it rarely."""
LONGEST_DRAWN: Final = 0.02
NO_LIMIT: Final = 2**53 - 1
OPTIONAL_GIVEN: Final = 0.4
KNOWN_DRAWN: Final = 0.9
TRIES: Final = 400
_ANY_CHARACTER: Final = "aZ0~é\U0001f600"

Pool = Callable[[], Any]
"""Draws something that the run knows; None if it knows nothing yet."""


class Extremes:
    """Draws values of any type from one source of chance."""

    def __init__(self, chance: random.Random, known: Mapping[str, Pool] | None = None) -> None:
        """`known` has pools by the pattern of a text, or by the name of a field."""
        self.chance = chance
        self.known = dict(known or {})

    def draw(self, type_: Any) -> Any:
        """A value of this type."""
        return self.value(schemas.type_info(type_), "")

    def value(self, type_: schemas.Type, name: str) -> Any:  # noqa: C901, PLR0911 - one per sort
        """A value of this type for a field of this name."""
        if name in self.known and self.chance.random() < KNOWN_DRAWN:
            found = self.known[name]()
            if found is not None:
                return found
        match type_:
            case schemas.Metadata():
                return self.value(type_.type, name)
            case schemas.UnionType():
                return self.value(self._member(type_.types), name)
            case schemas.LiteralType():
                return self.chance.choice(type_.values)
            case schemas.BoolType():
                return self.chance.random() < 0.5
            case schemas.IntType():
                return self._integer(type_)
            case schemas.FloatType():
                return self._number(type_)
            case schemas.StrType():
                return self._text(type_)
            case schemas.StructType():
                return self._struct(type_)
            case schemas.TupleType():
                return tuple(self.value(one, name) for one in type_.item_types)
            case schemas.VarTupleType():
                return self._many(type_, name)
            case schemas.DictType():
                return self._mapping(type_, name)
            case schemas.RawType():
                return msgspec.Raw(self.chance.choice((b"null", b'"x"', b"[[]]", b"1e308")))
            case schemas.BytesType():
                size = self.chance.choice((type_.min_length or 0, type_.max_length or 64))
                return self.chance.randbytes(size)
            case _:
                return None

    def _member(self, types: tuple[schemas.Type, ...]) -> schemas.Type:
        """Of a field that may be absent, rather a value than none."""
        given = [one for one in types if not isinstance(one, schemas.NoneType)]
        return self.chance.choice(given or list(types))

    def _integer(self, type_: schemas.IntType) -> int:
        least = _least(type_)
        most = _most(type_)
        now = self.known.get("now_ms", lambda: 0)() or 0
        near = (0, 1, 1_000, 5_000, 30_000, now - 1_000, now, now + 1_000, now + 40 * 86_400_000)
        drawn = self.chance.choice((least, least + 1, most - 1, most, self.chance.choice(near)))
        return min(max(drawn, least), most)

    def _number(self, type_: schemas.FloatType) -> float:
        least = -1e308 if type_.ge is None else float(type_.ge)
        most = 1e308 if type_.le is None else float(type_.le)
        return self.chance.choice((least, (least + most) / 2, most))

    def _text(self, type_: schemas.StrType) -> str:
        longest = SHORT if type_.max_length is None else type_.max_length
        if type_.pattern is None:
            size = self.size(type_.min_length or 0, longest)
            return (self.chance.choice(ODD_TEXTS) * size)[:size]
        if type_.pattern in self.known and self.chance.random() < KNOWN_DRAWN:
            found = self.known[type_.pattern]()
            if found is not None:
                return str(found)
        return self.matching(type_.pattern, longest)

    def size(self, least: int, most: int) -> int:
        """How long a text or a list is."""
        if self.chance.random() < (0.25 if most <= SHORT else LONGEST_DRAWN):
            return most
        return min(max(self.chance.choice((0, 1, 2, 20)), least), most)

    def matching(self, pattern: str, longest: int) -> str:
        """A text that a pattern admits, as short or as long as it may be."""
        for attempt in range(TRIES):
            room = longest if attempt < TRIES // 2 else SHORT // 4
            text = self._follow(_parsed(pattern), room)[:longest]
            if re.search(pattern, text):
                return text
        raise ValueError(f"no text was drawn that {pattern} admits")

    def _follow(self, parsed: Any, room: int) -> str:
        made = ""
        for code, argument in parsed:
            made += self._part(code, argument, max(room - len(made), 0))
        return made

    def _part(self, code: Any, argument: Any, room: int) -> str:
        match code:
            case codes.LITERAL:
                return chr(argument)
            case codes.IN:
                return self.chance.choice(_characters(argument))
            case codes.ANY | codes.NOT_LITERAL:
                return "~"
            case codes.SUBPATTERN:
                return self._follow(argument[-1], room)
            case codes.BRANCH:
                return self._follow(self.chance.choice(argument[1]), room)
            case codes.MAX_REPEAT | codes.MIN_REPEAT:
                least, most, inner = argument
                times = self.chance.choice((least, min(int(most), max(room, int(least)))))
                return self._repeated(inner, times, room)
            case _:  # positions and looks ahead: `matching` checks them
                return ""

    def _repeated(self, inner: Any, times: int, room: int) -> str:
        one = self._follow(inner, room)
        fits = max(room // max(len(one), 1), 1)
        return one * min(times, fits)

    def _struct(self, type_: schemas.StructType) -> Any:
        optional = [one for one in type_.fields if not one.required]
        for attempt in range(TRIES):
            if attempt < TRIES // 2:
                given = [one for one in optional if self.chance.random() < OPTIONAL_GIVEN]
            else:  # few contradict each other
                given = self.chance.sample(optional, min(attempt % 2, len(optional)))
            fields = {
                one.name: self.value(one.type, one.encode_name)
                for one in type_.fields
                if one.required or one in given
            }
            try:
                return type_.cls(**{name: one for name, one in fields.items() if one is not UNSET})
            except ValueError:  # fields that contradict each other
                continue
        raise ValueError(f"no {type_.cls.__name__} was drawn that agrees with itself")

    def _many(self, type_: schemas.VarTupleType, name: str) -> tuple[Any, ...]:
        """Different ones, or the same again and again."""
        size = self.size(type_.min_length or 0, type_.max_length or SHORT)
        if self.chance.random() < 0.5:
            return (self.value(type_.item_type, name),) * size
        few = [self.value(type_.item_type, name) for _ in range(min(size, 32))]
        return tuple(few[at % len(few)] for at in range(size))

    def _mapping(self, type_: schemas.DictType, name: str) -> dict[Any, Any]:
        return {
            self.value(type_.key_type, ""): self.value(type_.value_type, name)
            for _ in range(self.chance.choice((0, 1, 40)))
        }


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> Any:
    return _parser.parse(pattern)


def _least(type_: schemas.IntType) -> int:
    if type_.gt is not None:
        return type_.gt + 1
    return -NO_LIMIT if type_.ge is None else type_.ge


def _most(type_: schemas.IntType) -> int:
    if type_.lt is not None:
        return type_.lt - 1
    return NO_LIMIT if type_.le is None else type_.le


def _characters(parts: Any) -> list[str]:
    """The first and the last character of each range that a class of characters has."""
    if parts[0][0] is codes.NEGATE:
        return list(_ANY_CHARACTER)
    found: list[str] = []
    for code, argument in parts:
        if code is codes.RANGE:
            found += [chr(argument[0]), chr(argument[1])]
        elif code is codes.LITERAL:
            found.append(chr(argument))
    return found or ["a"]
