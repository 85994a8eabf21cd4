"""How a command is declared: its options, what it is given, and what becomes of its answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pytest
import typer
from typer.testing import CliRunner

from antiphon.interfaces.cli import commands
from antiphon.interfaces.cli.application import COMMANDS, make_app, under_headings
from antiphon.interfaces.cli.screen.command import Answer, Options, command, fields

if TYPE_CHECKING:
    from nowhere import Unknown  # what only type checkers know must not be looked up


@dataclass(frozen=True)
class Size(Options):
    wide: Annotated[int, typer.Option("--wide")] = 1


@dataclass(frozen=True)
class Shape(Size):
    colour: Annotated[str, typer.Option("--colour")] = "red"


def typed(work, *words):
    app = typer.Typer()
    app.command()(command(work))
    done = CliRunner().invoke(app, list(words), standalone_mode=False, catch_exceptions=False)
    return done.return_value, done.stdout


async def greet(name: Annotated[str, typer.Argument()], *, loud: bool = False) -> Answer:
    """Greet somebody."""
    said = f"hello {name}{'!' * loud}"
    return Answer({"said": said}, lambda: print(said), 6 if loud else 0)


@pytest.mark.parametrize(
    "words, code, printed",
    [
        (["you"], 0, "hello you\n"),
        (["you", "--loud"], 6, "hello you!\n"),
        (["you", "--json"], 0, '{"said": "hello you"}\n'),
        (["you", "--loud", "--json"], 6, '{"said": "hello you!"}\n'),
    ],
)
def test_an_answer_is_printed_in_words_or_as_json_with_its_exit_code(words, code, printed):
    assert typed(greet, *words) == (code, printed)


def test_every_command_has_home_and_json_after_its_own_options():
    app = typer.Typer()
    app.command()(command(greet))
    params = [one.name for one in typer.main.get_command(app).params]
    assert params[:4] == ["name", "loud", "home", "as_json"]


def test_a_bundle_is_expanded_with_the_commands_own_options_first():
    async def draw(*, shape: Shape) -> Answer:
        return Answer(fields(shape, "wide", "colour"), lambda: None)

    assert json.loads(typed(draw, "--wide", "3", "--json")[1]) == {"wide": 3, "colour": "red"}
    app = typer.Typer()
    app.command()(command(draw))
    params = [one.name for one in typer.main.get_command(app).params]
    assert params[:2] == ["colour", "wide"]


def test_what_a_command_names_is_given_to_it_and_is_no_option(tmp_path):
    seen = []

    async def look(home: Path | None, as_json: bool, stop: Unknown) -> None:
        seen.append((home, as_json, hasattr(stop, "wait")))

    assert typed(look, "--home", str(tmp_path), "--json") == (0, "")
    assert seen == [(tmp_path, True, True)]


def test_a_list_of_objects_is_one_line_for_each():
    async def many() -> Answer:
        return Answer([{"at": 1}, {"at": 2}], lambda: print("two"))

    assert typed(many, "--json") == (0, '{"at": 1}\n{"at": 2}\n')
    assert typed(many) == (0, "two\n")


def test_a_plain_function_acts_before_the_loop_and_may_hand_over_to_it():
    def at_once() -> int:
        return 3

    def later():
        async def work() -> int:
            return 4

        return work()

    assert typed(at_once)[0] == 3
    assert typed(later)[0] == 4


def test_every_module_below_commands_is_the_command_of_its_own_name():
    modules = sorted(Path(commands.__path__[0]).glob("**/[!_]*.py"))
    assert sorted(COMMANDS) == sorted(path.stem for path in modules), "no name is there twice"
    headed = [name for names in under_headings().values() for name in names]
    assert sorted(headed) == sorted(COMMANDS), "each stands under one heading of the help"
    app = make_app()
    made = {one.name for one in (*app.registered_commands, *app.registered_groups)}
    assert made == set(COMMANDS)
