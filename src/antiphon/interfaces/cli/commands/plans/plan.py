"""`antiphon plan add|list|drop`: jobs that the mesh submits at some times, or when others end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.interfaces.cli.screen.node_names import NodeName
from antiphon.interfaces.cli.screen.options import open_mesh, short
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.interfaces.cli.shared.job_options import (
    CommandOptions,
    JobOptions,
    NamedOption,
    parse_named,
    parse_value,
)
from antiphon.sdk.defaults import COMMAND_KIND, TIMEOUT_S

if TYPE_CHECKING:
    from datetime import datetime

    from antiphon.interfaces.cli.screen.terminal import TextStream
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.lanes import LaneKey
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.plans.namespace import PlanStatus
    from antiphon.sdk.plans.triggers import Trigger

plan = typer.Typer(
    help="Submit jobs at certain times, or whenever other jobs end.", no_args_is_help=True
)

Put = Callable[["Mesh"], Awaitable[bool]]
"""Puts the plan on the log; whether that changed something."""
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The plan's name.", show_default=False)
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- CMD ARGS",
        help="The command; with --task, the task's arguments as JSON.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class PlanOptions(JobOptions, CommandOptions):
    """What `plan add` can be told."""

    cron: str | None = typer.Option(
        None,
        metavar="EXPR",
        help="Run at: minute, hour, day of month, month, day of week; or @hourly, @daily, …",
    )
    tz: str = typer.Option("UTC", metavar="ZONE", help="The time zone of --cron: Europe/Berlin.")
    missed: Literal["skip", "last", "all"] = typer.Option(
        "last", help="Which times to make up for if no coordinator was running."
    )
    on: str | None = typer.Option(
        None,
        metavar="END|KIND",
        help="Run whenever a job of --of has succeeded, failed, aborted or ended in any way; --on"
        " KIND is short for --on succeeded --of KIND.",
        autocompletion=complete_kind,
    )
    of: str | None = typer.Option(
        None,
        metavar="KIND",
        help="The jobs of --on: a kind, or a pattern such as 'build.*'.",
        autocompletion=complete_kind,
    )
    with_result: str | None = typer.Option(
        None,
        metavar="NAME",
        help="With --on succeeded: give the job that job's result, as a file of this name; to a"
        " task, at a place such as /args/0.",
    )
    with_output: str | None = typer.Option(
        None,
        metavar="NAME",
        help="With --on succeeded: give the job that job's output of this name, as a file. Plans"
        " on git.push.* have source.tar unless you say otherwise.",
    )
    kind: str | None = typer.Option(
        None,
        metavar="KIND",
        help=f"The kind of the command's jobs: decides who may run them. Default: {COMMAND_KIND}.",
        autocompletion=complete_kind,
    )
    task: str | None = typer.Option(
        None,
        metavar="KIND",
        help="Submit this task instead of a command.",
        autocompletion=complete_kind,
    )
    kw: NamedOption = None


@plan.command("add")
@command
async def add(
    home: Path | None,
    as_json: bool,
    name: NameArgument,
    words: WordsArgument = None,
    *,
    asked: PlanOptions,
) -> Answer:
    """Add a plan, or replace the one of that name.

    The coordinator submits its jobs, so this machine may be offline. A plan runs by the permission
    of who added it, and stops when that permission ends.

    \b
    Examples:
      antiphon plan add nightly --cron '0 3 * * *' --tz Europe/Berlin -- ./backup.sh
      antiphon plan add report --cron @hourly --task report.daily -- '"eu"'
      antiphon plan add tests --on succeeded --of 'build.*' --kind test.unit -- make test
      antiphon plan add ci --on git.push.app --kind ci.app -- ./test.sh
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.plans.namespace import check_name

    check_name(name)
    when, kind = _trigger(asked), asked.task or asked.kind or COMMAND_KIND
    put = _put_command if asked.task is None else _put_task
    coming = put(name, when, words or [], asked, is_silent=as_json)
    async with open_mesh(home) as mesh:
        is_new = await coming(mesh)
        plans = await mesh.plans.list(name)
    added = next((one for one in plans if (one.name, one.kind) == (name, kind)), None)

    def told() -> None:
        if not is_new:
            out.say(f"nothing to do: the plan {name} has not changed")
        else:
            said = f"{kind} {added.when}" if added else kind
            out.pieces(("✓ ", "succeeded"), (f"plan {name}: {said}", ""))
            for line in _next_lines(added):
                err.say(line)
        if added is not None:
            _say_faults(added, err)

    return Answer({"changed": is_new, **(_facts(added) if added else {})}, told)


