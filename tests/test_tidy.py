"""The house rules that no linter knows: size, names, dead files, stray hosts and paths.

Each rule is a function from a tree to the list of its offences, so that the second half of this
file can show every one of them failing on a small tree made for it.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.source_tree import facts, read

ROOT = Path(__file__).resolve().parent.parent

MAX_LINES = 600
MAX_MODULES = 16
MIRRORED = ("assembly", "core", "engines", "interfaces", "processes", "runtime", "sandbox", "sdk")
PYTHON_FOLDERS = ("src", "bench", "chaos", "simulator", "tests", "scripts", "examples")
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
# Words are put together here, so that this file does not offend against itself.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
STRAYS = re.compile(
    "|".join(
        (
            r"(?<![\w.])/(?:wo" + r"rk|ro" + r"ot|fa" + r"rm)/",
            r"(?<![\w.])/ho" + r"me/\w",
            r"(?<![\w.])/Us" + r"ers/\w",
            "pypi" + r"\.org/sim" + "ple",
            "files" + r"\.python" + "hosted",
            "--(?:extra-)?index" + "-url[ =]",
            "--find" + "-links[ =]",
            "registry" + r"\.npm" + "js",
        )
    )
)
# Modules that no other imports because people do: the suite that an engine's own tests inherit.
USED_BY_NAME = {
    "antiphon.testing.engine_suite",
    "antiphon.testing.model_server",  # for those who test agents
}
NOT_OURS = {".git", "__pycache__", "node_modules", "dist", "build", "results", "htmlcov"}
DOT_FOLDERS_OF_OURS = {".ci", ".github"}
TEXT = {"", ".py", ".md", ".toml", ".txt", ".lock", ".sh", ".yaml", ".yml", ".json", ".cfg", ".ini"}
TEXT |= {".html", ".css", ".js", ".svg", ".conf", ".service"}


@cache
def files(root: Path) -> list[Path]:
    """Every file of the project, without environments, caches and node state."""
    found: list[Path] = []
    for path in sorted(root.iterdir()):
        if path.is_symlink() or path.name in NOT_OURS:
            continue
        if path.is_file():
            found.append(path)
        elif not path.name.startswith(".") or path.name in DOT_FOLDERS_OF_OURS:
            found += files(path)
    return found


def python_files(root: Path, *folders: str) -> Iterator[Path]:
    for folder in folders or PYTHON_FOLDERS:
        if not (root / folder).is_dir():
            continue
        for path in files(root / folder):
            if path.suffix == ".py" or read(path).startswith("#!/usr/bin/env python3"):
                yield path


def lines_with(pattern: re.Pattern[str], path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file in which a pattern is found, with their numbers; most files have none."""
    if pattern.search(read(path)):
        for number, line in enumerate(read(path).splitlines(), 1):
            if pattern.search(line):
                yield number, line


def module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(root: Path, path: Path) -> set[str]:
    """The names that a file imports, absolute: modules, and what is taken out of them."""
    found: set[str] = set()
    package = (
        list(path.relative_to(root / "src").parent.parts) if root / "src" in path.parents else []
    )
    for level, module, name in facts(path).imported:
        above = package[: len(package) - level + 1] if level else []
        base = ".".join([*above, *([module] if module else [])])
        found |= {base, f"{base}.{name}"} if name else {base}
    return found


# --- the rules -------------------------------------------------------------------------------


def too_long(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: {lines} lines; up to {MAX_LINES}. Is it still one thing?"
        for path in python_files(root)
        if (lines := len(read(path).splitlines())) > MAX_LINES
    ]


def crowded(root: Path) -> list[str]:
    return [
        f"{folder.relative_to(root)}: {modules} modules; up to {MAX_MODULES}"
        for top in ("src", "bench", "chaos", "simulator")
        for folder in sorted((root / top).rglob("*"))
        if folder.is_dir() and folder.name not in NOT_OURS
        if (modules := sum(one.name != "__init__.py" for one in folder.glob("*.py"))) > MAX_MODULES
    ]


def not_mirrored(root: Path) -> list[str]:
    """Folders of tests about a part of the package that has no such folder."""
    source = root / "src" / "antiphon"
    return [
        f"{folder.relative_to(root)}: src/antiphon has no such folder"
        for part in MIRRORED
        for folder in sorted((root / "tests" / part).rglob("*"))
        if folder.is_dir() and folder.name not in NOT_OURS
        if not (source / folder.relative_to(root / "tests")).is_dir()
    ]


