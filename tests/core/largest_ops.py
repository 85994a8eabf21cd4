"""Bodies at the edge of their schemas, built from the types alone.

`largest` has every text at its longest, in the characters that take most bytes, every list at its
cap and every number at its bound. `fullest` has every list at its cap too, with short items that
differ, and nothing else: the most that a list can make others do within one record.
"""

import re
import re._parser as sre
from functools import cache
from itertools import count
from typing import Any, get_type_hints

from msgspec import UNSET, inspect

from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody
from antiphon.core.proof.output import Output
from antiphon.core.record import codec
from antiphon.core.record.op import Op
from tests.core.authority.test_chain_check import delegation
from tests.core.authors import ALICE, OWNER

CHARACTERS = ("\x01", "\U0001f600", "\\", "z", "Z", "9", "f", "7", "2", "-")
"""Each takes no more bytes than the one before it."""
UNBOUNDED = 2 * codec.MAX_OP_BYTES
"""How long a text without a limit is made, and when a list has grown enough: no record holds it."""
POLICY_BYTES = 15_900
LEFT_OUT = {Output: ("stored",)}
"""Fields that cannot be there beside larger ones."""


def body_type(op: type[Op]) -> inspect.StructType:
    return inspect.type_info(get_type_hints(op, include_extras=True)["body"])


def largest(op: type[Op]) -> Any:
    """The largest body that the schema of this op admits, or one that no record can hold."""
    shape = body_type(op)
    return _delegation() if shape.cls is DelegateBody else _largest(shape)


def _delegation() -> DelegateBody:
    """A token is not any text: it is a delegation, here one with a long policy."""
    policy = [["==", ".kind", "x" * POLICY_BYTES]]
    return DelegateBody(token=token_of(delegation(OWNER, ALICE, pol=policy).raw))


