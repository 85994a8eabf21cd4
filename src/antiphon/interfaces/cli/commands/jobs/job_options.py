"""The options of the commands that submit a job, `submit` and `run`: one type for each.

A command's signature names them; the functions below parse and combine them.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from antiphon.interfaces.cli.screen.completion import complete_kind
from antiphon.interfaces.cli.screen.durations import (
    in_beats,
    seconds,
    some_seconds,
    span_words,
    whole_seconds,
    zoned_time,
)
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.terminal import err
from antiphon.sdk.defaults import RETRY_BASE_S, RETRY_CAP_S, TIMEOUT_S

if TYPE_CHECKING:
    from antiphon.sdk.call_options import Retry
    from antiphon.sdk.manifests.authored_manifest import Manifest

TIMEOUT_WORDS: Final = span_words(TIMEOUT_S * 1000)

# --- what is submitted ------------------------------------------------------------------------

NamedOption = Annotated[
    list[str] | None,
    typer.Option("--kw", metavar="NAME=JSON", help="An argument by name; may be repeated."),
]
PriorityName = Literal["high", "normal", "low"]
"""The priorities, so that the help can list them before anything is loaded."""
PriorityOption = Annotated[
    PriorityName,
    typer.Option("--priority", help="Which waiting jobs start first."),
]
ManifestKindOption = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="The kind of a manifest's job: decides who may run it. Required, unless the command"
        " is a handler such as @example.add, whose kind is example.add.",
        autocompletion=complete_kind,
    ),
]
CommandKindOption = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="The kind of the job: decides who may run it.",
        autocompletion=complete_kind,
    ),
]
ManifestAgainOption = Annotated[
    bool, typer.Option("--again", help="Run a manifest again: a nonce makes it a new job.")
]
CommandAgainOption = Annotated[
    bool, typer.Option("--again", help="Run it again, even if the same command already ran.")
]
AliasOption = Annotated[
    bool,
    typer.Option("--alias", help="Give a manifest's job a ULID; its id does not change."),
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="PATH[=NAME]",
        help="A file for the command, under its own name or as NAME; may be repeated.",
        show_default=False,
    ),
]
OutputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="GLOB",
        help="Keep the files that match when the command ends; may be repeated.",
        show_default=False,
    ),
]
SecretsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME",
        help="A secret on the worker, as a file in /run/secrets; may be repeated.",
        show_default=False,
    ),
]
NetworkWishOption = Annotated[bool, typer.Option("--network", help="Ask for network access.")]
VariablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        metavar="NAME=VALUE",
        help="An environment variable; its value is on the log; may be repeated.",
        show_default=False,
    ),
]
DirectoryOption = Annotated[
    str | None,
    typer.Option(
        "--cwd", metavar="DIR", help="The directory to start in, below its work directory."
    ),
]


def command_inputs(
    content: Manifest, typed: list[str] | None, *, is_silent: bool, note: str = ""
) -> list[tuple[Path, str]]:
    """The files for a command; `note` is added to what is said of a program that goes with it."""
    from antiphon.sdk.command_files import manifest_files

    files = [parse_input(text) for text in typed or ()]
    named = manifest_files(content, files, Path())
    if named.argument:
        path = shlex.quote(named.argument)
        raise WrongUsage(
            f"{named.argument} is a file here, but not an input: the command sees only its inputs,"
            " and would not find it",
            hint=f"--input {path}; or --output {path} if the command writes it",
        )
    if named.program:
        files.append((Path(named.program), named.program))
        if not is_silent:
            err.pieces((f"{named.program} is sent along as an input{note}", "quiet"))
    return files


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


# --- how it is run ----------------------------------------------------------------------------

TaskModuleOption = Annotated[
    str,
    typer.Option(
        "--module",
        metavar="MODULE",
        help="Use the options that the task declares in this module. Options that you type override"
        " them.",
        show_default=False,
    ),
]
OnceOption = Annotated[
    bool,
    typer.Option("--once", help="Run the same kind with the same arguments only once, ever."),
]
TimeoutOption = Annotated[
    int | None,
    typer.Option(
        "--attempt-timeout",
        parser=whole_seconds,
        metavar="TIME",
        help=f"How long one attempt may run: 90s, 15m, 4beats. Default: {TIMEOUT_WORDS}. A manifest"
        " sets its own.",
    ),
]
CommandTimeoutOption = Annotated[
    int,
    typer.Option(
        "--attempt-timeout",
        parser=whole_seconds,
        metavar="TIME",
        show_default=TIMEOUT_WORDS,
        help="How long it may run: 90s, 15m, 2h, 4beats.",
    ),
]
LeaseOption = Annotated[
    float | None,
    typer.Option(
        parser=some_seconds,
        metavar="TIME",
        help="How long a worker that stopped answering keeps the job. Default: the mesh's rule.",
    ),
]
DelayOption = Annotated[
    float | None,
    typer.Option(
        parser=seconds,
        metavar="TIME",
        help="Begin this much later: 90s, 15m, 1d, 4beats. The job waits on the mesh, not here.",
    ),
]
AtOption = Annotated[
    datetime | None,
    typer.Option(
        parser=zoned_time,
        metavar="MOMENT",
        help="Begin at this time, with its zone: 2026-11-16T03:00+01:00.",
    ),
]
LimitLabelOption = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="LABEL",
        help="The limit that it counts towards. Default: that of its kind, if there is one.",
    ),
]
RequiresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--requires",
        metavar="LABEL",
        help="A label that a worker must have, such as gpu=a100 or gpu; may be repeated.",
    ),
]
ReplicasOption = Annotated[
    int | None,
    typer.Option("--replicas", metavar="N", help="Run it N times and compare the results."),
]
QuorumOption = Annotated[
    int | None,
    typer.Option(
        "--quorum",
        metavar="K",
        help="With --replicas: how many independent workers have to agree. Default: most of them.",
    ),
]

BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="NAME=VALUE",
        help="What it may use up: max_bu=8 (beats; or 30s), hard_end=bar+2, max_cost=0.5,"
        " per_bu.cpu_sec=2.5, per_bu.gpu_sec.a100=1; or charge_to=ACCOUNT. May be repeated.",
        show_default=False,
    ),
]


ScoreOption = Annotated[
    Path | None,
    typer.Option(
        "--score",
        metavar="FILE",
        help="A YAML file: how many beats, or seconds (30s), each phase may take and it may wait.",
        show_default=False,
    ),
]


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


# --- retries ----------------------------------------------------------------------------------

AttemptsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Attempts before the job fails. Default: the mesh's rule."),
]
RetryBaseOption = Annotated[
    float,
    typer.Option(
        parser=seconds,
        metavar="TIME",
        show_default=span_words(round(RETRY_BASE_S * 1000)),
        help="Delay before the second attempt; doubled for each further one.",
    ),
]
RetryCapOption = Annotated[
    float,
    typer.Option(
        parser=seconds,
        metavar="TIME",
        show_default=span_words(round(RETRY_CAP_S * 1000)),
        help="The longest delay between attempts.",
    ),
]
GiveUpOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ERROR",
        help="Do not retry after this error, such as ValueError; may be repeated.",
    ),
]


def retry_of(
    attempts: int | None, base_s: float, cap_s: float, give_up_on: list[str] | None
) -> Retry:
    """The retry policy of the job."""
    from antiphon.sdk.call_options import Retry

    return Retry(attempts=attempts, base=base_s, cap=cap_s, give_up_on=tuple(give_up_on or ()))


# --- waiting for the result -------------------------------------------------------------------

WaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        parser=seconds,
        metavar="TIME",
        help="How long to wait for the result; the job keeps running. Default: until it ends.",
    ),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", "-d", help="Print the id of the job, and do not wait for it.")
]
