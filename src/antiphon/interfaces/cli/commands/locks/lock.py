"""`antiphon lock ls|take|break`: who holds what, for people and for scripts."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.durations import seconds
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.node_names import node_names
from antiphon.interfaces.cli.screen.options import open_mesh, print_json
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from antiphon.sdk.locks.lock import Lock
    from antiphon.sdk.mesh import Mesh

lock = typer.Typer(help="Let one agent at a time touch something.", no_args_is_help=True)

STOP_S = 10.0
"""How long a command may take to end after its lock was lost."""

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="What is locked: file:src/lib.rs.", show_default=False)
]
ScopeOption = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="Where the key is unique: repo.app.")
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- CMD ARGS", help="The command to run while it is held.", show_default=False
    ),
]


@lock.command("ls")
@command
async def list_(
    mesh: Mesh,
    as_json: bool,
    *,
    scope: str = typer.Option("", metavar="SCOPE", help="Only locks of this scope."),
) -> Answer:
    """List the locks that are held, by whom and until when."""
    from msgspec import to_builtins

    held = await mesh.locks.list(scope)
    name = await node_names(mesh, () if as_json else (one.node for one in held))

    def words() -> None:
        if not held:
            out.say("no locks are held")
        for one in held:
            state = "free since" if one.is_expired else "until"
            out.pieces((one.key, "strong"), (f"  {one.scope}  {name(one.node)}/{one.agent}", ""))
            until = f"{state} {one.expires}, fence {one.fence}"
            out.pieces((f"  since {one.acquired}, {until}", "quiet"))

    return Answer({"locks": to_builtins(held)}, words)


@lock.command("take")
@command
def take(
    home: Path | None,
    as_json: bool,
    key: KeyArgument,
    words: WordsArgument = None,
    *,
    scope: ScopeOption = "main",
    ttl: str = typer.Option(
        "edit",
        metavar="TIME",
        help="How long a crashed holder keeps it: edit (30 s), task (5 min), 4beats, phase or bar.",
    ),
    wait: float = typer.Option(
        60.0,
        parser=seconds,
        metavar="TIME",
        show_default="1m",
        help="How long to wait for it; 0: not at all.",
    ),
) -> Coroutine[Any, Any, int]:
    """Take a lock, run a command while it is held, and release it.

    The command finds the lock's fence in LOCK_FENCE. It is ended if the lock is lost. The exit
    code is the command's.

    \b
    Example:
      antiphon lock take deploy --scope prod.web -- ./deploy.sh
    """  # noqa: D301 - \b keeps the lines apart
    if not words:
        raise WrongUsage(
            "there is no command to run while the lock is held",
            hint=f"end with a command: antiphon lock take {key} -- ./deploy.sh",
        )
    lasting = _lasting(ttl)

    async def held_while_it_runs() -> int:
        async with (
            open_mesh(home) as mesh,
            mesh.lock(key, scope=scope, ttl=lasting, wait=wait) as held,
        ):
            if not as_json:
                err.say(f"holding {key} in {scope}, fence {held.fence}")
            code = await _run(held, words)
            if as_json:
                print_json({"key": key, "scope": scope, "fence": held.fence, "code": code})
        return code

    return held_while_it_runs()


def _lasting(ttl: str) -> float | Literal["edit", "task", "phase", "bar"]:
    match ttl:
        case "edit" | "task" | "phase" | "bar":
            return ttl
        case _:
            return seconds(ttl)


async def _run(held: Lock, words: list[str]) -> int:
    try:
        process = await asyncio.create_subprocess_exec(
            *words, env={**os.environ, "LOCK_FENCE": held.fence}
        )
    except OSError as problem:
        raise WrongUsage(f"{words[0]} cannot be run: {problem.strerror}") from problem
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


@lock.command("break")
@command
async def break_(
    mesh: Mesh,
    key: KeyArgument,
    *,
    scope: ScopeOption = "main",
    fence: str = typer.Option("", metavar="FENCE", help="Only the hold that has this fence."),
) -> Answer:
    """Take a lock away from its holder, whose command is stopped."""
    was_held = await mesh.locks.break_hold(key, scope=scope, fence=fence)

    def words() -> None:
        if was_held:
            out.pieces(("✓ ", "succeeded"), (f"nobody holds {key} in {scope} any more", ""))
        else:
            out.say(f"nothing to do: nobody holds {key} in {scope}")

    return Answer({"key": key, "scope": scope, "broken": was_held}, words)