def _largest(shape: inspect.Type) -> Any:
    match shape:
        case inspect.Metadata():
            return _largest(shape.type)
        case inspect.UnionType():
            return max(map(_largest, shape.types), key=_size)
        case inspect.LiteralType():
            return max(shape.values, key=_size)
        case inspect.BoolType() | inspect.NoneType():
            return False if isinstance(shape, inspect.BoolType) else None
        case inspect.IntType():
            most = shape.le if shape.le is not None else shape.lt - 1
            assert most <= codec.MAX_INTEGER, "every number has a bound that an op can hold"
            return max(most, shape.ge, key=_size)
        case inspect.StrType():
            return longest_text(shape.pattern, shape.max_length)
        case inspect.BytesType():
            return bytes(shape.max_length)
        case inspect.TupleType():
            return tuple(map(_largest, shape.item_types))
        case inspect.VarTupleType():
            item = _largest(shape.item_type)
            return (item,) * min(shape.max_length, UNBOUNDED // _size(item) + 1)
        case inspect.DictType():
            item = _largest(shape.value_type)
            most = min(shape.max_length or UNBOUNDED, UNBOUNDED // _size(item) + 1)
            key = _largest(shape.key_type)
            return {f"{key[:-4]}{number:04x}": item for number in range(most)}
        case inspect.StructType():
            left_out = LEFT_OUT.get(shape.cls, ())
            fields = (one for one in shape.fields if one.name not in left_out)
            return shape.cls(**{one.name: _largest(one.type) for one in fields})
    raise NotImplementedError(f"teach {__name__} to build {shape}")


def _size(value: Any) -> int:
    return 0 if value is UNSET else len(codec.encode(value))


def longest_text(pattern: str | None, most: int | None) -> str:
    """The text of a schema that takes most bytes in an op."""
    if pattern is None:
        return CHARACTERS[0] * (UNBOUNDED if most is None else most)
    text = _repeated(sre.parse(pattern), most or UNBOUNDED)[:most]
    while not re.search(pattern, text):
        text = text[:-1]
    assert text, f"nothing was found for {pattern}"
    return text


@cache
def shortest_text(pattern: str) -> str:
    """A text of a schema with as few characters as it may have."""
    return _repeated(sre.parse(pattern), 1, is_short=True)


def _repeated(tree: Any, most: int, *, is_short: bool = False) -> str:
    """A text for a regular expression, each repetition at its largest, or at its smallest."""
    text = ""
    for code, value in tree:
        match str(code):
            case "LITERAL":
                text += chr(value)
            case "IN":
                text += next(one for one in _any(is_short) if _is_in(value, ord(one)))
            case "SUBPATTERN":
                text += _repeated(value[3], most, is_short=is_short)
            case "BRANCH":
                options = [_repeated(one, most, is_short=is_short) for one in value[1]]
                text += min(options, key=len) if is_short else max(options, key=len)
            case "MAX_REPEAT":
                least, times, inner = value
                times = least if is_short else min(int(times), most)
                text += _repeated(inner, most, is_short=is_short) * times
            case "AT" | "ASSERT":
                continue
            case _:
                raise NotImplementedError(f"teach {__name__} to follow {code}")
    return text


def _any(is_short: bool) -> tuple[str, ...]:
    others = tuple(map(chr, range(32, 127)))
    return ("a", *others) if is_short else (*CHARACTERS, *others)


def _is_in(items: Any, code: int) -> bool:
    found = False
    for sort, value in items:
        match str(sort):
            case "LITERAL":
                found |= value == code
            case "RANGE":
                found |= value[0] <= code <= value[1]
    return found != (str(items[0][0]) == "NEGATE")


class Fullest:
    """Bodies in which every list is full. Of a union of structs, the one with this place."""

    def __init__(self, option: int = 0) -> None:
        self._option, self._numbers = option, count()

    def of(self, op: type[Op], **fixed: Any) -> Any:
        return self._struct(body_type(op), fixed)

    def value(self, shape: inspect.Type) -> Any:
        match shape:
            case inspect.Metadata():
                return self.value(shape.type)
            case inspect.UnionType():
                some = [one for one in shape.types if not isinstance(one, inspect.NoneType)]
                return self.value(some[self._option % len(some)])
            case inspect.LiteralType():
                return shape.values[0]
            case inspect.BoolType():
                return False
            case inspect.IntType():
                return shape.ge
            case inspect.StrType():
                return self._text(shape.pattern, shape.max_length)
            case inspect.TupleType():
                return tuple(map(self.value, shape.item_types))
            case inspect.VarTupleType():
                return tuple(self.value(shape.item_type) for _ in range(shape.max_length))
            case inspect.DictType():
                most = range(shape.max_length or 1_000)
                return {self.value(shape.key_type): self.value(shape.value_type) for _ in most}
            case inspect.StructType():
                return self._struct(shape, {})
        raise NotImplementedError(f"teach {__name__} to build {shape}")

    def _struct(self, shape: inspect.StructType, fixed: dict[str, Any]) -> Any:
        left = (one for one in shape.fields if one.name not in fixed)
        wanted = [one for one in left if one.required or _has_list(one.type)]
        if shape.cls is Output:
            fixed = {"text": self._text(None, None)}
        return shape.cls(**fixed, **{one.name: self.value(one.type) for one in wanted})

    def _text(self, pattern: str | None, most: int | None) -> str:
        """A short text that no other is."""
        number = f"{next(self._numbers):x}"
        short = "" if pattern is None else shortest_text(pattern)
        for text in (short + number, short[: -len(number)] + number, short):
            if len(text) <= (most or len(text)) and re.search(pattern or "", text):
                return text
        raise NotImplementedError(f"no short text for {pattern}")


def _has_list(shape: inspect.Type) -> bool:
    match shape:
        case inspect.Metadata():
            return _has_list(shape.type)
        case inspect.UnionType():
            return any(map(_has_list, shape.types))
        case inspect.StructType():
            return any(_has_list(one.type) for one in shape.fields)
    return isinstance(shape, inspect.VarTupleType | inspect.DictType)
