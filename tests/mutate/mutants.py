"""Mutants of a package: drawn by a seed, named, and judged equivalent by a table.

A mutant is a line of code drawn from all lines in which something can be changed, and one of the
changes there: so each line of code is as likely as any other. The same seed and the same sources
give the same mutants in the same order, and the first of many are those of few.
"""

from __future__ import annotations

import ast
import random
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutate.changes import changes, lines_with_changes

ROOT = Path(__file__).resolve().parent.parent.parent
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
NOT_MUTATED = "testing/engine_suite"
"""Tests themselves."""


@dataclass(frozen=True)
class Tree:
    """Where a package and its tests are."""

    root: Path
    package: str = "src/antiphon"
    tests: str = "tests"

    def sources(self) -> list[Path]:
        """Its modules, in a fixed order."""
        package = self.root / self.package
        return [
            path
            for path in sorted(package.rglob("*.py"))
            if not path.relative_to(package).as_posix().startswith(NOT_MUTATED)
        ]

    def module(self, path: str) -> str:
        """The name that a file is imported by."""
        above = Path(self.package).parent
        parts = Path(path).relative_to(above).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: str
    key: str
    function: str
    """Where it is; empty for what runs when the module is imported."""
    is_probed: bool
    """Whether a run can tell which tests reach it."""
    said: str
    """The line of the source where it begins."""
    was: str
    becomes: str

    @property
    def name(self) -> str:
        """What `--only` takes."""
        return f"{self.path}:{self.key}"

    @property
    def line(self) -> int:
        return int(self.key.partition(":")[0])

    def sentence(self) -> str:
        """For people."""
        return f"{self.name} {self.function or '(import)'}: {self.was}  ->  {self.becomes}"


@dataclass(frozen=True)
class Equivalent:
    """A change that nobody can notice, and why. It is found again after lines have moved."""

    file: str
    line: str
    """Its text."""
    was: str
    becomes: str
    why: str

    def is_of(self, mutant: Mutant) -> bool:
        """Whether this change was judged."""
        judged = (self.file, self.line, self.was, self.becomes)
        return judged == (mutant.path, mutant.said, mutant.was, mutant.becomes)


def equivalents(table: Path = EQUIVALENT) -> list[Equivalent]:
    """The table of what was judged."""
    said = tomllib.loads(table.read_text(encoding="utf-8"))
    return [Equivalent(**each) for each in said.get("equivalent", [])]


def named(tree: Tree, name: str) -> Mutant:
    """The mutant of a name; `LookupError` if there is none in the sources as they are."""
    path, _, key = name.partition(":")
    source = (tree.root / path).read_text(encoding="utf-8")
    for change in changes(ast.parse(source)):
        if change.key == key:
            said = source.splitlines()[change.line - 1].strip()
            was, becomes = change.made()
            return Mutant(path, key, change.function, change.at is not None, said, was, becomes)
    raise LookupError(f"{name}: nothing can be changed there; the sources may have moved")


def draw(tree: Tree, count: int, seed: int) -> list[Mutant]:
    """As many mutants, by a seed."""
    chance = random.Random(seed)
    lines: list[tuple[str, int, list[str]]] = []
    for path in tree.sources():
        name = path.relative_to(tree.root).as_posix()
        for line, there in lines_with_changes(path.read_text(encoding="utf-8")):
            lines.append((name, line, [change.key for change in there]))
    chance.shuffle(lines)
    drawn = [(path, chance.choice(keys)) for path, _, keys in lines]
    return [named(tree, f"{path}:{key}") for path, key in drawn[:count]]