def badly_named(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: '{word}' says nothing; name it after what it is"
        for folder in PYTHON_FOLDERS
        if (root / folder).is_dir()
        for path in files(root / folder)
        for part in path.relative_to(root).parts
        for word in re.split(r"[_.\-]", part)
        if word in BANNED_NAMES
    ]


def unfinished(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: open work belongs in an issue"
        for path in python_files(root)
        for number, _ in lines_with(UNFINISHED, path)
    ]


def printing(root: Path) -> list[str]:
    """Only the interfaces speak to a terminal."""
    source = root / "src" / "antiphon"
    return [
        f"{path.relative_to(root)}:{line}: print() outside interfaces"
        for path in python_files(root, "src")
        if path.relative_to(source).parts[0] != "interfaces"
        for name, line, is_plain in facts(path).calls
        if name == "print" and is_plain
    ]


def dead(root: Path) -> list[str]:
    """Modules that nothing in the package imports and nobody starts."""
    modules = {module_name(root, path): path for path in python_files(root, "src")}
    alive = {"antiphon"} | USED_BY_NAME
    for path in modules.values():
        alive |= imports_of(root, path)
        # What is imported on first use stands there as a string: ".sdk.mesh", "antiphon.sdk".
        if path.name == "__init__.py":
            quoted = re.findall(r"""["'](?:antiphon)?\.?([a-z0-9_.]+)["']""", read(path))
            alive |= {f"antiphon.{name}" for name in quoted}
    # The command line finds its commands where they lie.
    alive |= {name for name in modules if name.startswith("antiphon.interfaces.cli.commands.")}
    project = tomllib.loads(read(root / "pyproject.toml"))["project"]
    for group in (project.get("scripts", {}), *project.get("entry-points", {}).values()):
        alive |= {start.partition(":")[0] for start in group.values()}
    # A package is alive with any of its modules.
    alive |= {name[: dot.start()] for name in alive for dot in re.finditer(r"\.", name)}
    return [
        f"{path.relative_to(root)}: nothing imports it and nothing starts it"
        for name, path in modules.items()
        if name not in alive and not name.endswith("__main__")
    ]


def strays(root: Path) -> list[str]:
    """Hosts of package registries and paths of somebody's machine."""
    return [
        f"{path.relative_to(root)}:{number}: a registry host, or a path of one machine"
        for path in files(root)
        if path.suffix in TEXT or path.name.startswith(".")
        for number, _ in lines_with(STRAYS, path)
    ]


def looking_up(root: Path) -> list[str]:
    """Imports of the root package from inside: they would tie every layer to every other."""
    return [
        f"{path.relative_to(root)}: imports from the root package"
        for path in python_files(root, "src")
        if "antiphon" in imports_of(root, path)
    ]


UNDERNEATH = {"session", "connection", "executors"}
"""Attributes of the sdk's objects that lead below it."""
PUBLIC_ALL_THE_SAME = {"_asdict", "_exit", "_fields", "_replace"}
"""Named tuples and `os` spell these so."""


def reaching_through(root: Path) -> list[str]:
    """Doors that take hold of what an object of the sdk stands on: the sdk lacks a method."""
    interfaces = "src/antiphon/interfaces"
    return [
        f"{path.relative_to(root)}:{line}: .{name} reaches below the sdk; give the sdk"
        " a method for it"
        for path in python_files(root, interfaces)
        for owner, name, line in facts(path).attributes
        if (name in UNDERNEATH or _is_private(name)) and owner not in {"self", "cls"}
    ]


WRITER = "src/antiphon/runtime/log/writer.py"
WRITES = re.compile(r"\.commit\(|session\.send\(")


def writing_past_the_writer(root: Path) -> list[str]:
    """Records sent by others than the writer: what it does about lost answers is done there."""
    return [
        f"{path.relative_to(root)}:{number}: only {WRITER} sends records; pass it an intent"
        for path in python_files(root, "src")
        if path != root / WRITER
        for number, _ in lines_with(WRITES, path)
    ]


