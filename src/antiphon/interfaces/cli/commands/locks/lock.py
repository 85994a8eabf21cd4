"""`antiphon lock ls|take|break`: who holds what, for people and for scripts."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.durations import seconds
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
)
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from antiphon.sdk.locks.lock import Lock
    from antiphon.sdk.mesh import Mesh

lock = typer.Typer(help="Let one agent at a time touch something.", no_args_is_help=True)

STOP_S = 10.0
"""How long a command may take to end after its lock was lost."""

Times = tuple[float | Literal["phase", "bar"], float]
"""How long a lock outlives its holder, and how long it is waited for."""
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
def list_(
    *,
    scope: Annotated[
        str, typer.Option("--scope", metavar="SCOPE", help="Only locks of this scope.")
    ] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the locks that are held, by whom and until when."""
    return command_loop.run(_list(open_mesh(home), scope, as_json=as_json))


async def _list(mesh: Mesh, scope: str, *, as_json: bool) -> int:
    from msgspec import to_builtins

    async with mesh:
        held = await mesh.locks(scope)
    if as_json:
        print_json({"locks": [to_builtins(one) for one in held]})
        return Exit.OK
    if not held:
        out.say("no locks are held")
        return Exit.OK
    for one in held:
        state = "free since" if one.is_expired else "until"
        out.pieces((one.key, "strong"), (f"  {one.scope}  {one.node[-8:]}/{one.agent}", ""))
        out.pieces((f"  since {one.acquired}, {state} {one.expires}, fence {one.fence}", "quiet"))
    return Exit.OK


@lock.command("take")
def take(
    key: KeyArgument,
    words: WordsArgument = None,
    *,
    scope: ScopeOption = "main",
    ttl: Annotated[
        str,
        typer.Option(
            "--ttl",
            metavar="TIME",
            help="How long a crashed holder keeps it: 30s, 4beats, phase or bar.",
        ),
    ] = "30s",
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            parser=seconds,
            metavar="TIME",
            show_default="1m",
            help="How long to wait for it; 0: not at all.",
        ),
    ] = 60.0,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
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
    times = (_lasting(ttl), wait)
    return command_loop.run(_take(open_mesh(home), key, scope, times, words, as_json=as_json))


def _lasting(ttl: str) -> float | Literal["phase", "bar"]:
    match ttl:
        case "phase" | "bar":
            return ttl
        case _:
            return seconds(ttl)


async def _take(
    mesh: Mesh, key: str, scope: str, times: Times, words: list[str], *, as_json: bool
) -> int:
    async with mesh, mesh.lock(key, scope=scope, ttl=times[0], wait=times[1]) as held:
        if not as_json:
            err.say(f"holding {key} in {scope}, fence {held.fence}")
        code = await _run(held, words)
        if as_json:
            print_json({"key": key, "scope": scope, "fence": held.fence, "code": code})
    return code


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
def break_(
    key: KeyArgument,
    *,
    scope: ScopeOption = "main",
    fence: Annotated[
        str, typer.Option("--fence", metavar="FENCE", help="Only the hold that has this fence.")
    ] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Take a lock away from its holder, whose command is stopped."""
    return command_loop.run(_break(open_mesh(home), key, scope, fence, as_json=as_json))


async def _break(mesh: Mesh, key: str, scope: str, fence: str, *, as_json: bool) -> int:
    async with mesh:
        was_held = await mesh.break_lock(key, scope=scope, fence=fence)
    if as_json:
        print_json({"key": key, "scope": scope, "broken": was_held})
    elif was_held:
        out.pieces(("✓ ", "succeeded"), (f"nobody holds {key} in {scope} any more", ""))
    else:
        out.say(f"nothing to do: nobody holds {key} in {scope}")
    return Exit.OK
