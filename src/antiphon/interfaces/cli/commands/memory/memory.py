"""`antiphon memory get|put|delete|ls|conflicts|resolve|watch`: documents that agents share."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from antiphon.errors import NotPermitted
from antiphon.interfaces.cli.screen.command import Answer, Told, command, fields
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.node_names import node_names
from antiphon.interfaces.cli.screen.options import open_mesh, print_json
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.interfaces.cli.shared.job_options import parse_value
from antiphon.interfaces.cli.shared.outbox_words import say_sent, say_tentative

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.sdk.memory.memory_space import Document, PutResult
    from antiphon.sdk.mesh import Mesh

memory = typer.Typer(help="Documents that agents share.", no_args_is_help=True)

SpaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPACE", help="Where the documents are, such as notes.team.", show_default=False
    ),
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The document.", show_default=False)
]
ValueArgument = Annotated[
    str, typer.Argument(metavar="VALUE", help="JSON, or text.", show_default=False)
]
BaseOption = Annotated[
    int | None,
    typer.Option(
        "--base",
        metavar="REVISION",
        help="The revision that your value started from; 0 for a new document. Default: the present"
        " one.",
        show_default=False,
    ),
]
StrategyOption = Annotated[
    Literal["remote", "local", "defer"],
    typer.Option(
        "--strategy",
        help="What to do if the document has another revision: leave it, write over it, or keep "
        "both until somebody resolves it.",
    ),
]


@memory.command("get")
@command
async def get(mesh: Mesh, space: SpaceArgument, key: KeyArgument) -> Told:
    """Print a document's value.

    With --json, its revision and its author too.
    """
    found = await mesh.memory[space].get(key)
    if found is None:
        err.say(f"there is no document {key!r} in {space}")
        err.say("  try: ", f"antiphon memory ls {space}")
        return Exit.FAILED

    def words() -> None:
        print_json(found.value)
        if found.conflicts:
            err.say(f"{found.conflicts} unresolved: antiphon memory conflicts {space} {key}")

    return Answer(_facts(found), words)


@memory.command("put")
@command
def put(
    home: Path | None,
    as_json: bool,
    space: SpaceArgument,
    key: KeyArgument,
    value: ValueArgument,
    *,
    base: BaseOption = None,
    strategy: StrategyOption = "remote",
) -> Coroutine[Any, Any, Answer]:
    """Write a document. Without a connection it waits on this machine: antiphon outbox.

    \b
    Examples:
      antiphon memory put notes.team plan '{"steps": 4}'
      antiphon memory put notes.team plan '{"steps": 5}' --base 4711
      antiphon memory put notes.team plan '{"steps": 6}' --base 4711 --strategy defer
    """  # noqa: D301 - \b keeps the lines apart

    async def go() -> Answer:
        async with open_mesh(home, offline=True) as mesh:
            documents, found = mesh.memory[space], base
            if found is None:
                found = 0
                with suppress(NotPermitted):  # the put then says what it takes to write
                    present = await documents.get(key)
                    found = present.revision if present is not None else 0
            said = await documents.put(key, parse_value(value), base=found, strategy=strategy)
            say_sent(mesh, as_json=as_json)
            return await _told(mesh, said)

    return go()


@memory.command("delete")
@command
def delete(
    home: Path | None,
    as_json: bool,
    space: SpaceArgument,
    key: KeyArgument,
    *,
    base: BaseOption = None,
) -> Coroutine[Any, Any, Answer]:
    """Delete a document. Its history stays on the log."""

    async def go() -> Answer:
        async with open_mesh(home, offline=True) as mesh:
            said = await mesh.memory[space].delete(key, base=base)
            say_sent(mesh, as_json=as_json)
            return await _told(mesh, said)

    return go()


@memory.command("resolve")
@command
async def resolve(
    mesh: Mesh,
    space: SpaceArgument,
    key: KeyArgument,
    value: ValueArgument,
    *,
    sibling: list[str] | None = typer.Option(
        None, metavar="ID", help="End only this conflict; may be repeated. Default: all."
    ),
) -> Answer:
    """Resolve the conflicts of a document: this value replaces them."""
    documents = mesh.memory[space]
    return await _told(
        mesh, await documents.resolve(key, parse_value(value), siblings=sibling or None)
    )


async def _told(mesh: Mesh, result: PutResult) -> Answer:
    document = result.document
    if result.outcome == "tentative":
        why = mesh.outbox.unreachable
        told = {"outcome": "tentative", "is_tentative": True}
        return Answer(told, lambda: say_tentative("document", why))
    skipped = [document.author] if document is not None and result.outcome == "skipped" else []
    name = await node_names(mesh, skipped)

    def words() -> None:
        if document is None or (document.is_deleted and result.outcome == "skipped"):
            err.say("skipped: there is no such document")
        elif result.outcome == "written":
            did = f"{'deleted' if document.is_deleted else 'wrote'} {document.key}"
            out.pieces(("✓ ", "succeeded"), (f"{did}: revision {document.revision}", ""))
        elif result.outcome == "conflict":
            out.say(f"kept beside {document.key}, which stays at revision {document.revision}")
            err.say("  see: ", f"antiphon memory conflicts {document.space} {document.key}")
        else:
            by = f"{name(document.author)}/{document.agent}"
            err.say(f"skipped: the document is at revision {document.revision} by {by}")
            err.say("  write over it with --strategy local, or keep both with --strategy defer")

    facts = _facts(document) if document is not None else None
    return Answer(
        {"outcome": result.outcome, "sibling": result.sibling, "document": facts},
        words,
        Exit.OK if result.outcome != "skipped" else Exit.CONFLICT,
    )


@memory.command("ls")
@command
async def ls(
    mesh: Mesh,
    space: SpaceArgument,
    prefix: str = typer.Argument("", help="Only keys with this beginning."),
) -> Answer:
    """List the keys of a space."""
    keys = await mesh.memory[space].keys(prefix)

    def words() -> None:
        for key in keys:
            out.say(key)
        if not keys:
            err.say(f"no documents in {space}")

    return Answer({"space": space, "keys": keys}, words)


@memory.command("conflicts")
@command
async def conflicts(
    mesh: Mesh,
    space: SpaceArgument,
    key: str | None = typer.Argument(None, metavar="[KEY]", help="Only of this document."),
) -> Answer:
    """List deferred values that nobody has resolved."""
    found = await mesh.memory[space].conflicts(key)
    name = await node_names(mesh, (one.author for one in found))

    def words() -> None:
        for one in found:
            out.pieces((one.key, "strong"), (f"  {one.id}", "quiet"))
            out.say(f"  by {name(one.author)}/{one.agent}, made from revision {one.base}:")
            print_json(one.value)
        if not found:
            err.say("no conflicts")

    facts = [fields(one, "key", "id", "value", "base", "author", "agent") for one in found]
    return Answer({"space": space, "conflicts": facts}, words)


@memory.command("watch")
@command
async def watch(
    mesh: Mesh,
    stop: Stop,
    as_json: bool,
    space: SpaceArgument,
    key: str | None = typer.Argument(None, metavar="[KEY]", help="Only this document."),
) -> None:
    """Print documents as they change, until it is stopped."""
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow(mesh, space, key, as_json=as_json))
        await stop.wait()
        following.cancel()


async def _follow(mesh: Mesh, space: str, key: str | None, *, as_json: bool) -> None:
    names: dict[str, str] = {}
    async with mesh.memory[space].watch(key) as changes:
        err.say(f"watching {key or 'every document'} in {space}")
        async for document in changes:
            if as_json:
                print_json(_facts(document))
                continue
            author = document.author
            if author not in names:
                names[author] = (await node_names(mesh, [author]))(author)
            by = f"{names[author]}/{document.agent}"
            waiting = f", {document.conflicts} unresolved" if document.conflicts else ""
            out.say(f"{document.key}: revision {document.revision} by {by}{waiting}")


def _facts(document: Document) -> dict[str, Any]:
    names = ("space", "key", "value", "revision", "hlc", "author", "agent", "conflicts")
    return {**fields(document, *names), "deleted": document.is_deleted}
