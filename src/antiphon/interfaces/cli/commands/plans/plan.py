"""`antiphon plan add|list|drop`: jobs that the mesh submits at some times, or when others end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from antiphon.interfaces.cli.commands.jobs.job_options import (
    AttemptsOption,
    DirectoryOption,
    InputsOption,
    LeaseOption,
    NamedOption,
    NetworkWishOption,
    OutputsOption,
    PriorityOption,
    RequiresOption,
    SecretsOption,
    TimeoutOption,
    VariablesOption,
    command_inputs,
    parse_variable,
)
from antiphon.interfaces.cli.commands.jobs.submit import parse_named, parse_value
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.completion import complete_kind
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
    short,
    short_node,
)
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.sdk.defaults import COMMAND_KIND, TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from antiphon.interfaces.cli.screen.terminal import TextStream
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.lanes import LaneKey
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.plans.plan_methods import PlanStatus
    from antiphon.sdk.plans.triggers import Trigger

plan = typer.Typer(
    help="Submit jobs at certain times, or whenever other jobs end.", no_args_is_help=True
)

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
CronOption = Annotated[
    str | None,
    typer.Option(
        "--cron",
        metavar="EXPR",
        help="Run at: minute, hour, day of month, month, day of week; or @hourly, @daily, …",
    ),
]
ZoneOption = Annotated[
    str, typer.Option("--tz", metavar="ZONE", help="The time zone of --cron: Europe/Berlin.")
]
MissedOption = Annotated[
    Literal["skip", "last", "all"],
    typer.Option("--missed", help="Which times to make up for if no coordinator was running."),
]
OnOption = Annotated[
    Literal["succeeded", "failed", "aborted", "ended"] | None,
    typer.Option("--on", help="Run whenever a job of --of ends in this way."),
]
OfOption = Annotated[
    str | None,
    typer.Option(
        "--of",
        metavar="KIND",
        help="The jobs of --on: a kind, or a pattern such as 'build.*'.",
        autocompletion=complete_kind,
    ),
]
KindOption = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help=f"The kind of the command's jobs: decides who may run them. Default: {COMMAND_KIND}.",
        autocompletion=complete_kind,
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="KIND",
        help="Submit this task instead of a command.",
        autocompletion=complete_kind,
    ),
]


@plan.command("add")
def add(
    name: NameArgument,
    words: WordsArgument = None,
    *,
    cron: CronOption = None,
    tz: ZoneOption = "UTC",
    missed: MissedOption = "last",
    on: OnOption = None,
    of: OfOption = None,
    kind: KindOption = None,
    task: TaskOption = None,
    kw: NamedOption = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    secret: SecretsOption = None,
    network: NetworkWishOption = False,
    env: VariablesOption = None,
    cwd: DirectoryOption = None,
    priority: PriorityOption = "normal",
    timeout: TimeoutOption = None,
    attempts: AttemptsOption = None,
    lease: LeaseOption = None,
    requires: RequiresOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Add a plan, or replace the one of that name.

    The coordinator submits its jobs, so this machine may be offline. A plan runs by the permission
    of who added it, and stops when that permission ends.

    \b
    Examples:
      antiphon plan add nightly --cron '0 3 * * *' --tz Europe/Berlin -- ./backup.sh
      antiphon plan add report --cron @hourly --task report.daily -- '"eu"'
      antiphon plan add tests --on succeeded --of 'build.*' --kind test.unit -- make test
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.plans.plan_methods import check_name

    check_name(name)
    when = _trigger(cron, tz, missed, on, of)
    options = CallOptions(priority=priority, requires=tuple(requires or ()))
    if attempts is not None:
        options["attempts"] = attempts
    if lease is not None:
        options["lease"] = lease
    given = PlanArguments(name, when, options, timeout or TIMEOUT_S)
    if task is not None:
        for_commands = {"--kind": kind, "--input": inputs, "--output": outputs, "--secret": secret,
                        "--network": network, "--env": env, "--cwd": cwd}  # fmt: skip
        wrong = next((option for option, value in for_commands.items() if value), None)
        if wrong is not None:
            raise WrongUsage(f"{wrong} is for commands, and --task names a task")
        put = _put_task(given, task, words or [], kw or [])
        return command_loop.run(_add(open_mesh(home), given, task, put, as_json=as_json))
    if not words:
        raise WrongUsage(
            "the plan has nothing to run",
            hint=f"end with a command: antiphon plan add {name} … -- ./backup.sh; or name a task:"
            " --task report.daily",
        )
    if kw:
        raise WrongUsage("--kw is for tasks, and this is a command", hint="--task KIND")
    from antiphon.sdk.command_job import command, with_inputs

    content = command(
        words,
        outputs=outputs or [],
        secrets=secret or [],
        network=network,
        env=dict(parse_variable(text) for text in env or ()),
        cwd=cwd,
        timeout=given.timeout_s,
    )
    note = ", as it is now: add the plan again when you have changed it"
    files = command_inputs(content, inputs, is_silent=as_json, note=note)
    chosen = kind or COMMAND_KIND

    async def put_command(mesh: Mesh) -> bool:
        job = await with_inputs(mesh, content, files)
        return await mesh.put_manifest_plan(name, when, chosen, job, options=options)

    return command_loop.run(_add(open_mesh(home), given, chosen, put_command, as_json=as_json))


class PlanArguments(NamedTuple):
    """What was typed, of any plan."""

    name: str
    when: Trigger
    options: CallOptions
    timeout_s: int


def _trigger(cron: str | None, tz: str, missed: Any, on: Any, of: str | None) -> Trigger:
    from antiphon.sdk.plans import triggers

    if (cron is None) == (on is None):
        raise WrongUsage(
            "a plan needs either --cron or --on",
            hint="--cron '0 3 * * *' for times, or --on succeeded --of 'build.*' for other jobs",
        )
    if cron is not None:
        if of is not None:
            raise WrongUsage("--of belongs to --on", hint="leave out --of, or use --on instead")
        return triggers.cron(cron, zone=tz, missed=missed)
    if of is None:
        raise WrongUsage(f"--on {on} needs --of", hint=f"--on {on} --of 'build.*'")
    return triggers.on(on, kind=of)


def _put_task(
    given: PlanArguments, task: str, words: list[str], named: list[str]
) -> Callable[[Mesh], Awaitable[bool]]:
    args = [parse_value(text) for text in words]
    kwargs = dict(parse_named(text) for text in named)
    given.options["timeout"] = given.timeout_s

    async def put(mesh: Mesh) -> bool:
        call = mesh.bind(task, *args, options=given.options, **kwargs)
        return await mesh.put_plan(given.name, given.when, call)

    return put


async def _add(
    mesh: Mesh,
    given: PlanArguments,
    kind: str,
    put: Callable[[Mesh], Awaitable[bool]],
    *,
    as_json: bool,
) -> int:
    async with mesh:
        is_new = await put(mesh)
        plans = await mesh.plans(given.name)
    added = next((one for one in plans if (one.name, one.kind) == (given.name, kind)), None)
    if as_json:
        print_json({"changed": is_new, **(_facts(added) if added else {})})
    elif not is_new:
        out.say(f"nothing to do: the plan {given.name} has not changed")
    else:
        said = f"{kind} {added.when}" if added else kind
        out.pieces(("✓ ", "succeeded"), (f"plan {given.name}: {said}", ""))
        for line in _next_lines(added):
            err.say(line)
    if added is not None and not as_json:
        _say_faults(added, err)
    return Exit.OK


@plan.command("list")
def list_(*, home: HomeOption = None, as_json: JsonOption = False) -> int:
    """List the plans, and when each runs next."""
    return command_loop.run(_list(open_mesh(home), as_json=as_json))


async def _list(mesh: Mesh, *, as_json: bool) -> int:
    async with mesh:
        plans = await mesh.plans()
    if as_json:
        print_json({"plans": [_facts(one) for one in plans]})
        return Exit.OK
    if not plans:
        out.say("no plans")
        err.say("  try: ", "antiphon plan add nightly --cron '0 3 * * *' -- ./backup.sh")
        return Exit.OK
    for one in plans:
        out.pieces((one.name, "strong"), (f"  {one.kind}  {one.when}", ""))
        _say_status(one)
    return Exit.OK


def _say_status(one: PlanStatus) -> None:
    """Whether and when a plan runs, and its newest job."""
    _say_faults(one, out)
    for line in _next_lines(one):
        out.pieces((line, "quiet"))
    if one.newest:
        out.pieces((f"  last job {short(one.newest)}", "quiet"))


async def say_plan(mesh: Mesh, key: LaneKey) -> bool:
    """Print what a plan does; False if this is none, or no longer stands."""
    plans = await mesh.plans(key.name) if key.family == "plans" else []
    one = next((plan for plan in plans if (plan.name, plan.kind) == (key.name, key.kind)), None)
    if one is None:
        return False
    out.pieces((f"  {one.when}, added by {short_node(one.author)}", "quiet"))
    _say_status(one)
    out.pieces((f"  antiphon plan drop {one.name} ends it", "quiet"))
    return True


def _say_faults(one: PlanStatus, to: TextStream) -> None:
    """Why a plan does not run, or not in time."""
    if one.problem:
        to.pieces(("  does not run: ", "failed"), (one.problem, ""))
    if one.delayed:
        to.pieces(("  is late: ", "failed"), (one.delayed, ""))


@plan.command("drop")
def drop(
    name: NameArgument,
    *,
    kind: Annotated[
        str,
        typer.Option("--kind", metavar="KIND", help="Which, if several kinds have such a plan."),
    ] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Drop a plan. Jobs that it has already submitted stay."""
    return command_loop.run(_drop(open_mesh(home), name, kind, as_json=as_json))


async def _drop(mesh: Mesh, name: str, kind: str, *, as_json: bool) -> int:
    async with mesh:
        dropped = await mesh.drop_plan(name, kind=kind)
    if as_json:
        print_json({"name": name, "kind": dropped})
    else:
        out.pieces(("✓ ", "succeeded"), (f"dropped the plan {name} for {dropped}", ""))
    return Exit.OK


def _next_lines(one: PlanStatus | None) -> list[str]:
    """The next times, in the plan's zone."""
    return [f"  next {_moment(tick)}" for tick in one.next] if one is not None else []


def _moment(tick: datetime) -> str:
    return tick.strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _facts(one: PlanStatus) -> dict[str, object]:
    return {
        "name": one.name,
        "kind": one.kind,
        "when": one.when,
        "author": one.author,
        "priority": one.priority,
        "put_ms": one.put_ms,
        "problem": one.problem,
        "delayed": one.delayed,
        "next": [tick.isoformat() for tick in one.next],
        "newest": one.newest,
    }
