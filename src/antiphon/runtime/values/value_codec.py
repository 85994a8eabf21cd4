"""Encodes and decodes values of one annotation.

What is encoded is decoded again at once and compared: a value that would change on its way is
refused where it was given, not noticed where it arrives. The text is JSON with sorted keys, no
spaces, whole floats with their point (`1.0`) and integers of any size, so equal values have one
text (docs/decisions/0034).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from antiphon.runtime.values import custom_types
from antiphon.runtime.values.sameness import difference, field_names

_encoder: Final = msgspec.json.Encoder(order="sorted", enc_hook=custom_types.encode)
_PROBLEMS: Final = (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError)


class ValueCodec:
    """One annotation; `Any` is plain JSON."""

    def __init__(self, annotation: Any) -> None:
        """`TypeError` if values of it could not be told apart when they are read."""
        self.annotation = annotation
        self._has_floats = False
        if annotation is not Any:
            from antiphon.runtime.values.annotation_check import check_annotation

            self._has_floats = check_annotation(annotation)
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
        try:
            changed = difference(value, read)
        except RecursionError as problem:
            raise TypeError(_in_words(problem)) from None
        if changed is not None:
            if number := _unwritable_number(value):
                raise TypeError(f"JSON has no {number}")
            raise TypeError(f"{changed}; {self._advice()}")
        # 1 and 1.0 are equal where a float is expected, and equal values have one text.
        return _text(read) if self._has_floats else text

    def decode(self, text: str | bytes | Raw) -> Any:
        """The value of a text; `TypeError` if it does not fit the annotation."""
        try:
            return self._decode(text)
        except _PROBLEMS as problem:
            raise TypeError(f"{_expected(self.annotation)}: {problem}") from None

    def _advice(self) -> str:
        if self.annotation is Any:
            return "annotate it with its type, or give plain JSON"
        return f"the annotation {name_of(self.annotation)} does not say so"


@functools.lru_cache(maxsize=1024)
def codec_of(annotation: Any) -> ValueCodec:
    """The codec of an annotation, made once."""
    return ValueCodec(annotation)


def _text(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except TypeError:
        # Keys that are not text, and members of sets that have no order among themselves.
        plain = msgspec.to_builtins(_in_order(value), str_keys=True, enc_hook=custom_types.encode)
        return _encoder.encode(plain)


def _in_order(value: Any) -> Any:
    """The same with a list for each set, sorted by the text of its members."""
    match value:
        case set() | frozenset():
            return sorted(map(_in_order, value), key=_text)
        case list() | tuple():
            return [_in_order(one) for one in value]
        case dict():
            return {key: _in_order(one) for key, one in value.items()}
    names = field_names(value)
    if names is None or custom_types.is_pydantic(type(value)):
        return value
    same = copy.copy(value)
    put = msgspec.structs.force_setattr if isinstance(value, Struct) else object.__setattr__
    for name in names:
        put(same, name, _in_order(getattr(value, name)))
    return same


def _unwritable_number(value: Any) -> str | None:
    """The first NaN or infinity in a value."""
    match value:
        case float():
            return None if math.isfinite(value) else str(value)
        case Decimal():
            return None if value.is_finite() else str(value)
        case list() | tuple() | set() | frozenset():
            inside = iter(value)
        case dict():
            inside = iter(value.values())
        case _:
            inside = (getattr(value, name, None) for name in field_names(value) or ())
    return next(filter(None, map(_unwritable_number, inside)), None)


def _in_words(problem: Exception) -> str:
    if isinstance(problem, UnicodeError):
        return "the text contains a lone surrogate"
    if isinstance(problem, RecursionError):
        return "it is nested too deeply, or contains itself"
    return str(problem)


def _expected(annotation: Any) -> str:
    return f"expected {name_of(annotation)}"


def name_of(annotation: Any) -> str:
    """An annotation as a person wrote it, or nearly so."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


PLAIN: Final = ValueCodec(Any)
"""What has no annotation."""
