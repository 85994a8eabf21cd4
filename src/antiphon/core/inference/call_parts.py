"""What the readers of APIs have in common: the parts of a call that was understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from antiphon.core.inference.snapshot import Answer, Api
from antiphon.core.record.codec import MAX_INTEGER


class CallParts(Struct, frozen=True, kw_only=True):
    """A request and its answer, taken apart."""

    api: Api
    model: str = ""
    prompt: Any = None
    context: tuple[Any, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    fingerprint: str = ""
    answers: list[Answer] | None = None
    """None: what came back is no answer, such as an error."""
    usage: Any = None
    input_tokens: int | None = None
    output_tokens: int | None = None


ReadsCalls = Callable[[dict[str, Any], dict[str, Any] | None, list[dict[str, Any]]], CallParts]
"""Takes a request and its answer apart: the answer is one object, or events."""


class Retrieved:
    """Collects the retrieved context of a prompt, and leaves a place for each of it there."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.found: list[Any] = []

    def place(self, value: Any) -> dict[str, int]:
        """Take a value out."""
        self.found.append(value)
        return {"context": len(self.found) - 1}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; nothing if it is none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    """An object; empty if it is none."""
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    """A text; empty if it is none."""
    return value if isinstance(value, str) else ""


def count_of(value: Any) -> int | None:
    """A number of tokens; None if it is none."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= MAX_INTEGER else None
