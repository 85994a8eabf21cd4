"""What a beginner gets wrong, and what they are told: a sentence, a next step, an exit code."""

import errno
import json
import os
import re
import shlex
import socket
import subprocess
import sys

import pytest
import typer

from antiphon.interfaces.cli.application import COMMANDS, make_app, under_headings
from antiphon.interfaces.cli.screen.exits import complain
from tests.acceptance.shell import ANTIPHON, Shell


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory):
    """A directory with no mesh in it."""
    return Shell(tmp_path_factory.mktemp("nowhere"))


@pytest.fixture(scope="module")
def deserted(tmp_path_factory):
    """A state directory whose engine is away."""
    shell = Shell(tmp_path_factory.mktemp("deserted"))
    shell.home.mkdir(mode=0o700)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mesh = {"mesh": "a" * 16, "name": "gone", "engine": f"nats://127.0.0.1:{port}"}
    (shell.home / "mesh.json").write_text(json.dumps(mesh))
    access = shell.home / "access.json"
    access.write_text(json.dumps({"user": "mesh", "password": "secret"}))
    access.chmod(0o600)
    return shell


@pytest.mark.parametrize("words", [(), ("archive",), ("git",), ("lock",), ("memory",), ("plan",)])
def test_a_command_that_needs_another_shows_which_there_are(nowhere, words):
    answer = nowhere.run(*words)
    lines = answer.err.splitlines()
    assert answer.code == 2
    assert lines[0] == f"Usage: {' '.join(['antiphon', *words])} [OPTIONS] COMMAND [ARGS]..."
    assert len(lines) > 8
    assert "\\n" not in answer.err


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_of_somebody_else_is_no_bug(capsys, number):
    refused = OSError(number, os.strerror(number), "/srv/mesh/.antiphon")
    assert complain(refused, as_json=False) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert f"/srv/mesh/.antiphon cannot be used: {os.strerror(number)}" in said
    assert "run this as the user whose mesh it is" in said


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("jobs", 3, "antiphon dev"),
        ("frobnicate", 2, "antiphon --help"),
        ("submit", 2, "antiphon submit --help"),
        ("submit example.add {1", 2, "looks like JSON but is not"),
        ("submit example.add --kw oops", 2, "NAME=JSON"),
        ("submit example.add -5", 2, "put -- before negative numbers"),
        ("submit example.add --attempt-timeout soon", 2, "90s, 15m, 2h, 1d, 1h30m, PT15M"),
        ("submit example.add --lease 0", 2, "is too short"),
        ("submit example.add --delay soon", 2, "15m, 2h, 1d, 1h30m, PT15M"),
        ("submit example.add --delay=-5m", 2, "'-5m' is not a duration"),
        ("submit example.add --at 2026-11-16T03:00", 2, "has no time zone"),
        ("submit example.add --at 2026-11-16T03:00", 2, "2026-11-16T03:00+01:00, or Z for UTC"),
        ("submit example.add --at tomorrow", 2, "is not a point in time"),
        ("submit example.add --delay 1m --at 2026-11-16T03:00Z", 2, "cannot be combined"),
        ("submit example.add --priority urgent", 2, "not one of 'high', 'normal', 'low'"),
        ("submit example.add --attempt-timeout 15m", 3, "antiphon dev"),
        ("jobs --state finished", 2, "not one of"),
        ("worker nosuch.module", 3, "there is no module 'nosuch.module'"),
        ("worker nosuch.py", 3, "there is no file nosuch.py"),
    ],
)
def test_a_mistake_is_explained(nowhere, words, code, said):
    answer = nowhere.run(*words.split())
    assert answer.code == code
    assert answer.out == ""
    assert said in answer.err
    assert answer.err.startswith("✗ ")
    assert "Traceback" not in answer.err


def test_a_mistake_for_programs_is_one_object_on_standard_output(nowhere):
    for words, kind in ((("jobs", "--json"), "Misconfigured"), (("frob", "--json"), "WrongUsage")):
        answer = nowhere.run(*words)
        assert set(answer.json["error"]) == {"kind", "message", "reason", "hint"}
        assert answer.json["error"]["kind"] == kind
        assert answer.err == ""


def test_debug_shows_the_traceback_and_says_once_what_to_try(nowhere):
    said = nowhere.run("jobs", ANTIPHON_LOG_LEVEL="debug").err
    assert "Traceback" in said
    assert said.count("try: ") == nowhere.run("jobs").err.count("try: ") == 1


def test_an_engine_that_is_away_is_code_4(deserted):
    answer = deserted.run("submit", "example.add", "1", "2")
    assert answer.code == 4
    assert "antiphon dev" in answer.err
    assert "secret" not in answer.err
    assert deserted.run("jobs", "--json").json["error"]["kind"] == "Unavailable"


def test_doctor_says_that_the_engine_is_away(deserted):
    answer = deserted.run("doctor")
    assert answer.code == 1
    assert "✗ reach" in answer.out


def test_a_state_directory_of_another_mesh_is_not_taken_over(deserted):
    answer = deserted.run("dev")
    assert answer.code == 3
    assert "belongs to the mesh 'gone'" in answer.err


