"""Who acts is a party: wherever keys are compared, a reason stands beside it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import antiphon
from tests.core.authority.key_comparisons import KEY_COMPARISONS
from tests.source_tree import read

SOURCE = Path(antiphon.__file__).parent
KEYS = {
    "accused", "aud", "audience", "author", "claimer", "coordinator", "did", "giver", "hlc_author",
    "holder", "iss", "issuer", "me", "node", "own_key", "owner", "recovery", "scheduler", "signer",
    "who", "whose",
}  # fmt: skip
"""What keys are called."""
COMPARING = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_WORD = rf"\b(?:{'|'.join(KEYS)})\b"
MAY_COMPARE = re.compile(
    rf"(?:==|!=|\bin\b)[^:\n]{{0,80}}{_WORD}|{_WORD}[^=:\n]{{0,40}}(?:==|!=|\bin\b)"
)
"""What a file has that is worth to be parsed."""


def last_word(node: ast.expr) -> str:
    """`author` of `op.author`."""
    match node:
        case ast.Attribute(attr=word) | ast.Name(id=word):
            return word
        case ast.Call(func=called):
            return last_word(called)
    return ""


def is_of_keys(node: ast.AST) -> bool:
    """Whether it compares a key with something that is no constant."""
    if not isinstance(node, ast.Compare) or not all(isinstance(o, COMPARING) for o in node.ops):
        return False
    sides = [node.left, *node.comparators]
    if any(isinstance(one, ast.Constant) for one in sides):
        return False
    listed = (ast.Tuple, ast.Set, ast.List)
    parts = [p for one in sides for p in (one.elts if isinstance(one, listed) else [one])]
    return any(last_word(part) in KEYS for part in parts)


def comparisons(tree: ast.AST) -> Iterator[str]:
    """The functions of a module that compare keys."""
    left: list[tuple[ast.AST, str]] = [(tree, "")]
    while left:
        node, within = left.pop()
        if is_of_keys(node):
            yield within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = f"{within}.{node.name}".lstrip(".")
        left += [(one, within) for one in ast.iter_child_nodes(node)]


def found_in(source: Path) -> set[str]:
    return {
        f"{path.relative_to(source).as_posix()} {where}"
        for path in source.rglob("*.py")
        if MAY_COMPARE.search(text := read(path))
        for where in comparisons(ast.parse(text))
    }


def test_every_comparison_of_keys_has_its_reason():
    listed = [where for places in KEY_COMPARISONS.values() for where in places]
    assert len(listed) == len(set(listed)), "one reason each"
    found = found_in(SOURCE)
    assert found - set(listed) == set(), "compare parties (core/authority/parties.py), or say why"
    assert set(listed) - found == set(), "what is gone is taken out"


def test_a_new_comparison_of_keys_is_found(tmp_path):
    module = tmp_path / "sdk" / "new.py"
    module.parent.mkdir()
    module.write_text(
        "class Api:\n"
        "    def may_read(self, bearer, job):\n"
        "        return job.scheduler == bearer.holder\n"
        "def is_listed(op, keys):\n"
        "    return op.author in keys and op.kind == 'x'\n"
        "def is_of_a_party(one, other):\n"
        "    return party_of(one) == party_of(other)\n"
    )
    assert found_in(tmp_path) == {"sdk/new.py Api.may_read", "sdk/new.py is_listed"}