def _is_private(name: str) -> bool:
    return re.match(r"_[^_]", name) is not None and name not in PUBLIC_ALL_THE_SAME


def undocumented(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: opens without a docstring"
        for path in python_files(root, "src", "bench", "chaos", "simulator", "scripts")
        if not facts(path).has_docstring
    ]


SPECIFICATION = Path("docs/reference/specification.md")
CAPITALS = re.compile(r"\bSPEC(?:\.md)?\b")
SECTION = re.compile(r"§(\d+(?:\.\d+)*)")
CITED = re.compile(
    r"\bspec(?:ification)? (§\d+(?:\.\d+)*(?:(?:, | and )§\d+(?:\.\d+)*)*)", re.IGNORECASE
)


def miscited(root: Path) -> list[str]:
    """Sections of the specification that are cited and do not exist."""
    page = read(root / SPECIFICATION)
    known = set(re.findall(r"^##+ (\d+(?:\.\d+)*)\.? ", page, re.MULTILINE))

    def sections(path: Path, line: str) -> Iterator[str]:
        own = path == root / SPECIFICATION
        for cited in [line] if own else CITED.findall(line):
            yield from SECTION.findall(cited)

    return [
        f"{path.relative_to(root)}:{number}: {SPECIFICATION} has no section {section}"
        for path in files(root)
        if path.suffix in TEXT
        for number, line in lines_with(SECTION, path)
        for section in sections(path, line)
        if section not in known
    ]


def cited_by_another_name(root: Path) -> list[str]:
    """The specification in capitals was a file that no reader of this tree has."""
    return [
        f"{path.relative_to(root)}:{number}: cite {SPECIFICATION} as 'spec §7.2'"
        for path in files(root)
        if path.suffix in TEXT
        for number, _ in lines_with(CAPITALS, path)
    ]


PAGE = re.compile(r"\b(?:docs|examples)/\w")


def naming_pages(root: Path) -> list[str]:
    """Messages and helps that name a page or an example: an installed package has neither."""
    return [
        f"{path.relative_to(root)}:{line}: {found[0]}… is not installed; say it, or name a --help"
        for path in python_files(root, "src")
        for line, text in _printed_texts(root, path)
        if (found := PAGE.search(text))
    ]


