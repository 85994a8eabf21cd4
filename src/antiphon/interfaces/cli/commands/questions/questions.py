"""`antiphon questions`: what people are asked, and nobody has answered."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.durations import seconds
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import out

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh

LOOK_S: Final = 0.5


@command
async def questions(
    mesh: Mesh,
    as_json: bool,  # noqa: ARG001 - every command has it
    *,
    kind: str = typer.Option(
        "", metavar="KIND", help="Only of this kind and below it.", autocompletion=complete_kind
    ),
    wait: float = typer.Option(
        0.0,
        parser=seconds,
        metavar="TIME",
        show_default="0",
        help="If there is none, wait so long for one: 30s, 10m.",
    ),
) -> Answer:
    """List the questions that wait for an answer.

    Jobs ask them, and wait until somebody answers: antiphon answer ID.

    \b
      antiphon questions
      antiphon questions --kind approve --wait 10m
    """  # noqa: D301 - \b keeps the lines apart
    from msgspec import to_builtins

    until = time.monotonic() + wait
    found = await mesh.questions.open(kind=kind)
    for _ in range(round(wait / LOOK_S)):
        if found or time.monotonic() > until:
            break
        await asyncio.sleep(LOOK_S)
        found = await mesh.questions.open(kind=kind)

    def words() -> None:
        if not found:
            out.say("no questions are open")
        for one in found:
            taken = "  somebody is answering it" if one.is_taken else ""
            out.pieces((short(one.job_id), "strong"), (f"  {one.text}", ""), (taken, "quiet"))
            how = ", ".join(one.choices) or ("a form" if one.schema is not None else "any text")
            if one.quorum:
                how += f"; {one.quorum} of {one.people} people have to agree"
            about = f"{one.kind}, asked by {one.asked_by}, open until {one.until}"
            out.pieces((f"  {about}: {how}", "quiet"))

    return Answer({"questions": to_builtins(found)}, words)
