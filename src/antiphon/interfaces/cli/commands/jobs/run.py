"""`antiphon run -- CMD ARGS…`: runs a command on the mesh as if it ran here."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.interfaces.cli.screen.command import command
from antiphon.interfaces.cli.screen.durations import whole_seconds
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.interfaces.cli.screen.options import open_mesh, short
from antiphon.interfaces.cli.screen.progress import Uploads
from antiphon.interfaces.cli.screen.terminal import err
from antiphon.interfaces.cli.shared.job_options import (
    TIMEOUT_WORDS,
    CommandOptions,
    DetachOption,
    LimitOptions,
    parse_budget,
)
from antiphon.interfaces.cli.shared.wait import WaitOptions
from antiphon.sdk.defaults import COMMAND_KIND, TIMEOUT_S

if TYPE_CHECKING:
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.mesh import Mesh

CommandArgument = Annotated[
    list[str], typer.Argument(metavar="-- CMD ARGS", help="The command.", show_default=False)
]


@dataclass(frozen=True)
class RunOptions(CommandOptions, LimitOptions):
    """What `run` can be told."""

    kind: str = typer.Option(
        COMMAND_KIND,
        metavar="KIND",
        help="The kind of the job: decides who may run it.",
        autocompletion=complete_kind,
    )
    timeout: int = typer.Option(
        TIMEOUT_S,
        "--attempt-timeout",
        parser=whole_seconds,
        metavar="TIME",
        show_default=TIMEOUT_WORDS,
        help="How long it may run: 90s, 15m, 2h, 4beats.",
    )
    again: bool = typer.Option(
        False, "--again", help="Run it again, even if the same command already ran."
    )
    ask_first: str = typer.Option(
        "",
        metavar="QUESTION",
        help="Run it only after somebody answered this with yes: 'antiphon answer'.",
    )
    ask_kind: str = typer.Option(
        "",
        metavar="KIND",
        help="The kind of that question: who may answer.",
        show_default="approve.KIND",
    )
    detach: DetachOption = False


@command
def run(
    home: Path | None, as_json: bool, words: CommandArgument, *, asked: RunOptions
) -> Coroutine[Any, Any, int]:
    """Run a command on the mesh, and print what it prints.

    It runs in a sandbox, on a worker that runs commands of its kind: without network access, in a
    directory that contains only its inputs. A program of yours (./convert.py) becomes an input by
    itself; other files need --input. The exit code is the command's own. If the same
    command already ran, you get its stored result; --again runs it again.

    \b
    Examples:
      antiphon run -- sh -c 'echo hello'
      antiphon run --input data.csv --output 'out/*' -- ./convert.py data.csv
      antiphon run --secret token --network --attempt-timeout 15m -- ./deploy.sh
      antiphon run --ask-first 'deploy to production?' -- ./deploy.sh
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.interfaces.cli.shared.follow import follow
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.command_job import with_inputs
    from antiphon.sdk.manifests import authored_manifest

    typed = asked.manifest(words, asked.timeout)
    files = asked.files(typed, is_silent=as_json)
    again_hint = "antiphon run --again with the same arguments, which runs it as a new job"
    wait_options = WaitOptions(not asked.detach, None, as_json, again_hint, {})
    options, mesh = CallOptions(attempts=1), open_mesh(home)
    if asked.label is not None:
        options["concurrency"] = asked.label
    if asked.budget:
        options["budget"] = parse_budget(asked.budget)

    async def go() -> int:
        async with mesh:
            with Uploads() as uploads:
                content = await with_inputs(mesh.artifacts, typed, files, telling=uploads.telling)
            if asked.ask_first:
                options["after"] = [await _question(mesh, asked, is_silent=as_json)]
            if asked.again or asked.ask_first:  # what ran before was not what is asked about
                content = authored_manifest.again(content)

            async def call() -> JobHandle[Any]:
                return await mesh.submit_manifest(asked.kind, content, options=options)

            name = (asked.kind, authored_manifest.job_id(content))
            return await follow(mesh, name, call, wait_options, is_live=True)

    return go()


async def _question(mesh: Mesh, asked: RunOptions, *, is_silent: bool) -> JobHandle[Any]:
    """Ask what has to be answered with yes before the command runs."""
    kind = asked.ask_kind or f"approve.{asked.kind}"
    handle = await mesh.questions.ask(
        asked.ask_first, kind=kind, choices=("yes", "no"), needs="yes"
    )
    if not is_silent:
        err.say(f"it waits for an answer: antiphon answer {short(handle.job_key()[1])} yes")
    return handle
