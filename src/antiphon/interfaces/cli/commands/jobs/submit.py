"""`antiphon submit`: submits a job and, unless told otherwise, waits for its result.

A job is submitted as a kind with arguments, or as a manifest in a file. Only the result goes to
standard output, so that it can be piped; the job's id, its progress and warnings go to standard
error.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.screen.command import command, fields
from antiphon.interfaces.cli.screen.durations import in_beats, seconds, span_words, zoned_time
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.shared.address_options import begins_at, read_address
from antiphon.interfaces.cli.shared.job_options import (
    DetachOption,
    FileOptions,
    JobOptions,
    LimitOptions,
    parse_budget,
    parse_named,
    parse_value,
)
from antiphon.interfaces.cli.shared.manifest_submission import (
    STANDARD_INPUT,
    Authored,
    bounds,
    by_manifest,
    kind_of,
    read,
    run_authored,
)
from antiphon.interfaces.cli.shared.wait import WaitOptions, answer
from antiphon.sdk.defaults import MANIFEST_SUFFIXES, RETRY_BASE_S, RETRY_CAP_S, TIMEOUT_S

if TYPE_CHECKING:
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.mesh import Mesh


def complete_what(context: typer.Context, incomplete: str) -> list[str]:
    """Kinds of recent jobs, and manifests in this directory."""
    try:
        here = sorted(p.name for p in Path.cwd().iterdir() if p.suffix in MANIFEST_SUFFIXES)
    except OSError:
        here = []
    kinds = complete_kind(context, incomplete)
    return [*kinds, *(name for name in here if name.startswith(incomplete))]


WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND|FILE",
        help="A kind, such as example.add; or a manifest (.yaml, .yml, .json, or - for standard"
        " input).",
        show_default=False,
        autocompletion=complete_what,
    ),
]
ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS",
        help="Arguments as JSON; anything else is text. Put -- before negative numbers.",
        show_default=False,
    ),
]
Work = Callable[["Mesh", "CallOptions"], Awaitable[int]]
"""Submits the job to an open mesh, and waits for it."""


@dataclass(frozen=True)
class SubmitOptions(JobOptions, LimitOptions, FileOptions):
    """What `submit` can be told."""

    kw: list[str] | None = typer.Option(
        None, metavar="NAME=JSON", help="An argument by name; may be repeated."
    )
    kind: str | None = typer.Option(
        None,
        metavar="KIND",
        help="The kind of a manifest's job: decides who may run it. Required, unless the"
        " command is a handler such as @example.add, whose kind is example.add.",
        autocompletion=complete_kind,
    )
    again: bool = typer.Option(
        False, "--again", help="Run a manifest again: a nonce makes it a new job."
    )
    alias: bool = typer.Option(
        False, "--alias", help="Give a manifest's job a ULID; its id does not change."
    )
    delay: float | None = typer.Option(
        None,
        parser=seconds,
        metavar="TIME",
        help="Begin this much later: 90s, 15m, 1d, 4beats. The job waits on the mesh, not here.",
    )
    at: datetime | None = typer.Option(
        None,
        parser=zoned_time,
        metavar="MOMENT",
        help="Begin at this time, with its zone: 2026-11-16T03:00+01:00.",
    )
    once: bool = typer.Option(
        False, "--once", help="Run the same kind with the same arguments only once, ever."
    )
    retry_base: float = typer.Option(
        RETRY_BASE_S,
        parser=seconds,
        metavar="TIME",
        show_default=span_words(round(RETRY_BASE_S * 1000)),
        help="Delay before the second attempt; doubled for each further one.",
    )
    retry_cap: float = typer.Option(
        RETRY_CAP_S,
        parser=seconds,
        metavar="TIME",
        show_default=span_words(round(RETRY_CAP_S * 1000)),
        help="The longest delay between attempts.",
    )
    give_up_on: list[str] | None = typer.Option(
        None,
        metavar="ERROR",
        help="Do not retry after this error, such as ValueError; may be repeated.",
    )
    replicas: int | None = typer.Option(
        None, metavar="N", help="Run it N times and compare the results."
    )
    quorum: int | None = typer.Option(
        None,
        metavar="K",
        help="With --replicas: how many independent workers have to agree. Default: most of them.",
    )
    score: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="A YAML file: how many beats, or seconds (30s), each phase may take and it may wait.",
        show_default=False,
    )
    wait: float | None = typer.Option(
        None,
        parser=seconds,
        metavar="TIME",
        help="How long to wait for the result; the job keeps running. Default: until it ends.",
    )
    module: str = typer.Option(
        "",
        metavar="MODULE",
        help="Use the options that the task declares in this module. Options that you type override"
        " them.",
        show_default=False,
    )
    detach: DetachOption = False


@command
def submit(
    context: typer.Context,
    home: Path | None,
    as_json: bool,
    what: WhatArgument,
    args: ArgsArgument = None,
    *,
    asked: SubmitOptions,
) -> Coroutine[Any, Any, int]:
    """Submit a job and print its result.

    The same manifest is the same job: if it already ran, you get its stored result.

    The options that a task declares in code (attempts, timeout, priority …) are not known here:
    type them, or name its module.

    \b
    Examples:
      antiphon submit example.add 2 3
      antiphon submit example.echo '{"a": [1, 2]}'
      antiphon submit example.sleep --kw seconds=5 --detach
      antiphon submit example.add 2 3 --delay 15m --detach
      antiphon submit example.add 2 3 --delay 4beats --detach
      antiphon submit 'example.add;beats=^^4' 2 3     (on the fourth beat from now)
      antiphon submit shop.order 42 --module tasks.py
      antiphon submit example.add 2 3 --replicas 3 --quorum 2
      antiphon submit job.yaml --kind build
      antiphon submit job.yaml --kind build --again

    \b
    A manifest, such as job.yaml:
      command: [sh, -c, "echo $GREETING > out.txt"]
      timeout: 60
      env: {GREETING: hello}
      outputs: [out.txt]
    """  # noqa: D301 - \b keeps the lines apart
    address = read_address(what)
    what = address.what
    if address.is_timed and (asked.delay is not None or asked.at is not None):
        raise WrongUsage(
            "an address with a time, --delay and --at cannot be combined",
            hint="leave out all but one",
        )
    if asked.delay is not None and asked.at is not None:
        raise WrongUsage("--delay and --at cannot be combined", hint="leave out one of them")
    _refuse_mixture(what, args or [], asked)
    if asked.detach and asked.wait is not None:
        raise WrongUsage("--detach and --wait cannot be combined", hint="leave out one of them")
    options = _call_options(asked)
    wait_options = WaitOptions(
        not asked.detach, asked.wait, as_json, "leave out --once to run it again", {}
    )
    if _is_manifest(what):
        work = _by_file(what, asked, wait_options)
    else:
        work = _by_kind(what, args or [], asked.kw or [], wait_options)
    if asked.module:
        options = _typed(context, options, asked.attempts)
    mesh = _mesh_with(asked.module, what, home) if asked.module else open_mesh(home, offline=True)

    async def go() -> int:
        async with mesh:
            if address.is_timed:
                options["at"] = await begins_at(mesh, address, is_silent=as_json)
            try:
                return await work(mesh, options)
            except Rejected as refused:
                refused.hint = refused.hint or bounds(refused.reason, mesh)
                raise

    return go()


def _is_manifest(what: str) -> bool:
    """Whether it is a file; a kind with such an ending cannot be submitted from here."""
    return what == STANDARD_INPUT or what.lower().endswith(MANIFEST_SUFFIXES)


def _call_options(asked: SubmitOptions) -> CallOptions:
    from antiphon.sdk.call_options import CallOptions, Retry
    from antiphon.sdk.tempo.score_file import read_score_file

    options = CallOptions(
        once=asked.once,
        timeout=asked.timeout or TIMEOUT_S,
        priority=asked.priority,
        retry=Retry(
            attempts=asked.attempts,
            base=asked.retry_base,
            cap=asked.retry_cap,
            give_up_on=tuple(asked.give_up_on or ()),
        ),
        requires=tuple(asked.requires or ()),
    )
    chosen = {
        **fields(asked, "replicas", "quorum", "lease", "delay", "at"),
        "concurrency": asked.label,
        "budget": parse_budget(asked.budget) if asked.budget else None,
        "score": read_score_file(asked.score, in_beats=in_beats) if asked.score else None,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    return options | cast("CallOptions", given)


def _mesh_with(module: str, kind: str, home: Path | None) -> Mesh:
    """The mesh of a module that has a task of this kind."""
    from antiphon.interfaces.cli.shared.task_modules import find_mesh

    if home is not None:
        os.environ["ANTIPHON_HOME"] = str(home)  # so that the module's Mesh.open() finds it
    mesh = find_mesh(module)
    if kind not in mesh.kinds:
        raise WrongUsage(
            f"{module} has no task of kind {kind!r}: it has {', '.join(mesh.kinds)}",
            hint="name another module, or leave out --module",
        )
    return mesh


def _typed(context: typer.Context, options: CallOptions, attempts: int | None) -> CallOptions:
    """The options that were typed: the rest is left to the task."""

    def is_typed(*names: str) -> bool:
        sources = map(context.get_parameter_source, names)
        return any(source is not None and source.name == "COMMANDLINE" for source in sources)

    kept: dict[str, Any] = {**options}
    for name in ("once", "timeout", "priority", "requires"):
        if not is_typed(name):
            kept.pop(name)
    if not is_typed("retry_base", "retry_cap", "give_up_on"):
        kept.pop("retry")
    if attempts is not None:
        kept["attempts"] = attempts
    return cast("CallOptions", kept)


def _refuse_mixture(what: str, args: list[str], asked: SubmitOptions) -> None:
    """Reject options of a kind with a manifest, and the other way round."""
    for_kinds: dict[str, object] = {
        "ARGS": args,
        "--kw": asked.kw,
        "--attempt-timeout": asked.timeout,
        "--once": asked.once,
        "--module": asked.module,
    }
    for_manifests: dict[str, object] = {
        "--kind": asked.kind,
        "--again": asked.again,
        "--alias": asked.alias,
        "--input": asked.inputs,
        "--output": asked.outputs,
    }
    misplaced = for_kinds if _is_manifest(what) else for_manifests
    name = next((name for name, given in misplaced.items() if given), None)
    if name is None:
        return
    if _is_manifest(what):
        raise WrongUsage(
            f"{name} cannot be combined with a manifest",
            hint="write it into the manifest; --again runs the same one again",
        )
    raise WrongUsage(
        f"{name} is for manifests, and {what!r} is a kind",
        hint=f"a manifest's file ends in {', '.join(MANIFEST_SUFFIXES)}",
    )


# --- by manifest ------------------------------------------------------------------------------


def _by_file(what: str, asked: SubmitOptions, wait_options: WaitOptions) -> Work:
    from antiphon.sdk.command_job import with_outputs

    job = read(what)
    kind = kind_of(job, what, asked.kind)
    words = ["antiphon", "submit", what, *(("--kind", kind) if job.handler is None else ())]
    wait_options = wait_options._replace(
        again_hint=f"{shlex.join([*words, '--again'])}, which runs it as a new job"
    )
    outputs = asked.outputs or []
    authored = Authored(kind, with_outputs(job, outputs), again=asked.again, alias=asked.alias)
    if job.handler is None:
        files = asked.files(authored.job, is_silent=wait_options.as_json)
        return lambda mesh, options: run_authored(mesh, authored, files, options, wait_options)
    if asked.inputs or outputs:
        raise WrongUsage("a handler takes arguments, not files", hint="leave out --input")
    call = by_manifest(authored, wait_options.notes)

    async def work(mesh: Mesh, options: CallOptions) -> int:
        return await answer(mesh, await call(mesh, options), wait_options)

    return work


# --- by kind ----------------------------------------------------------------------------------


def _by_kind(what: str, args: list[str], kw: list[str], wait_options: WaitOptions) -> Work:
    if "/" in what:
        raise WrongUsage(
            f"{what!r} is neither a kind nor a manifest",
            hint=f"a manifest's file ends in {', '.join(MANIFEST_SUFFIXES)}",
        )
    values = [parse_value(text) for text in args]
    named = dict(parse_named(text) for text in kw)

    async def work(mesh: Mesh, options: CallOptions) -> int:
        handle = await mesh.submit(mesh.bind(what, options=options).with_values(values, named))
        return await answer(mesh, handle, wait_options)

    return work
