"""`antiphon submit`: submits a job and, unless told otherwise, waits for its result.

A job is submitted as a kind with arguments, or as a manifest in a file. Only the result goes to
standard output, so that it can be piped; the job's id, its progress and warnings go to standard
error.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.commands.jobs.job_options import (
    AliasOption,
    AtOption,
    AttemptsOption,
    BudgetOption,
    DelayOption,
    DetachOption,
    GiveUpOption,
    InputsOption,
    LeaseOption,
    LimitLabelOption,
    ManifestAgainOption,
    ManifestKindOption,
    NamedOption,
    OnceOption,
    OutputsOption,
    PriorityOption,
    QuorumOption,
    ReplicasOption,
    RequiresOption,
    RetryBaseOption,
    RetryCapOption,
    ScoreOption,
    TaskModuleOption,
    TimeoutOption,
    WaitOption,
    command_inputs,
    parse_budget,
    retry_of,
)
from antiphon.interfaces.cli.commands.jobs.manifest_submission import (
    STANDARD_INPUT,
    Authored,
    Call,
    bounds,
    by_manifest,
    kind_of,
    read,
    run_authored,
)
from antiphon.interfaces.cli.commands.jobs.wait import WaitOptions, answer
from antiphon.interfaces.cli.commands.tempo.address_options import moment_of, read_address
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.completion import complete_kind
from antiphon.interfaces.cli.screen.durations import in_beats
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import HomeOption, JsonOption, open_mesh
from antiphon.sdk.defaults import MANIFEST_SUFFIXES, RETRY_BASE_S, RETRY_CAP_S, TIMEOUT_S

if TYPE_CHECKING:
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.handle import JobHandle
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


class SubmitArguments(NamedTuple):
    """What to submit, as it was typed."""

    what: str
    args: list[str]
    named: list[str]
    kind: str | None
    again: bool
    alias: bool
    inputs: list[str]
    outputs: list[str]

    @property
    def is_manifest(self) -> bool:
        """Whether it is a file; a kind with such an ending cannot be submitted from here."""
        return self.what == STANDARD_INPUT or self.what.lower().endswith(MANIFEST_SUFFIXES)


def submit(
    context: typer.Context,
    what: WhatArgument,
    args: ArgsArgument = None,
    *,
    kw: NamedOption = None,
    kind: ManifestKindOption = None,
    again: ManifestAgainOption = False,
    alias: AliasOption = False,
    priority: PriorityOption = "normal",
    delay: DelayOption = None,
    at: AtOption = None,
    once: OnceOption = False,
    timeout: TimeoutOption = None,
    attempts: AttemptsOption = None,
    retry_base: RetryBaseOption = RETRY_BASE_S,
    retry_cap: RetryCapOption = RETRY_CAP_S,
    give_up_on: GiveUpOption = None,
    lease: LeaseOption = None,
    requires: RequiresOption = None,
    replicas: ReplicasOption = None,
    quorum: QuorumOption = None,
    label: LimitLabelOption = None,
    budget: BudgetOption = None,
    score: ScoreOption = None,
    wait: WaitOption = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    module: TaskModuleOption = "",
    detach: DetachOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
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
    if address.is_timed:
        if delay is not None or at is not None:
            raise WrongUsage(
                "an address with a time, --delay and --at cannot be combined",
                hint="leave out all but one",
            )
        at = moment_of(address, home)
    what = address.what
    asked = SubmitArguments(
        what, args or [], kw or [], kind, again, alias, inputs or [], outputs or []
    )
    _refuse_mixture(asked, timeout=timeout, once=once, module=module)
    if detach and wait is not None:
        raise WrongUsage("--detach and --wait cannot be combined", hint="leave out one of them")
    if delay is not None and at is not None:
        raise WrongUsage("--delay and --at cannot be combined", hint="leave out one of them")
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.tempo.score_file import read_score_file

    options = CallOptions(
        once=once,
        timeout=timeout or TIMEOUT_S,
        priority=priority,
        retry=retry_of(attempts, retry_base, retry_cap, give_up_on),
        requires=tuple(requires or ()),
    )
    chosen = {
        "replicas": replicas,
        "quorum": quorum,
        "lease": lease,
        "concurrency": label,
        "budget": parse_budget(budget) if budget else None,
        "score": read_score_file(score, in_beats=in_beats) if score is not None else None,
        "delay": delay,
        "at": at,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    options |= cast("CallOptions", given)
    wait_options = WaitOptions(not detach, wait, as_json, "leave out --once to run it again", {})
    if asked.is_manifest:
        return _submit_manifest(asked, options, wait_options, home)
    call = _by_kind(asked, _typed(context, options, attempts) if module else options)
    mesh = _mesh_with(module, what, home) if module else open_mesh(home)
    return command_loop.run(_submit(mesh, call, wait_options))


def _mesh_with(module: str, kind: str, home: Path | None) -> Mesh:
    """The mesh of a module that has a task of this kind."""
    from antiphon.interfaces.cli.commands.nodes.task_modules import find_mesh

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


def _refuse_mixture(
    asked: SubmitArguments, *, timeout: int | None, once: bool, module: str
) -> None:
    """Reject options of a kind with a manifest, and the other way round."""
    for_kinds: dict[str, object] = {
        "ARGS": asked.args,
        "--kw": asked.named,
        "--attempt-timeout": timeout,
        "--once": once,
        "--module": module,
    }
    for_manifests: dict[str, object] = {
        "--kind": asked.kind,
        "--again": asked.again,
        "--alias": asked.alias,
        "--input": asked.inputs,
        "--output": asked.outputs,
    }
    misplaced = for_kinds if asked.is_manifest else for_manifests
    name = next((name for name, given in misplaced.items() if given), None)
    if name is None:
        return
    if asked.is_manifest:
        raise WrongUsage(
            f"{name} cannot be combined with a manifest",
            hint="write it into the manifest; --again runs the same one again",
        )
    raise WrongUsage(
        f"{name} is for manifests, and {asked.what!r} is a kind",
        hint=f"a manifest's file ends in {', '.join(MANIFEST_SUFFIXES)}",
    )


# --- by manifest ------------------------------------------------------------------------------


def _submit_manifest(
    asked: SubmitArguments, options: CallOptions, wait_options: WaitOptions, home: Path | None
) -> int:
    from antiphon.sdk.command_job import with_outputs

    job = read(asked.what)
    kind = kind_of(job, asked.what, asked.kind)
    words = ["antiphon", "submit", asked.what, *(("--kind", kind) if job.handler is None else ())]
    wait_options = wait_options._replace(
        again_hint=f"{shlex.join([*words, '--again'])}, which runs it as a new job"
    )
    authored = Authored(
        kind, with_outputs(job, asked.outputs), again=asked.again, alias=asked.alias
    )
    if job.handler is None:
        files = command_inputs(authored.job, asked.inputs, is_silent=wait_options.as_json)
        return command_loop.run(
            run_authored(open_mesh(home), authored, files, options, wait_options)
        )
    if asked.inputs or asked.outputs:
        raise WrongUsage("a handler takes arguments, not files", hint="leave out --input")
    call = by_manifest(authored, options, wait_options.notes)
    return command_loop.run(_submit(open_mesh(home), call, wait_options))


# --- by kind ----------------------------------------------------------------------------------


def _by_kind(asked: SubmitArguments, options: CallOptions) -> Call:
    what = asked.what
    if "/" in what:
        raise WrongUsage(
            f"{what!r} is neither a kind nor a manifest",
            hint=f"a manifest's file ends in {', '.join(MANIFEST_SUFFIXES)}",
        )
    values = [parse_value(text) for text in asked.args]
    named = dict(parse_named(text) for text in asked.named)

    async def call(mesh: Mesh) -> JobHandle[Any]:
        return await mesh.submit_arguments(what, values, named, options=options)

    return call


def parse_value(text: str) -> Any:
    """A JSON value, or the text itself if it does not look like JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as problem:
        if text[:1] in {"{", "[", '"'}:
            raise WrongUsage(
                f"{text!r} looks like JSON but is not: {problem}",
                hint="put single quotes around JSON in a shell: '{\"a\": 1}'",
            ) from problem
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # Python accepts NaN and Infinity, which are not JSON: text


def parse_named(text: str) -> tuple[str, Any]:
    """An argument by its name: NAME=JSON."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise WrongUsage(f"{text!r} is not NAME=JSON", hint="such as --kw seconds=5")
    return name, parse_value(value)


# --- submitting -------------------------------------------------------------------------------


async def _submit(mesh: Mesh, call: Call, wait_options: WaitOptions) -> int:
    async with mesh:
        try:
            handle = await call(mesh)
        except Rejected as refused:
            refused.hint = refused.hint or bounds(refused.reason, mesh)
            raise
        return await answer(mesh, handle, wait_options)
