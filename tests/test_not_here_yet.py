"""docs/understand/not-here-yet.md: what it lists does not exist, nothing pending is left out."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from antiphon.core.manifest import Manifest
from antiphon.core.protocol import PROTOCOL
from antiphon.interfaces.cli.application import make_app
from antiphon.interfaces.http import application
from tests.requirements_table import PENDING, TITLES
from tests.test_expectations import rows as expectations

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/understand/not-here-yet.md").read_text()
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
SIGN = re.compile(
    r"(module|command|option|path|op|field|classifier|folder) `([^`]+)`"
    r"|(requirement|expectation) (\w+)"
)
KNOWN_ONCE = {"module": "antiphon.interfaces.http", "command": "antiphon worker"} | {
    "option": "antiphon plan add --on",
    "field": "manifest.timeout",
    "path": "/v1/tempo",
    "op": "job.claim",
    "classifier": "Typing :: Typed",
    "folder": "deploy/systemd",
    "requirement": "M1",
    "expectation": "1",
}
"""Of each kind of sign one that does exist, to show that the test would see it."""


def rows():
    return [match.groups() for match in ROW.finditer(PAGE)][1:]


def signs(text):
    return [(match[1] or match[3], match[2] or match[4]) for match in SIGN.finditer(text)]


def options(words):
    _, *names, option = words.split()
    command = get_command(make_app())
    for name in names:
        command = command.commands[name]
    return option in {text for one in command.params for text in one.opts}


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def exists(kind, name):
    if kind == "module":
        return is_module(name)
    if kind == "command":
        return name.split()[1] in get_command(make_app()).commands
    if kind == "option":
        return options(name)
    if kind == "path":
        return f'"{name}"' in Path(application.__file__).read_text()
    if kind == "op":
        return name in PROTOCOL.ops
    if kind == "field":
        return name.partition(".")[2] in Manifest.__struct_fields__
    if kind == "classifier":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        return name in project["classifiers"]
    if kind == "folder":
        return (ROOT / name).exists()
    if kind == "expectation":
        return name not in unmet()
    return name in TITLES and name not in PENDING


def unmet():
    found = expectations((ROOT / "docs/understand/expectations.md").read_text())
    return {row[0] for row in found if row[3].startswith("no")}


@pytest.mark.parametrize("what, meanwhile, sign", rows())
def test_what_is_listed_as_missing_does_not_exist(what, meanwhile, sign):
    assert signs(sign), "a row names a module, a command, an option, a path, an op, a requirement"
    for kind, name in signs(sign):
        assert not exists(kind, name), f"{kind} {name} exists: remove the row '{what}'"


@pytest.mark.parametrize("kind, name", KNOWN_ONCE.items())
def test_what_exists_would_be_seen(kind, name):
    assert exists(kind, name)


def test_every_pending_requirement_and_every_unmet_expectation_is_on_the_page():
    named = [sign for row in rows() for sign in signs(row[2])]
    assert {name for kind, name in named if kind == "requirement"} == PENDING
    assert {name for kind, name in named if kind == "expectation"} == unmet()