def test_a_setting_that_makes_no_sense_is_named(deserted):
    answer = deserted.run("worker", "x", ANTIPHON_SLOTS="many")
    assert answer.code == 3
    assert "ANTIPHON_SLOTS" in answer.err


MODULES = {
    "broken": ("import antiphon\n\n1 / 0\n", "ZeroDivisionError: division by zero, at"),
    "missing": ("import not_there\n", "No module named 'not_there'"),
    "empty": ("x = 1\n", "has no Mesh"),
    "idle": ("from antiphon import Mesh\nmesh = Mesh.open()\n", "has no task"),
    "several": (
        "from antiphon import Mesh\na, b = Mesh.open(), Mesh.open()\n",
        "several meshes: a, b",
    ),
    "memory": ("from antiphon import Mesh\nmesh = Mesh.open(engine='memory')\n", "in memory only"),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_without_usable_tasks_is_explained(deserted, name):
    text, said = MODULES[name]
    (deserted.directory / f"{name}.py").write_text(text)
    answer = deserted.run("worker", name)
    assert answer.code == 3, answer
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_without_the_server_extra_dev_says_what_to_install(nowhere):
    program = (
        "import sys\n"
        "from importlib import metadata\n"
        "def files(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.files = files\n"
        "from antiphon.interfaces.cli import main\n"
        "sys.argv = ['antiphon', 'dev']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=nowhere.directory,
        env=nowhere.env | {"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "pip install 'antiphon[server]'" in done.stderr


@pytest.mark.nats
def test_a_port_that_is_taken_says_what_to_type(tmp_path):
    shell = Shell(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = shell.run("init", "--no-up", "--listen", f"127.0.0.1:{port}")
    assert answer.code == 6
    assert answer.err.splitlines() == [
        f"✗ another program already listens at 127.0.0.1:{port}",
        "  try: use a free port: antiphon init --listen 127.0.0.1:0",
    ]
    assert shell.run("init", "--no-up", "--listen", "127.0.0.1:0").code == 0, "nothing is left over"


def cpu_s(command) -> float:
    """The processor time of a command, which its neighbours do not change."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before[2] - before[3]


def test_help_comes_up_quickly_and_lists_every_command(nowhere, record_property):
    answer = nowhere.run("--help")
    assert answer.code == 0
    commands = "dev submit jobs show watch cancel worker node nodes doctor"
    for command in commands.split():
        assert f"\n  {command} " in answer.out
    assert "Exit codes:" in answer.out
    bare = [sys.executable, "-c", "import typer"]
    rounds = [(cpu_s([ANTIPHON, "--help"]), cpu_s(bare)) for _ in range(3)]
    help_s, typer_s = map(min, zip(*rounds, strict=True))
    record_property("times_typer", round(help_s / typer_s, 2))
    assert help_s < 6 * typer_s, "most of it is the library's own beginning"
    loaded = "import sys\nfrom antiphon.interfaces.cli.application import make_app\nmake_app()\n"
    loaded += "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert not {"nats", "msgspec", "rich", "structlog", "pydantic"} & set(done.stdout.split())


def test_the_version_is_an_option(nowhere):
    assert re.match(r"antiphon \d\S* \(Python 3", nowhere.run("--version").out)
    assert nowhere.run("version").code == 2


def test_the_help_has_headings_and_whole_summaries_on_80_columns(nowhere):
    told = nowhere.run("--help").out
    headings = re.findall(r"^(\w[\w ]*):$", told, re.MULTILINE)
    assert headings == ["Options", *(title for title, names in under_headings().items() if names)]
    assert headings[:3] == ["Options", "Start", "Jobs"]
    listed = re.findall(r"^  ([a-z]+) +([A-Z].*)$", told, re.MULTILINE)
    assert {name for name, _ in listed} == set(COMMANDS)
    assert all(words.endswith(".") for _, words in listed), "one line for each"
    for page in [told, *(nowhere.run(name, "--help").out for name in ("memory", "msg", "tempo"))]:
        assert "..." not in page.partition("\n")[2]
        assert max(map(len, page.splitlines())) <= 80


def test_one_name_for_one_thing_in_every_command(nowhere):
    app = typer.main.get_command(make_app())
    options = {one for command in _all(app) for option in command.params for one in option.opts}
    assert {"--detach", "--wait", "--attempt-timeout"} <= options
    assert not {"--no-wait", "--wait-timeout", "--timeout"} & options
    for command in _all(app):
        # How long to wait is a time everywhere; whether to wait is --detach.
        assert all(not one.is_flag for one in command.params if "--wait" in one.opts)


def _all(group):
    for one in group.commands.values():
        yield from _all(one) if hasattr(one, "commands") else [one]


def test_completion_can_be_installed(nowhere, tmp_path):
    """For the shell in which it is typed, whatever the tests themselves were started from."""

    def typed_in_bash(option):
        typed = f"{shlex.quote(str(ANTIPHON))} {option}; exit $?"  # not in the shell's place
        env = nowhere.env | {"HOME": str(tmp_path)}
        done = subprocess.run(
            ["bash", "--norc", "-c", typed], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    typed_in_bash("--install-completion")
    assert "antiphon" in (tmp_path / ".bashrc").read_text()
    assert "_ANTIPHON_COMPLETE" in typed_in_bash("--show-completion")
