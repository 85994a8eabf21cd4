"""Encodes and decodes values of one annotation.

What is encoded is decoded again at once and compared: a value that would change on its way is
refused where it was given, not noticed where it arrives. The text is JSON with sorted keys, no
spaces, whole floats with their point (`1.0`) and integers of any size, so equal values have one
text (docs/decisions/0034).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec import inspect as types

from antiphon.runtime.values import custom_types
from antiphon.runtime.values.sameness import difference

_encoder: Final = msgspec.json.Encoder(order="sorted", enc_hook=custom_types.encode)
_PROBLEMS: Final = (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError)


class ValueCodec:
    """One annotation; `Any` is plain JSON."""

    def __init__(self, annotation: Any) -> None:
        """`TypeError` if values of it could not be told apart when they are read."""
        self.annotation = annotation
        check_annotation(annotation)
        self._decode: Callable[[str | bytes | Raw], Any] = msgspec.json.Decoder(
            annotation, dec_hook=custom_types.decode
        ).decode

    def encode(self, value: Any) -> bytes:
        """The text of a value; `TypeError` unless exactly this value can be read from it."""
        try:
            text = _text(value)
        except _PROBLEMS as problem:
            raise TypeError(_in_words(problem)) from None
        try:
            read = self._decode(text)
        except _PROBLEMS as problem:
            if number := _unwritable_number(value):
                raise TypeError(f"JSON has no {number}") from None
            raise TypeError(f"{_expected(self.annotation)}, got {value!r:.80}: {problem}") from None
        changed = difference(value, read)
        if changed is not None:
            if number := _unwritable_number(value):
                raise TypeError(f"JSON has no {number}")
            raise TypeError(f"{changed}; {self._advice()}")
        return text

    def decode(self, text: str | bytes | Raw) -> Any:
        """The value of a text; `TypeError` if it does not fit the annotation."""
        try:
            return self._decode(text)
        except _PROBLEMS as problem:
            raise TypeError(f"{_expected(self.annotation)}: {problem}") from None

    def _advice(self) -> str:
        if self.annotation is Any:
            return "annotate it with its type, or give plain JSON"
        return f"the annotation {_name(self.annotation)} does not say so"


@functools.lru_cache(maxsize=1024)
def codec_of(annotation: Any) -> ValueCodec:
    """The codec of an annotation, made once."""
    return ValueCodec(annotation)


def _text(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except TypeError:
        # Keys that are not text can be written, but not sorted before they are.
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=custom_types.encode)
        return _encoder.encode(plain)


def check_annotation(annotation: Any) -> None:
    """`TypeError` for what could not be told apart when it is read, or not be read at all."""
    try:
        found = types.type_info(annotation)
    except TypeError as problem:
        raise TypeError(f"{_name(annotation)} cannot be carried: {problem}") from None
    _check(found, set())
    try:
        msgspec.json.Decoder(annotation, dec_hook=custom_types.decode)
    except TypeError as problem:
        raise TypeError(f"{_name(annotation)} cannot be carried: {problem}") from None


def _check(found: Any, seen: set[Any]) -> None:
    match found:
        case types.CustomType(cls=cls):
            if not custom_types.is_carried(cls):
                raise TypeError(
                    f"{_name(cls)} cannot be carried; use a dataclass, a pydantic model, or"
                    " anything in docs/values.md"
                )
        case types.UnionType(types=members):
            custom = [one for one in members if isinstance(one, types.CustomType)]
            others = [one for one in members if not isinstance(one, types.NoneType)]
            if custom and len(others) > 1:
                raise TypeError(
                    f"{_name(custom[0].cls)} beside other types cannot be told apart when it is"
                    " read; only '| None' may be beside it"
                )
    for inside in _inside(found):
        key = getattr(inside, "cls", None)
        if key is not None and not isinstance(inside, types.CustomType):
            if key in seen:
                continue
            seen.add(key)
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


def _unwritable_number(value: Any) -> str | None:
    """The first NaN or infinity in a value."""
    match value:
        case float():
            return None if math.isfinite(value) else str(value)
        case list() | tuple() | set() | frozenset():
            inside = iter(value)
        case dict():
            inside = iter(value.values())
        case _:
            inside = iter(getattr(value, "__dict__", {}).values())
    return next(filter(None, map(_unwritable_number, inside)), None)


def _in_words(problem: Exception) -> str:
    if isinstance(problem, UnicodeError):
        return "the text contains a lone surrogate"
    if isinstance(problem, RecursionError):
        return "it is nested too deeply, or contains itself"
    return str(problem)


def _expected(annotation: Any) -> str:
    return f"expected {_name(annotation)}"


def _name(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


PLAIN: Final = ValueCodec(Any)
"""What has no annotation."""
