"""A module that cannot be used: what is wrong with it, where, and what to do."""

import pytest

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.commands.nodes.worker import _check_rated
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.shared.task_modules import find_mesh


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])

    def write(text):
        path = tmp_path / "walked_tasks.py"
        path.write_text(text)
        return str(path)

    return write


def complaint(target):
    with pytest.raises(Misconfigured) as told:
        find_mesh(target)
    assert told.value.hint
    return told.value.message


def test_a_syntax_error_is_told_with_its_own_line(module):
    message = complaint(module("from antiphon import Mesh\nmesh = Mesh.open(\n"))
    assert message.endswith("walked_tasks.py:2")
    assert "importlib" not in message


def test_an_error_inside_is_told_with_its_line(module):
    assert complaint(module("x = 1\nx / 0\n")).endswith("walked_tasks.py:2")


def test_a_script_that_ends_the_program_is_told(module):
    assert "ended the program (exit code 3)" in complaint(module("import sys\nsys.exit(3)\n"))


def test_a_missing_file_and_a_wrong_name_say_what_to_type(module):
    assert "there is no file" in complaint("nowhere.py")
    assert "is not a Mesh" in complaint(module("mesh = 1\n") + ":mesh")


def test_a_rate_for_a_kind_that_is_not_answered_is_a_slip():
    _check_rated({"example.add"}, {"example.add": "1/s"})
    with pytest.raises(WrongUsage, match="has no effect"):
        _check_rated({"example.add"}, {"example.ad": "1/s"})


def test_a_blocking_mesh_is_found_like_the_mesh_that_it_was_made_of(module):
    where = module(
        "from antiphon import Mesh\n"
        "declared = Mesh.open()\n"
        "mesh = declared.blocking()\n"
        "@mesh.task('example.add')\n"
        "def add(a: int, b: int) -> int: ...\n"
    )
    for target in (where, f"{where}:mesh", f"{where}:declared"):
        assert find_mesh(target).kinds == ["example.add"]
