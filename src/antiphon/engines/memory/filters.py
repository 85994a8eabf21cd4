"""A subject filter, taken apart once so that the log can go straight to what it selects.

The runtime asks with a handful of shapes (one subject; a lane by its job id; the announcements of
a kind; everything under `ctl`). Each has an index in the log. `matches` of
`antiphon.core.record.subjects` defines what a filter means; the shapes only say where to look.
"""

from __future__ import annotations

from enum import Enum, auto

from antiphon.core.record.subjects import matches

_SECTION_AT = 2
"""`ap.<mesh>.<section>`: the token behind the root."""


class Shape(Enum):
    """Where the subjects that a filter selects are found."""

    ALL = auto()
    """Everything: the log itself."""
    ONE = auto()
    """A literal subject."""
    HEAD = auto()
    """`<literal>.*`: every subject with that head and one token more."""
    TAIL = auto()
    """Wildcards somewhere, a literal last token: a lane's job id."""
    SECTION = auto()
    """Literal up to the section, wildcards behind."""
    ODD = auto()
    """Anything else: checks every record."""


class SubjectFilter:
    """One filter: its shape, the key into that shape's index, and the test for a subject."""

    __slots__ = ("_prefix", "exact", "key", "pattern", "shape")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.shape, self.key = _shape_of(pattern)
        self.exact = self.shape in {Shape.ALL, Shape.ONE, Shape.HEAD}
        """Whether everything that the index holds under the key matches."""
        stem = pattern.removesuffix(">")
        is_prefix = stem != pattern and stem.endswith(".") and "*" not in stem
        self._prefix = stem if is_prefix else ""

    def selects(self, subject: str) -> bool:
        """Whether a subject matches."""
        if self.shape is Shape.ALL:
            return True
        if self._prefix:
            return subject.startswith(self._prefix)
        return matches(self.pattern, subject)


def _shape_of(pattern: str) -> tuple[Shape, str]:
    if pattern == ">":
        return Shape.ALL, ""
    tokens = pattern.split(".")
    wild = [at for at, token in enumerate(tokens) if token in {"*", ">"}]
    if not wild:
        return Shape.ONE, pattern
    if wild == [len(tokens) - 1] and tokens[-1] == "*":
        return Shape.HEAD, pattern.removesuffix(".*")
    if tokens[-1] not in {"*", ">"}:
        return Shape.TAIL, tokens[-1]
    if wild[0] > _SECTION_AT:
        return Shape.SECTION, ".".join(tokens[: _SECTION_AT + 1])
    return Shape.ODD, ""