def _trigger(asked: PlanOptions) -> Trigger:
    from antiphon.sdk.plans import triggers

    if (asked.cron is None) == (asked.on is None):
        raise WrongUsage(
            "a plan needs either --cron or --on",
            hint="--cron '0 3 * * *' for times, or --on succeeded --of 'build.*' for other jobs",
        )
    if asked.cron is not None:
        if asked.of is not None:
            raise WrongUsage("--of belongs to --on", hint="leave out --of, or use --on instead")
        if asked.with_result is not None or asked.with_output is not None:
            raise WrongUsage("results belong to --on", hint="--on succeeded --of KIND")
        return triggers.cron(asked.cron, zone=asked.tz, missed=asked.missed)
    return _reaction(asked, asked.on or "")


def _reaction(asked: PlanOptions, on: str) -> Trigger:
    from antiphon.sdk.git.pushes import SOURCE, is_push_kind
    from antiphon.sdk.plans import triggers

    ending, of = triggers.ending_of(on), asked.of
    if ending is None:
        if of is not None or "." not in on:
            raise WrongUsage(
                f"{on!r} is not how a job ends",
                hint="--on succeeded, failed, aborted or ended; or a kind: --on build.app",
            )
        ending, of = "succeeded", on
    if of is None:
        raise WrongUsage(f"--on {on} needs --of", hint=f"--on {on} --of 'build.*'")
    if asked.with_result is not None and asked.with_output is not None:
        raise WrongUsage("a job gets one of --with-result and --with-output")
    output = asked.with_output
    is_command = asked.task is None and ending == "succeeded"
    if is_push_kind(of) and is_command and asked.with_result is None:
        output = output or SOURCE
    return triggers.on(ending, kind=of, result=asked.with_result, output=output)


def _call_options(asked: PlanOptions) -> CallOptions:
    from antiphon.sdk.call_options import CallOptions

    options = CallOptions(priority=asked.priority, requires=tuple(asked.requires or ()))
    if asked.attempts is not None:
        options["attempts"] = asked.attempts
    if asked.lease is not None:
        options["lease"] = asked.lease
    return options


def _put_task(
    name: str, when: Trigger, words: list[str], asked: PlanOptions, *, is_silent: bool
) -> Put:
    del is_silent  # nothing is said
    for_commands = {"--kind": asked.kind, "--input": asked.inputs, "--output": asked.outputs,
                    "--secret": asked.secret, "--network": asked.network, "--env": asked.env,
                    "--cwd": asked.cwd}  # fmt: skip
    wrong = next((option for option, value in for_commands.items() if value), None)
    if wrong is not None:
        raise WrongUsage(f"{wrong} is for commands, and --task names a task")
    args = [parse_value(text) for text in words]
    kwargs = dict(parse_named(text) for text in asked.kw or ())
    options = _call_options(asked)
    options["timeout"] = asked.timeout or TIMEOUT_S

    async def put(mesh: Mesh) -> bool:
        call = mesh.bind(asked.task or "", *args, options=options, **kwargs)
        return await mesh.plans.put(name, when, call)

    return put


def _put_command(
    name: str, when: Trigger, words: list[str], asked: PlanOptions, *, is_silent: bool
) -> Put:
    if not words:
        raise WrongUsage(
            "the plan has nothing to run",
            hint=f"end with a command: antiphon plan add {name} … -- ./backup.sh; or name a task:"
            " --task report.daily",
        )
    if asked.kw:
        raise WrongUsage("--kw is for tasks, and this is a command", hint="--task KIND")
    from antiphon.sdk.command_job import with_inputs

    content = asked.manifest(words, asked.timeout or TIMEOUT_S)
    note = ", as it is now: add the plan again when you have changed it"
    files = asked.files(content, is_silent=is_silent, note=note)
    kind, options = asked.kind or COMMAND_KIND, _call_options(asked)

    async def put(mesh: Mesh) -> bool:
        await _require_no_task(mesh, words)
        job = await with_inputs(mesh.artifacts, content, files)
        return await mesh.plans.put_manifest(name, when, kind, job, options=options)

    return put


