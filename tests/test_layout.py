"""A test lies where its code lies, and no folder and no module is without any.

Where it cannot, the table says where the tests are. That a test folder has a source folder is
checked by `test_tidy.py`; that a test fails without its code, by `python -m tests.mutate`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.source_tree import facts

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = "interfaces/cli/commands"
ELSEWHERE: Mapping[str, str] = {
    f"{COMMANDS}/archive": "acceptance/test_pages.py",
    f"{COMMANDS}/authority": "acceptance/test_authority_commands.py",
    f"{COMMANDS}/git": "acceptance/test_git.py",
    f"{COMMANDS}/graphs": "acceptance/test_graphs.py",
    f"{COMMANDS}/locks": "acceptance/test_locks.py",
    f"{COMMANDS}/memory": "acceptance/test_memory.py",
    f"{COMMANDS}/mesh": "acceptance/test_two_machines.py",
    f"{COMMANDS}/messages": "acceptance/test_messages.py",
    f"{COMMANDS}/nodes": "acceptance/test_workers.py",
    f"{COMMANDS}/plans": "acceptance/test_plans.py",
    f"{COMMANDS}/proofs": "acceptance/test_first_minutes.py",
    f"{COMMANDS}/questions": "acceptance/test_questions.py",
    "sdk/demo": "acceptance/test_demo.py",
    "sdk/presence": "runtime/presence/test_dead_nodes.py",
    "testing/engine_suite": "engines/memory/test_memory.py",
}
"""Folders whose tests lie elsewhere: commands are typed, and a suite is itself tests."""


def source_folders(source: Path) -> Iterator[str]:
    """Every folder with modules of its own."""
    for folder in sorted({path.parent for path in source.rglob("*.py")}):
        if any(not path.name.startswith("__") for path in folder.glob("*.py")):
            yield folder.relative_to(source).as_posix()


def without_tests(root: Path, elsewhere: Mapping[str, str]) -> list[str]:
    """Source folders without tests of the same path, or below it."""
    return [
        f"src/antiphon/{folder} has no tests in tests/{folder}"
        for folder in source_folders(root / "src" / "antiphon")
        if folder not in elsewhere and not any((root / "tests" / folder).rglob("test_*.py"))
    ]


def imported_by(path: Path) -> set[str]:
    """Every name that a file imports, with the module before it."""
    imported = (module for _, *module in facts(path).imported)
    return {".".join(filter(None, module[:end])) for module in imported for end in (1, 2)}


def unreached(root: Path) -> list[str]:
    """Modules that no test and no command (which tests type) imports, nor what those import."""
    source = root / "src"
    modules = {
        ".".join(path.relative_to(source).with_suffix("").parts): path
        for path in source.rglob("*.py")
        if not path.name.startswith("__") and "interfaces/cli/" not in path.as_posix()
    }
    near: set[str] = set()
    for folder in (root / "tests", source / "antiphon" / "interfaces" / "cli"):
        for path in folder.rglob("*.py"):
            near |= imported_by(path)
    for _ in range(3):  # a package hands on what its modules have, and those what theirs have
        for name in list(near):
            package = source.joinpath(*name.split("."), "__init__.py")
            if path := modules.get(name) or (package if package.is_file() else None):
                near |= imported_by(path)
    left = modules.keys() - near
    elsewhere = tuple(f"antiphon.{folder.replace('/', '.')}." for folder in ELSEWHERE)
    return sorted(
        f"{name}: no test comes near it" for name in left if not name.startswith(elsewhere)
    )


def test_every_source_folder_has_tests_of_its_path():
    assert without_tests(ROOT, ELSEWHERE) == []


def test_what_lies_elsewhere_is_there_and_could_not_lie_here():
    folders = set(source_folders(ROOT / "src" / "antiphon"))
    for folder, tests in ELSEWHERE.items():
        assert folder in folders, f"{folder} is gone: take it out of the table"
        assert (ROOT / "tests" / tests).is_file(), tests
        assert folder in without_tests_names(), f"{folder} has tests of its own now"


def without_tests_names() -> set[str]:
    return {line.split()[0].removeprefix("src/antiphon/") for line in without_tests(ROOT, {})}


def test_a_test_comes_near_every_module():
    assert unreached(ROOT) == []


def test_a_folder_and_a_module_without_tests_are_found(tmp_path):
    source, tests = tmp_path / "src" / "antiphon" / "sdk", tmp_path / "tests" / "sdk"
    for folder in (source, tests):
        folder.mkdir(parents=True)
    for name, text in {"tested": "import antiphon.sdk.near", "near": "", "far": ""}.items():
        (source / f"{name}.py").write_text(text)
    assert without_tests(tmp_path, {}) == ["src/antiphon/sdk has no tests in tests/sdk"]
    assert without_tests(tmp_path, {"sdk": "acceptance/test_it.py"}) == []
    (tests / "test_it.py").write_text("from antiphon.sdk import tested")
    assert without_tests(tmp_path, {}) == []
    assert unreached(tmp_path) == ["antiphon.sdk.far: no test comes near it"]
