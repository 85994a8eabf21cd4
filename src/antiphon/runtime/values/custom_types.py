"""Types that msgspec does not carry by itself, each with the JSON that stands for it.

Pydantic is not imported: its models are recognised by their methods.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Final

import msgspec

AS_TEXT: Final = frozenset(
    {
        "fractions.Fraction",
        "ipaddress.IPv4Address",
        "ipaddress.IPv4Interface",
        "ipaddress.IPv4Network",
        "ipaddress.IPv6Address",
        "ipaddress.IPv6Interface",
        "ipaddress.IPv6Network",
    }
)
"""`str` writes them, and their class reads that. By name: nobody loads what no task names."""


def is_text(cls: type[Any]) -> bool:
    """Whether values of a class are carried as their text."""
    if issubclass(cls, PurePath):
        return True
    return any(f"{one.__module__}.{one.__qualname__}" in AS_TEXT for one in cls.__mro__)


def is_pydantic(cls: object) -> bool:
    """Whether a class is a pydantic model."""
    return isinstance(cls, type) and all(
        hasattr(cls, name) for name in ("model_dump", "model_validate_json", "model_fields")
    )


def is_carried(cls: object) -> bool:
    """Whether a class outside of msgspec's own can be encoded and decoded here."""
    # `object` says as little as `Any`: plain JSON.
    return cls is object or is_pydantic(cls) or (isinstance(cls, type) and is_text(cls))


def encode(value: Any) -> Any:
    """What msgspec should write instead of this value."""
    if is_pydantic(type(value)):
        return _dumped(value)
    if is_text(type(value)):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _dumped(model: Any) -> Any:
    """A pydantic model as plain JSON, its sets in one order."""
    # What pydantic would warn of is refused: the text is read again and compared.
    how = {"by_alias": True, "round_trip": True, "warnings": False}
    try:
        return _in_order(model.model_dump(**how), model.model_dump(mode="json", **how))
    except UnicodeDecodeError:
        raise TypeError(
            f"{type(model).__name__} holds bytes that are not text; give its model_config"
            " ser_json_bytes='base64' and val_json_bytes='base64'"
        ) from None


def _in_order(given: Any, plain: Any) -> Any:
    """The same plain JSON; where a set was given, its members are sorted by their text."""
    match given, plain:
        case set() | frozenset(), list():
            return sorted(plain, key=msgspec.json.encode)
        case list() | tuple(), list():
            return [_in_order(*pair) for pair in zip(given, plain, strict=True)]
        case dict(), dict():
            pairs = zip(given.values(), plain.items(), strict=True)
            return {key: _in_order(one, other) for one, (key, other) in pairs}
    return plain


def decode(cls: type[Any], plain: Any) -> Any:
    """A value of this class, from what msgspec has read."""
    if cls is object:
        return plain
    if is_pydantic(cls):
        return cls.model_validate_json(msgspec.json.encode(plain))
    if is_text(cls):
        if not isinstance(plain, str):
            raise TypeError(f"expected {cls.__name__} as text")
        return cls(plain)
    raise TypeError(f"{cls.__name__} cannot be read from JSON")
