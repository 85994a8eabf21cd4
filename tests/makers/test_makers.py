"""What signs or stores for others is in the table of makers, and reads back as it says there."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.makers.makers import MAKERS, NOT_READ_BACK
from tests.source_tree import read

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src"
SIGNS = {"sign", "sign_checkpoint", "vouch", "seal"}
STORES = {"write_parts", "put_blob", "add_blob", "keep_bytes", "compress"}
PLACES = {"write": ("store", "archive"), "put": ("blobs", "_first")}
"""Methods with plain names, and how what they are called on is named."""
MAYBE = re.compile(
    rf"\b({'|'.join(sorted(SIGNS | STORES))})\(|(store|archive)\.write\(|(blobs|_first)\.put\("
)
"""What is in the text of a file with such a call: the others need not be parsed."""
READS_BACK = {"read_back", "read_back_stored"}
NOT_OURS = {"testing"}
"""What users test with."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def makes(call: ast.Call) -> bool:
    """Whether a call signs or stores; messages are signed by `MessageType.sign`."""
    match call.func:
        case ast.Name(id=name):
            return name in {"sign", "seal"}
        case ast.Attribute(attr=name, value=value):
            owner = ast.unparse(value).rpartition(".")[2]
            if name in SIGNS - {"seal"}:
                return not owner.isupper()
            return name in STORES or owner.endswith(PLACES.get(name, ("\0",)))
    return False


def functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Function]]:
    """Every function with its name below the module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            name = f"{above}.{node.name}" if above else node.name
            if isinstance(node, Function):
                yield name, node
            yield from functions(node, name)
        else:
            yield from functions(node, above)


def own_calls(function: ast.AST) -> Iterator[ast.Call]:
    """The calls of a function, without those of functions inside."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, Function | ast.ClassDef):
            if isinstance(node, ast.Call):
                yield node
            yield from own_calls(node)


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def makers_in(text: str) -> list[str]:
    """The functions of a module that sign or store."""
    found = functions(parsed(text))
    return [name for name, node in found if any(map(makes, own_calls(node)))]


@cache
def makers() -> set[str]:
    """All of them."""
    found = set()
    for path in sorted((SOURCE / "antiphon").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[1] not in NOT_OURS and MAYBE.search(read(path)):
            found |= {f"{'.'.join(parts)}:{name}" for name in makers_in(read(path))}
    return found


def file_of(where: str) -> Path:
    """The file of `module:function`."""
    return SOURCE / f"{where.partition(':')[0].replace('.', '/')}.py"


def code_of(where: str) -> Function:
    """The code of `module:function`."""
    return dict(functions(parsed(read(file_of(where)))))[where.partition(":")[2]]


def uses(code: ast.AST, name: str) -> bool:
    """Whether a name, or an attribute of that name, occurs there."""
    return any(
        (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        for node in ast.walk(code)
    )


def reads_back(code: ast.AST, reader: str) -> bool:
    """Whether a function hands the reader to `read_back`, or is made by calling it."""
    for call in ast.walk(code):
        if not isinstance(call, ast.Call):
            continue
        if uses(call.func, reader):
            return True
        parts = [call.func, *call.args]
        is_by_helper = any(uses(part, name) for part in parts for name in READS_BACK)
        if is_by_helper and any(uses(part, reader) for part in call.args):
            return True
    return False


def test_every_function_that_signs_or_stores_is_in_the_table():
    known = {one for names in NOT_READ_BACK.values() for one in names}
    assert makers() - known - set(MAKERS) == set(), "a new maker needs a reader, or a reason"
    assert known - makers() == set(), "what is no maker any more needs no reason"
    assert not known & set(MAKERS)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_maker_reads_back_with_the_function_of_its_readers(maker):
    assert code_of(maker), "it is still there"
    row = MAKERS[maker]
    if row.by:
        module = parsed(read(file_of(maker)))
        assert any(uses(module, part) for part in row.by.partition(":")[2].split("."))
    module, _, name = row.reader.partition(":")
    reader = importlib.import_module(module)
    for part in name.split("."):
        reader = getattr(reader, part)
    assert callable(reader)
    code = code_of(row.by or maker)
    is_told_how = any(one.arg == "read" for one in code.args.args)
    assert reads_back(code, "read" if is_told_how else name.rpartition(".")[2])


@pytest.mark.parametrize("maker", MAKERS)
def test_a_fault_is_planted_for_each_maker(maker):
    file, _, name = MAKERS[maker].fault.partition("::")
    tests = dict(functions(parsed(read(ROOT / file))))
    assert name.partition("[")[0] in tests


@pytest.mark.parametrize(
    "text",
    [
        "async def f(self): await self.store.write('a', data)",
        "async def f(archive): await archive.store.write_parts('a', parts)",
        "class C:\n def f(self): return self._keyring.sign('t', b'')",
        "def f(sign): return sign('t', b'')",
        "async def f(self): await self._blobs.put(parts, digest=name)",
        "def f(data): return zlib.compress(data)",
    ],
)
def test_a_new_maker_is_noticed(text):
    assert makers_in(text)


def test_one_that_does_not_read_back_is_noticed():
    forgot = ast.parse("def f(): store.write('a', data); read(data)\n")
    other = ast.parse("def f(): read_back('it', data, other_reader, data)\n")
    right = ast.parse("def f(): read_back('it', data, reader, data)\n")
    aside = ast.parse("async def f(): await to_thread(read_back, 'it', data, m.reader, data)\n")
    assert not reads_back(forgot, "reader")
    assert not reads_back(other, "reader")
    assert reads_back(right, "reader")
    assert reads_back(aside, "reader")
