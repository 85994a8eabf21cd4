"""The options of the commands that submit jobs: `submit`, `run` and `plan add`.

Each bundle is what some of them share; a command's own options are a class of its own that is made
of bundles.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from antiphon.interfaces.cli.screen.command import Options
from antiphon.interfaces.cli.screen.durations import (
    in_beats,
    some_seconds,
    span_words,
    whole_seconds,
)
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.terminal import err
from antiphon.sdk.defaults import TIMEOUT_S

if TYPE_CHECKING:
    from antiphon.sdk.manifests.authored_manifest import Manifest

TIMEOUT_WORDS: Final = span_words(TIMEOUT_S * 1000)
PriorityName = Literal["high", "normal", "low"]
"""The priorities, so that the help can list them before anything is loaded."""
DetachOption = Annotated[
    bool, typer.Option("--detach", "-d", help="Print the id of the job, and do not wait for it.")
]
NamedOption = Annotated[
    list[str] | None,
    typer.Option("--kw", metavar="NAME=JSON", help="An argument by name; may be repeated."),
]


@dataclass(frozen=True)
class JobOptions(Options):
    """How a job is run: of `submit` and `plan add`."""

    priority: PriorityName = typer.Option("normal", help="Which waiting jobs start first.")
    timeout: int | None = typer.Option(
        None,
        "--attempt-timeout",
        parser=whole_seconds,
        metavar="TIME",
        help=f"How long one attempt may run: 90s, 15m, 4beats. Default: {TIMEOUT_WORDS}."
        " A manifest sets its own.",
    )
    attempts: int | None = typer.Option(
        None, min=1, help="Attempts before the job fails. Default: the mesh's rule."
    )
    lease: float | None = typer.Option(
        None,
        parser=some_seconds,
        metavar="TIME",
        help="How long a worker that stopped answering keeps the job. Default: the mesh's rule.",
    )
    requires: list[str] | None = typer.Option(
        None,
        metavar="LABEL",
        help="A label that a worker must have, such as gpu=a100 or gpu; may be repeated.",
    )


@dataclass(frozen=True)
class LimitOptions(Options):
    """What a job is counted under, and what it may use up: of `submit` and `run`."""

    label: str | None = typer.Option(
        None,
        metavar="LABEL",
        help="The limit that it counts towards. Default: that of its kind, if there is one.",
    )
    budget: list[str] | None = typer.Option(
        None,
        metavar="NAME=VALUE",
        help="What it may use up: max_bu=8 (beats; or 30s), hard_end=bar+2, max_cost=0.5,"
        " per_bu.cpu_sec=2.5, per_bu.gpu_sec.a100=1; or charge_to=ACCOUNT. May be repeated.",
        show_default=False,
    )


@dataclass(frozen=True)
class FileOptions(Options):
    """The files of a command: of all three."""

    inputs: list[str] | None = typer.Option(
        None,
        "--input",
        "-i",
        metavar="PATH[=NAME]",
        help="A file for the command, under its own name or as NAME; may be repeated.",
        show_default=False,
    )
    outputs: list[str] | None = typer.Option(
        None,
        "--output",
        "-o",
        metavar="GLOB",
        help="Keep the files that match when the command ends; may be repeated.",
        show_default=False,
    )

    def files(
        self, content: Manifest, *, is_silent: bool, note: str = ""
    ) -> list[tuple[Path, str]]:
        """The files for a command; `note` is added to what is said of a program sent along."""
        from antiphon.sdk.command_files import manifest_files

        files = [parse_input(text) for text in self.inputs or ()]
        named = manifest_files(content, files, Path())
        if named.argument:
            path = shlex.quote(named.argument)
            raise WrongUsage(
                f"{named.argument} is a file here, but not an input: the command sees only its"
                " inputs, and would not find it",
                hint=f"--input {path}; or --output {path} if the command writes it",
            )
        if named.program:
            files.append((Path(named.program), named.program))
            if not is_silent:
                err.pieces((f"{named.program} is sent along as an input{note}", "quiet"))
        return files


@dataclass(frozen=True)
class CommandOptions(FileOptions):
    """How a command is run: of `run` and `plan add`."""

    secret: list[str] | None = typer.Option(
        None,
        metavar="NAME",
        help="A secret on the worker, as a file in /run/secrets; may be repeated.",
        show_default=False,
    )
    network: bool = typer.Option(False, "--network", help="Ask for network access.")
    env: list[str] | None = typer.Option(
        None,
        "--env",
        "-e",
        metavar="NAME=VALUE",
        help="An environment variable; its value is on the log; may be repeated.",
        show_default=False,
    )
    cwd: str | None = typer.Option(
        None, metavar="DIR", help="The directory to start in, below its work directory."
    )

    def manifest(self, words: list[str], timeout_s: int) -> Manifest:
        """The command as a manifest."""
        from antiphon.sdk.command_job import command

        return command(
            words,
            outputs=self.outputs or [],
            secrets=self.secret or [],
            network=self.network,
            env=dict(parse_variable(text) for text in self.env or ()),
            cwd=self.cwd,
            timeout=timeout_s,
        )


def parse_input(text: str) -> tuple[Path, str]:
    """A file and the name under which the command finds it."""
    path, name = Path(text), ""
    if not path.exists() and "=" in text:
        before, _, name = text.rpartition("=")
        path = Path(before)
    if path.is_dir():
        raise WrongUsage(
            f"{path} is a directory; an input is one file",
            hint=f"pack it: tar cf input.tar {shlex.quote(str(path))}, then --input input.tar",
        )
    if not path.is_file():
        raise WrongUsage(f"there is no file {path}", hint="--input PATH, or --input PATH=NAME")
    return path, name or path.name


def parse_variable(text: str) -> tuple[str, str]:
    """An environment variable and its value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise WrongUsage(f"{text!r} is not NAME=VALUE", hint="such as --env GREETING=hello")
    return name, value


def parse_value(text: str) -> Any:
    """A JSON value, or the text itself if it does not look like JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as problem:
        if text[:1] in {"{", "[", '"'}:
            raise WrongUsage(
                f"{text!r} looks like JSON but is not: {problem}",
                hint="put single quotes around JSON in a shell: '{\"a\": 1}'",
            ) from problem
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # Python accepts NaN and Infinity, which are not JSON: text


def parse_named(text: str) -> tuple[str, Any]:
    """An argument by its name: NAME=JSON."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise WrongUsage(f"{text!r} is not NAME=JSON", hint="such as --kw seconds=5")
    return name, parse_value(value)


def parse_budget(texts: list[str]) -> dict[str, Any]:
    """A budget from its parts; a dot leads to a key inside."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        *path, last = name.split(".")
        inner = found
        for key in path:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise WrongUsage(f"{name} and {key} cannot both be set", hint="leave out one")
        if not equals or not last or not value:
            raise WrongUsage(f"{text!r} is not NAME=VALUE", hint="such as --budget max_bu=8")
        inner[last] = _amount(name, value)
    return found


def _amount(name: str, text: str) -> int | str:
    """A number, or the text; caps in beats may be typed as durations."""
    if text.isascii() and text.isdecimal():
        return int(text)
    is_in_beats = name == "max_bu" or name.startswith(("phase_caps.", "wait_caps."))
    beats = in_beats(text) if is_in_beats else None
    return text if beats is None else beats