def _printed_texts(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module; docstrings only where they are a command's help."""
    tree = ast.parse(read(path))
    is_help = path.is_relative_to(root / "src/antiphon/interfaces/cli/commands")
    silent: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(node.value)
        if is_help and isinstance(node, ast.FunctionDef):
            yield node.lineno, ast.get_docstring(node) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent:
            yield node.lineno, node.value


HALF_CAUGHT = re.compile(r"\bexcept\b.*\bmsgspec\.(?:MsgspecError|DecodeError)\b")


def half_caught(root: Path) -> list[str]:
    """Bytes of others that are no UTF-8, or nested too deeply, raise what msgspec does not own."""
    return [
        f"{path.relative_to(root)}:{number}: catch decoding.UNREADABLE, which is all of it"
        for path in python_files(root, "src")
        for number, _ in lines_with(HALF_CAUGHT, path)
    ]


RULES = [
    too_long,
    crowded,
    not_mirrored,
    badly_named,
    unfinished,
    printing,
    dead,
    strays,
    looking_up,
    undocumented,
]
RULES += [miscited, cited_by_another_name, reaching_through, naming_pages]
RULES += [writing_past_the_writer, half_caught]


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_is_tidy(rule):
    offences = rule(ROOT)
    assert not offences, "\n".join(offences)


# --- and the rules themselves can fail -------------------------------------------------------

DOC = '"""A module."""\n'
HOUSE = {
    "pyproject.toml": "[project]\nscripts = {antiphon = 'antiphon.interfaces.cli:main'}\n",
    "src/antiphon/__init__.py": DOC + 'LAZY = {"Mesh": ".sdk"}\n',
    "src/antiphon/sdk.py": DOC + "from antiphon.errors import Rejected\n",
    "src/antiphon/errors.py": DOC,
    "src/antiphon/interfaces/__init__.py": DOC,
    "src/antiphon/interfaces/cli.py": DOC + "print('hello')\n",
    "docs/reference/specification.md": "## 1. Who\n## 2. What\n### 2.1 Which\nSee §1 and §2.1.\n",
    "docs/notes.md": "Spec" + " §2.1 and §1 say so; RFC 9162 §7 is another matter.\n",
}


def build(root: Path, tree: dict[str, str]) -> Path:
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize("rule", RULES)
def test_a_tidy_house_has_no_offences(rule, tmp_path):
    assert rule(build(tmp_path, HOUSE)) == []


BREACHES = [
    (too_long, "tests/test_saga.py", "x = 1\n" * (MAX_LINES + 1)),
    (too_long, "scripts/saga", "#!/usr/bin/env python3\n" * (MAX_LINES + 1)),
    (badly_named, "src/antiphon/lease_utils.py", DOC),
    (badly_named, "tests/helpers/lease.py", DOC),
    (unfinished, "bench/lifecycle.py", "x = 1  # TO" + "DO later\n"),
    (printing, "src/antiphon/core/jobs.py", DOC + "print('claimed')\n"),
    (dead, "src/antiphon/sdk_old.py", DOC),
    (dead, "src/antiphon/runtime/__init__.py", DOC),
    (strays, "docs/notes.md", "see /wo" + "rk/notes\n"),
    (strays, "requirements.lock", "--index" + "-url somewhere\n"),
    (strays, "scripts/setup", "pip install x -i https://pypi" + ".org/simple\n"),
    (looking_up, "src/antiphon/sdk2.py", DOC + "from antiphon import Mesh\n"),
    (looking_up, "src/antiphon/runtime/node/full_node.py", DOC + "from ... import Mesh\n"),
    (looking_up, "src/antiphon/node.py", DOC + "import antiphon\n"),
    (reaching_through, "src/antiphon/interfaces/tui.py", DOC + "mesh.connection.session.control\n"),
    (reaching_through, "src/antiphon/interfaces/tui.py", DOC + "self._mesh.connection.session\n"),
    (reaching_through, "src/antiphon/interfaces/tui.py", DOC + "mesh.connection\n"),
    (reaching_through, "src/antiphon/interfaces/tui.py", DOC + "handle._peer\n"),
    (undocumented, "src/antiphon/core/jobs.py", "x = 1\n"),
    (writing_past_the_writer, "src/antiphon/tide.py", DOC + "await session.send([draft])\n"),
    (writing_past_the_writer, "src/antiphon/tide.py", DOC + "self._session.commit(draft)\n"),
    (miscited, "src/antiphon/core/jobs.py", '"""A job (spec' + ' §3)."""\n'),
    (miscited, "src/antiphon/core/jobs.py", '"""A job (spec' + ' §1, §2.2)."""\n'),
    (miscited, "docs/other.md", "as specification" + " §2 and §12 say\n"),
    (miscited, "docs/reference/specification.md", "## 1. Who\nSee §2.\n"),
    (cited_by_another_name, "src/antiphon/core/jobs.py", '"""A job (SP' + 'EC §1)."""\n'),
    (half_caught, "src/antiphon/core/jobs.py", DOC + "except msgspec.MsgspecError:\n"),
    (half_caught, "src/antiphon/core/jobs.py", DOC + "except (OSError, msgspec.DecodeError):\n"),
    (undocumented, "chaos/stale.py", ""),
    (undocumented, "simulator/seeds.py", ""),
    (naming_pages, "src/antiphon/core/jobs.py", DOC + "hint = 'see docs/jobs.md'\n"),
    (
        naming_pages,
        "src/antiphon/interfaces/cli/commands/run.py",
        DOC + "def run():\n    " + '"""Run it: examples/run.yaml."""\n',
    ),
]


def test_a_crowded_folder_is_seen(tmp_path):
    modules = {f"chaos/storms/storm_{number}.py": DOC for number in range(MAX_MODULES + 1)}
    assert crowded(build(tmp_path, HOUSE | modules)) != []


def test_tests_of_a_folder_that_is_not_there_are_seen(tmp_path):
    assert not_mirrored(build(tmp_path, HOUSE | {"tests/core/attic/test_old.py": DOC})) != []


@pytest.mark.parametrize("rule, name, text", BREACHES)
def test_each_rule_sees_its_breach(rule, name, text, tmp_path):
    root = build(tmp_path, {**HOUSE, name: text})
    assert any(offence.startswith(name) for offence in rule(root))
