"""`antiphon token`: a bar-bound token of this machine, for a node's HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.screen.command import Answer, command

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh


@command
async def token(
    mesh: Mesh,
    *,
    project: str = typer.Option("*", metavar="PREFIX", help="The beginning of kinds; '*' for all."),
    role: str = typer.Option(
        "read", help="One of read, schedule, claim, cancel, answer, message, tempo, all."
    ),
) -> Answer:
    """Print a token for a node's HTTP interface.

    It is good for two bars, about a minute at the usual tempo, and permits one role in one
    project. Whoever has it can use it until then, so do not keep it in a file.
    """
    from antiphon.sdk.http.bar_tokens import BarTokens

    text = BarTokens(mesh, project=project, role=role).token()
    return Answer(
        {"token": text, "project": project, "role": role}, lambda: print(text, flush=True)
    )
