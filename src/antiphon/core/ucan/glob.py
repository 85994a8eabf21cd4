r"""Glob patterns of `like`: `*` matches any characters, `\*` a star, all else itself.

A pattern is split at its wildcards once. Matching searches for the pieces from left to right, each
at its first occurrence. That is enough because only `*` is special: no backtracking. The search
for one piece may still cost its length times the text's; callers count that with `weight`.
"""

from __future__ import annotations

import re
from typing import Final

_WILDCARD: Final = re.compile(r"(?<!\\)\*")


class Glob:
    """A compiled pattern."""

    __slots__ = ("_first", "_last", "_middle", "_shortest", "weight")

    def __init__(self, pattern: str) -> None:
        pieces = [piece.replace(r"\*", "*") for piece in _WILDCARD.split(pattern)]
        self._first = pieces[0]
        self._last = pieces[-1] if len(pieces) > 1 else None
        self._middle = tuple(piece for piece in pieces[1:-1] if piece)
        self._shortest = sum(map(len, pieces))
        # The length of the longest piece to search for, plus one; 0 if nothing is searched for.
        self.weight = 1 + max(map(len, self._middle)) if self._middle else 0

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` fits the pattern."""
        if self._last is None:
            return text == self._first
        if len(text) < self._shortest or not text.startswith(self._first):
            return False
        if not text.endswith(self._last):
            return False
        at, end = len(self._first), len(text) - len(self._last)
        for piece in self._middle:
            found = text.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True
