"""`antiphon memory get|put|delete|ls|conflicts|resolve|watch`: documents that agents share."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antiphon.errors import NotPermitted
from antiphon.interfaces.cli.commands.jobs.submit import parse_value
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
    short,
)
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from pathlib import Path

    from antiphon.sdk.memory.memory_space import Document, PutResult, Sibling
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
def get(
    space: SpaceArgument, key: KeyArgument, *, home: HomeOption = None, as_json: JsonOption = False
) -> int:
    """Print a document's value.

    With --json, its revision and its author too.
    """
    return command_loop.run(_get(open_mesh(home), space, key, as_json=as_json))


async def _get(mesh: Mesh, space: str, key: str, *, as_json: bool) -> int:
    async with mesh:
        found = await mesh.memory[space].get(key)
    if found is None:
        err.say(f"there is no document {key!r} in {space}")
        err.say("  try: ", f"antiphon memory ls {space}")
        return Exit.FAILED
    if as_json:
        print_json(_facts(found))
    else:
        print_json(found.value)
        if found.conflicts:
            err.say(f"{found.conflicts} unresolved: antiphon memory conflicts {space} {key}")
    return Exit.OK


@memory.command("put")
def put(
    space: SpaceArgument,
    key: KeyArgument,
    value: ValueArgument,
    *,
    base: BaseOption = None,
    strategy: StrategyOption = "remote",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Write a document.

    \b
    Examples:
      antiphon memory put notes.team plan '{"steps": 4}'
      antiphon memory put notes.team plan '{"steps": 5}' --base 4711
      antiphon memory put notes.team plan '{"steps": 6}' --base 4711 --strategy defer
    """  # noqa: D301 - \b keeps the lines apart
    written = _put(open_mesh(home), space, key, parse_value(value), base, strategy)
    return command_loop.run(_told(written, as_json=as_json))


async def _put(
    mesh: Mesh,
    space: str,
    key: str,
    value: object,
    base: int | None,
    strategy: Literal["remote", "local", "defer"],
) -> PutResult:
    async with mesh:
        documents = mesh.memory[space]
        if base is None:
            base = 0
            with suppress(NotPermitted):  # the put then says what it takes to write
                present = await documents.get(key)
                base = present.revision if present is not None else 0
        return await documents.put(key, value, base=base, strategy=strategy)


@memory.command("delete")
def delete(
    space: SpaceArgument,
    key: KeyArgument,
    *,
    base: BaseOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Delete a document. Its history stays on the log."""

    async def deleted(mesh: Mesh) -> PutResult:
        async with mesh:
            return await mesh.memory[space].delete(key, base=base)

    return command_loop.run(_told(deleted(open_mesh(home)), as_json=as_json))


@memory.command("resolve")
def resolve(
    space: SpaceArgument,
    key: KeyArgument,
    value: ValueArgument,
    *,
    sibling: Annotated[
        list[str] | None,
        typer.Option(
            "--sibling", metavar="ID", help="End only this conflict; may be repeated. Default: all."
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Resolve the conflicts of a document: this value replaces them."""

    async def resolved(mesh: Mesh) -> PutResult:
        async with mesh:
            documents = mesh.memory[space]
            return await documents.resolve(key, parse_value(value), siblings=sibling or None)

    return command_loop.run(_told(resolved(open_mesh(home)), as_json=as_json))


async def _told(coming: Coroutine[object, object, PutResult], *, as_json: bool) -> int:
    result = await coming
    document = result.document
    if as_json:
        facts = _facts(document) if document is not None else None
        print_json({"outcome": result.outcome, "sibling": result.sibling, "document": facts})
    elif result.outcome == "written" and document is not None:
        did = "deleted" if document.is_deleted else "wrote"
        out.pieces(("✓ ", "succeeded"), (f"{did} {document.key}: revision {document.revision}", ""))
    elif result.outcome == "conflict" and document is not None:
        out.say(f"kept beside {document.key}, which stays at revision {document.revision}")
        err.say("  see: ", f"antiphon memory conflicts {document.space} {document.key}")
    elif document is None or document.is_deleted:
        err.say("skipped: there is no such document")
    else:
        by = f"{short(document.author)}/{document.agent}"
        err.say(f"skipped: the document is at revision {document.revision} by {by}")
        err.say("  write over it with --strategy local, or keep both with --strategy defer")
    return Exit.OK if result.outcome != "skipped" else Exit.CONFLICT


@memory.command("ls")
def ls(
    space: SpaceArgument,
    prefix: Annotated[str, typer.Argument(help="Only keys with this beginning.")] = "",
    *,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the keys of a space."""

    async def listed(mesh: Mesh) -> int:
        async with mesh:
            keys = await mesh.memory[space].keys(prefix)
        if as_json:
            print_json({"space": space, "keys": keys})
        for key in keys if not as_json else ():
            out.say(key)
        if not keys and not as_json:
            err.say(f"no documents in {space}")
        return Exit.OK

    return command_loop.run(listed(open_mesh(home)))


@memory.command("conflicts")
def conflicts(
    space: SpaceArgument,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Only of this document.")
    ] = None,
    *,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """List deferred values that nobody has resolved."""

    async def listed(mesh: Mesh) -> int:
        async with mesh:
            found = await mesh.memory[space].conflicts(key)
        if as_json:
            print_json({"space": space, "conflicts": [_sibling(one) for one in found]})
            return Exit.OK
        for one in found:
            out.pieces((one.key, "strong"), (f"  {one.id}", "quiet"))
            out.say(f"  by {short(one.author)}/{one.agent}, made from revision {one.base}:")
            print_json(one.value)
        if not found:
            err.say("no conflicts")
        return Exit.OK

    return command_loop.run(listed(open_mesh(home)))


@memory.command("watch")
def watch(
    space: SpaceArgument,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Only this document.")] = None,
    *,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print documents as they change, until it is stopped."""

    async def serve(stop: command_loop.Stop) -> int:
        return await _watch(home, space, key, stop, as_json=as_json)

    return command_loop.run_service(serve)


async def _watch(
    home: Path | None, space: str, key: str | None, stop: command_loop.Stop, *, as_json: bool
) -> int:
    import asyncio

    mesh = open_mesh(home)
    async with mesh, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow(mesh, space, key, as_json=as_json))
        tasks.create_task(_end_with(stop, following))
    return Exit.OK


async def _end_with(stop: command_loop.Stop, following: asyncio.Task[None]) -> None:
    await stop.wait()
    following.cancel()


async def _follow(mesh: Mesh, space: str, key: str | None, *, as_json: bool) -> None:
    async with mesh.memory[space].watch(key) as changes:
        err.say(f"watching {key or 'every document'} in {space}")
        async for document in changes:
            if as_json:
                print_json(_facts(document))
                continue
            by = f"{short(document.author)}/{document.agent}"
            waiting = f", {document.conflicts} unresolved" if document.conflicts else ""
            out.say(f"{document.key}: revision {document.revision} by {by}{waiting}")


def _facts(document: Document) -> dict[str, object]:
    return {
        "space": document.space,
        "key": document.key,
        "value": document.value,
        "revision": document.revision,
        "hlc": list(document.hlc),
        "author": document.author,
        "agent": document.agent,
        "conflicts": document.conflicts,
        "deleted": document.is_deleted,
    }


def _sibling(one: Sibling) -> dict[str, object]:
    return {
        "key": one.key,
        "id": one.id,
        "value": one.value,
        "base": one.base,
        "author": one.author,
        "agent": one.agent,
    }
