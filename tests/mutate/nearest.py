"""Which files of tests are near a module: those are asked first whether they notice a mutant."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path

from tests.mutate.mutants import Mutant, Tree
from tests.source_tree import facts, read

SAME_NAME, IMPORTS, SAME_FOLDER, MENTIONS, IMPORTS_BESIDE, FAR = range(6)
"""How near a file is: the first that holds."""
LEAST_LETTERS = 5
"""Shorter names say little."""
OURS = ("tests", "conftest", "bench", "chaos", "simulator", "examples")
"""What imports the package, or is changed for the tests."""

NOT_PURE = re.compile("mark.nats|mark.processes|both_engines")
FOLDERS = {"acceptance", "chaos", "sandbox"}
"""All of whose tests start processes (tests/conftest.py)."""


class Nearness:
    """How near each file of tests is to each module."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[str, dict[str, int]] = {}

    @cached_property
    def files(self) -> list[Path]:
        """Every file of tests."""
        return sorted((self._tree.root / self._tree.tests).rglob("test_*.py"))

    def of(self, path: str) -> dict[str, int]:
        """The files that are near a module, and how near."""
        if path not in self._known:
            self._known[path] = self._rank_all(path)
        return self._known[path]

    def ordered(self, mutant: Mutant) -> list[str]:
        """The files that are near a mutant, the nearest first; of equals, those that name it."""
        near = self.of(mutant.path)
        names = {*mutant.function.split("."), *self._names(mutant.path)}

        def key(file: str) -> tuple[int, bool, int, str]:
            said = facts(self._tree.root / file).names
            is_named = mutant.function.rpartition(".")[2] in said
            return near[file], not is_named, -len(names & said), file

        return sorted(near, key=key)

    def has_others(self, file: str) -> bool:
        """Whether a file may have tests that are not pure."""
        is_marked = NOT_PURE.search(read(self._tree.root / file))
        return bool(is_marked) or not FOLDERS.isdisjoint(Path(file).parts)

    def modules_of_others(self) -> set[str]:
        """What sources and tests import that belongs to neither."""
        top = {self._tree.package.rpartition("/")[2], self._tree.tests, *OURS}
        files = (*self._tree.sources(), *self.files)
        imported = {source for file in files for _, source, _ in facts(file).imported if source}
        imported |= {plugin.module for plugin in entry_points(group="pytest11")}
        return {name for name in imported if name.partition(".")[0] not in top}

    def _rank_all(self, path: str) -> dict[str, int]:
        names = self._names(path)
        ranks = {
            file.relative_to(self._tree.root).as_posix(): self._rank(file, path, names)
            for file in self.files
        }
        return {file: rank for file, rank in ranks.items() if rank < FAR}

    def _rank(self, file: Path, path: str, names: frozenset[str]) -> int:
        module = self._tree.module(path)
        below = Path(path).relative_to(self._tree.package)
        folder = self._tree.root / self._tree.tests / below.parent
        imported = _imported(file)
        is_beside = any(name.startswith(module.rpartition(".")[0] + ".") for name in imported)
        found = (
            file.parent == folder and below.stem in file.stem,
            module in imported,
            file.parent == folder,
            bool(names & facts(file).names),
            is_beside and len(below.parts) > 1,
            True,
        )
        return found.index(True)

    def _names(self, path: str) -> frozenset[str]:
        """What a module defines, by names that say something."""
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return frozenset(
            node.name
            for node in ast.parse(read(self._tree.root / path)).body
            if isinstance(node, kinds) and len(node.name) >= LEAST_LETTERS
        )


def _imported(file: Path) -> set[str]:
    """The names of all modules that a file may import."""
    found = facts(file).imported
    return {name for _, source, taken in found for name in (source, f"{source}.{taken}")}
