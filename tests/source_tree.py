"""What the project's own files say, each read once and walked once in a process of tests.

Parsing the tree takes seconds, so tests that ask it something share these facts. The files of such
tests run in one process (`WHOLE_TREE` in tests/conftest.py).
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Attribute(NamedTuple):
    """`owner.name`; the owner is empty unless it is a plain name."""

    owner: str
    name: str
    line: int


class Facts(NamedTuple):
    """What rules ask of one Python file."""

    has_docstring: bool
    imported: frozenset[tuple[int, str, str]]
    """The level, the module and the name taken from it, or an empty one."""
    calls: tuple[tuple[str, int, bool], ...]
    """The name that is called, the line, and whether it is a plain name or an attribute."""
    attributes: tuple[Attribute, ...]
    names: frozenset[str]
    """Every name that it defines, takes or uses."""
    kinds: tuple[tuple[int, str], ...]
    """Where an argument is called `kind`, and how it is annotated."""
    letters: frozenset[str]
    """Those of its texts that are not ASCII, without docstrings."""


@cache
def read(path: Path) -> str:
    """The file's text."""
    return path.read_text(encoding="utf-8", errors="replace")


@cache
def facts(path: Path) -> Facts:
    """What a Python file says."""
    tree = ast.parse(read(path))
    found = _Walk()
    for node in ast.walk(tree):
        if visit := found.visits.get(type(node)):
            visit(node)
    return Facts(
        has_docstring=bool(ast.get_docstring(tree)),
        imported=frozenset(found.imported),
        calls=tuple(found.calls),
        attributes=tuple(found.attributes),
        names=frozenset(found.names),
        kinds=tuple(found.kinds),
        letters=frozenset(found.letters),
    )


class _Walk:
    """Collects facts, node by node."""

    def __init__(self) -> None:
        self.imported: set[tuple[int, str, str]] = set()
        self.calls: list[tuple[str, int, bool]] = []
        self.attributes: list[Attribute] = []
        self.names: set[str] = set()
        self.kinds: list[tuple[int, str]] = []
        self.letters: set[str] = set()
        self._stated: set[int] = set()
        self.visits = {
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.Call: self._call,
            ast.Attribute: self._attribute,
            ast.Name: lambda node: self.names.add(node.id),
            ast.alias: lambda node: self.names.add(node.name),
            ast.arg: self._argument,
            ast.ClassDef: lambda node: self.names.add(node.name),
            ast.FunctionDef: lambda node: self.names.add(node.name),
            ast.AsyncFunctionDef: lambda node: self.names.add(node.name),
            ast.Expr: lambda node: self._stated.add(id(node.value)),
            ast.Constant: self._constant,
        }

    def _import(self, node: ast.Import) -> None:
        self.imported.update((0, alias.name, "") for alias in node.names)

    def _import_from(self, node: ast.ImportFrom) -> None:
        self.imported.update((node.level, node.module or "", alias.name) for alias in node.names)

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name):
                self.calls.append((name, node.lineno, True))
            case ast.Attribute(attr=name):
                self.calls.append((name, node.lineno, False))

    def _attribute(self, node: ast.Attribute) -> None:
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        self.attributes.append(Attribute(owner, node.attr, node.lineno))
        self.names.add(node.attr)

    def _argument(self, node: ast.arg) -> None:
        self.names.add(node.arg)
        if node.arg == "kind" and node.annotation is not None:
            self.kinds.append((node.lineno, ast.unparse(node.annotation)))

    def _constant(self, node: ast.Constant) -> None:
        # Walked after the statement that it may be the whole of: that is a docstring.
        if (
            isinstance(node.value, str)
            and not node.value.isascii()
            and id(node) not in self._stated
        ):
            self.letters.update(letter for letter in node.value if not letter.isascii())