async def _require_no_task(mesh: Mesh, words: list[str]) -> None:
    """A task's name in place of a command would fail at every run."""
    name, *rest = words
    live = await mesh.presence.live() if "." in name and "/" not in name else ()
    if any(name in one.card.kinds for one in live):
        typed = f" -- {' '.join(rest)}" if rest else ""
        raise WrongUsage(f"{name} is a task, and not a command", hint=f"--task {name}{typed}")


@plan.command("list")
@command
async def list_(mesh: Mesh) -> Answer:
    """List the plans, and when each runs next."""
    plans = await mesh.plans.list()

    def words() -> None:
        for one in plans:
            out.pieces((one.name, "strong"), (f"  {one.kind}  {one.when}", ""))
            _say_status(one)
        if not plans:
            out.say("no plans")
            err.say("  try: ", "antiphon plan add nightly --cron '0 3 * * *' -- ./backup.sh")

    return Answer({"plans": [_facts(one) for one in plans]}, words)


def _say_status(one: PlanStatus) -> None:
    """Whether and when a plan runs, and its newest job."""
    _say_faults(one, out)
    for line in _next_lines(one):
        out.pieces((line, "quiet"))
    if one.newest:
        out.pieces((f"  last job {short(one.newest)}", "quiet"))


async def plan_of(mesh: Mesh, key: LaneKey) -> PlanStatus | None:
    """What a plan does; None if this is none, or no longer stands."""
    plans = await mesh.plans.list(key.name) if key.family == "plans" else []
    return next((one for one in plans if (one.name, one.kind) == (key.name, key.kind)), None)


def say_plan(one: PlanStatus, by: str) -> None:
    """Print what a plan does, and who added it."""
    out.pieces((f"  {one.when}, added by {by}", "quiet"))
    _say_status(one)
    out.pieces((f"  antiphon plan drop {one.name} ends it", "quiet"))


def plan_answer(one: PlanStatus, name: NodeName) -> Answer:
    """Whether a plan runs, when next, and what its newest job is."""

    def words() -> None:
        out.pieces((f"plan {one.name}  {one.kind}", "strong"))
        say_plan(one, name(one.author))
        if one.newest:
            out.pieces((f"  antiphon why {short(one.newest)} explains its newest job", "quiet"))

    return Answer(_facts(one), words)


def _say_faults(one: PlanStatus, to: TextStream) -> None:
    """Why a plan does not run, or not in time."""
    if one.problem:
        to.pieces(("  does not run: ", "failed"), (one.problem, ""))
    if one.delayed:
        to.pieces(("  is late: ", "failed"), (one.delayed, ""))


@plan.command("drop")
@command
async def drop(
    mesh: Mesh,
    name: NameArgument,
    *,
    kind: str = typer.Option("", metavar="KIND", help="Which, if several kinds have such a plan."),
) -> Answer:
    """Drop a plan. Jobs that it has already submitted stay."""
    dropped = await mesh.plans.drop(name, kind=kind)
    told = f"dropped the plan {name} for {dropped}"
    return Answer(
        {"name": name, "kind": dropped}, lambda: out.pieces(("✓ ", "succeeded"), (told, ""))
    )


def _next_lines(one: PlanStatus | None) -> list[str]:
    """The next times, in the plan's zone."""
    return [f"  next {_moment(tick)}" for tick in one.next] if one is not None else []


def _moment(tick: datetime) -> str:
    return tick.strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _facts(one: PlanStatus) -> dict[str, Any]:
    names = ("name", "kind", "when", "author", "priority", "put_ms", "problem", "delayed", "newest")
    return {**fields(one, *names), "next": [tick.isoformat() for tick in one.next]}
