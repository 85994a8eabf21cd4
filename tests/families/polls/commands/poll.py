"""`antiphon poll ask|close|ls`."""

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.terminal import out

poll = typer.Typer(help="Ask the members of a mesh.", no_args_is_help=True)


@poll.command("ask")
@command
async def ask(mesh, kind: str, name: str, question: str) -> Answer:
    """Open a poll."""
    await mesh.polls.open(kind, name, question)
    return Answer({"poll": name}, lambda: out.say(f"{name} is open"))


@poll.command("close")
@command
async def close(mesh, kind: str, name: str) -> Answer:
    """Close a poll."""
    await mesh.polls.close(kind, name)
    return Answer({"poll": name}, lambda: out.say(f"{name} is closed"))


@poll.command("ls")
@command
async def list_(mesh) -> Answer:
    """List the polls, those with the most votes first."""
    found = await mesh.polls.best()

    def words() -> None:
        for one in found:
            out.say(f"{one.kind} {one.name}: {one.state.question} {one.state.ayes}")

    shown = ("question", "ayes", "is_open")
    facts = [{"poll": one.name, **fields(one.state, *shown)} for one in found]
    return Answer(facts, words)
