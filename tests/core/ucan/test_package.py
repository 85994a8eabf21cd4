"""The folder could be lifted out of here: it knows nothing of Antiphon but the errors."""

import ast
from pathlib import Path

import pytest

from antiphon.core import ucan

FILES = sorted(Path(ucan.__file__).parent.glob("*.py"))
ALLOWED = ("antiphon.core.ucan", "antiphon.decoding", "antiphon.errors")
OUTSIDE = {"__future__", "collections", "dataclasses", "enum", "functools", "hashlib", "libipld"}
OUTSIDE |= {"msgspec", "nacl", "operator", "re", "typing", "unicodedata"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_imports_this_package_the_errors_and_pure_libraries(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module]
        for name in names:
            assert name.startswith(ALLOWED) or name.partition(".")[0] in OUTSIDE, name


def test_what_is_promised_is_there():
    assert sorted(ucan.__all__) == sorted(set(ucan.__all__))
    assert all(hasattr(ucan, name) for name in ucan.__all__)
