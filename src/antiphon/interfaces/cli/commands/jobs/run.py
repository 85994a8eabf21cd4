"""`antiphon run -- CMD ARGS…`: runs a command on the mesh as if it ran here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import typer

from antiphon.interfaces.cli.commands.jobs.job_options import (
    BudgetOption,
    CommandAgainOption,
    CommandKindOption,
    CommandTimeoutOption,
    DetachOption,
    DirectoryOption,
    InputsOption,
    LimitLabelOption,
    NetworkWishOption,
    OutputsOption,
    SecretsOption,
    VariablesOption,
    command_inputs,
    parse_budget,
    parse_variable,
)
from antiphon.interfaces.cli.commands.jobs.wait import WaitOptions
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.options import HomeOption, JsonOption, open_mesh
from antiphon.interfaces.cli.screen.progress import Progress
from antiphon.sdk.defaults import COMMAND_KIND, TIMEOUT_S

if TYPE_CHECKING:
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.manifests.authored_manifest import Manifest
    from antiphon.sdk.mesh import Mesh

CommandArgument = Annotated[
    list[str], typer.Argument(metavar="-- CMD ARGS", help="The command.", show_default=False)
]


class RunArguments(NamedTuple):
    """The command as it was typed."""

    kind: str
    content: Manifest
    files: list[tuple[Path, str]]
    label: str | None
    budget: dict[str, Any]
    again: bool


def run(
    words: CommandArgument,
    *,
    kind: CommandKindOption = COMMAND_KIND,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    secret: SecretsOption = None,
    network: NetworkWishOption = False,
    env: VariablesOption = None,
    cwd: DirectoryOption = None,
    timeout: CommandTimeoutOption = TIMEOUT_S,
    label: LimitLabelOption = None,
    budget: BudgetOption = None,
    again: CommandAgainOption = False,
    detach: DetachOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
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
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.command_job import command

    content = command(
        words,
        outputs=outputs or [],
        secrets=secret or [],
        network=network,
        env=dict(parse_variable(text) for text in env or ()),
        cwd=cwd,
        timeout=timeout,
    )
    files = command_inputs(content, inputs, is_silent=as_json)
    again_hint = "antiphon run --again with the same arguments, which runs it as a new job"
    wait_options = WaitOptions(not detach, None, as_json, again_hint, {})
    asked = RunArguments(kind, content, files, label, parse_budget(budget or []), again)
    return command_loop.run(_run(open_mesh(home), asked, wait_options))


async def _run(mesh: Mesh, asked: RunArguments, wait_options: WaitOptions) -> int:
    from antiphon.interfaces.cli.commands.jobs.follow import follow
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.command_job import with_inputs
    from antiphon.sdk.manifests import authored_manifest

    async with mesh:
        with Uploads() as uploads:
            content = await with_inputs(mesh, asked.content, asked.files, telling=uploads.telling)
        if asked.again:
            content = mesh.again(content)
        options = CallOptions(attempts=1)
        if asked.label is not None:
            options["concurrency"] = asked.label
        if asked.budget:
            options["budget"] = asked.budget

        async def call() -> JobHandle[Any]:
            return await mesh.submit_manifest(asked.kind, content, options=options)

        name = (asked.kind, authored_manifest.job_id(content))
        return await follow(mesh, name, call, wait_options, is_live=True)


class Uploads:
    """The progress of uploading each input, one after the other."""

    def __init__(self) -> None:
        self._shown: list[Progress] = []

    def telling(self, name: str) -> Progress:
        """The progress line for one file."""
        self._end()
        self._shown.append(Progress(name))
        return self._shown[-1]

    def _end(self) -> None:
        while self._shown:
            self._shown.pop().end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
