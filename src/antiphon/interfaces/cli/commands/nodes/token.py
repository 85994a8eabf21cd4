"""`antiphon token`: a bar-bound token of this machine, for a node's HTTP interface."""

from __future__ import annotations

from typing import Annotated

import typer

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import HomeOption, JsonOption, open_mesh, print_json


def token(
    *,
    project: Annotated[
        str,
        typer.Option("--project", metavar="PREFIX", help="The beginning of kinds; '*' for all."),
    ] = "*",
    role: Annotated[
        str,
        typer.Option("--role", help="One of read, schedule, claim, cancel, tempo, all."),
    ] = "read",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print a token for a node's HTTP interface.

    It is good for two bars, about a minute at the usual tempo, and permits one role in one
    project. Whoever has it can use it until then, so do not keep it in a file.
    """

    async def make() -> int:
        from antiphon.sdk.http.bar_tokens import BarTokens

        mesh = open_mesh(home)
        async with mesh:
            text = BarTokens(mesh, project=project, role=role).token()
        if as_json:
            print_json({"token": text, "project": project, "role": role})
        else:
            print(text, flush=True)
        return Exit.OK

    return command_loop.run(make())
