"""`antiphon tempo`: the beats of the mesh; `tempo set|freeze|unfreeze` change the tempo."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.screen.command import Answer, Told, command, serve
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.node_names import ASKED_S, NodeName, node_names
from antiphon.interfaces.cli.screen.options import open_mesh, print_json
from antiphon.interfaces.cli.screen.terminal import Piece, err, joined, out

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from rich.console import RenderableType

    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.tempo.namespace import TempoNow
    from antiphon.sdk.tempo.policy_file import TempoPolicy
    from antiphon.sdk.tempo.tempo_watch import TempoWatch, Topic

FRAMES_PER_S: Final = 8
CLAIMS_SHOWN: Final = 20
MODES: Final = {
    "leader": "",
    "median": "no leader: the median of several nodes is followed, and the tempo stays as it is",
    "local": "no beats are heard: this machine counts by its own clock",
}
COLUMNS: Final = ("WHO", "TASK", "STATE", "DONE", "BEATS LEFT", "NOTES")

tempo = typer.Typer(help="Show the beats of the mesh, or change its tempo.")

TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="ADDRESS",
        help="With --follow, only this: backbeat://cluster/ID, status://PROJECT, promise://KIND;"
        " may be repeated.",
    ),
]


@tempo.callback(invoke_without_command=True)
@command
def look(
    context: typer.Context,
    home: Path | None,
    as_json: bool,
    *,
    follow: bool = typer.Option(
        False, "--follow", "-f", help="Follow the beats, and who works on what; Ctrl-C ends."
    ),
    topic: TopicOption = None,
) -> Coroutine[Any, Any, Told] | None:
    """Show the beats of the mesh, or change its tempo.

    \b
      antiphon tempo                    the tempo now: listens for one beat at most
      antiphon tempo --follow           live: beats, phases, who works on what; Ctrl-C ends it
      antiphon tempo --follow --json    one object for each beat and each status
      antiphon tempo set policy.yaml    replace the tempo policy
      antiphon tempo freeze             hold the tempo where it is; unfreeze lets it change again
    """  # noqa: D301 - \b keeps the lines apart
    if context.invoked_subcommand is not None:
        return None
    if not follow and topic:
        raise WrongUsage("--topic needs --follow", hint="antiphon tempo --follow --topic …")
    if follow:
        return serve(lambda stop: _live(home, topic or [], stop, as_json=as_json), as_json=as_json)
    return _now(home, as_json=as_json)


@tempo.command("set")
@command
async def set_policy(
    home: Path | None,
    file: Path = typer.Argument(
        ..., metavar="FILE", help="A tempo policy in YAML.", show_default=False
    ),
    *,
    rates: Path | None = typer.Option(
        None, metavar="FILE", help="What beats and resources cost: a YAML file of rates."
    ),
) -> Answer:
    """Replace the tempo policy, from the next downbeat on. Only the owner can.

    Rates stay as they are, unless the file has some or --rates names a file that does.

    \b
      initial_bpm: 15
      bar_len_beats: 8
      phases: [plan, work, review]
      limits: {max_bpm: 24, min_bpm: 6}
      adaptation: {enable: true, hysteresis_pct: 10, change_per_minute: 1_beat}

    \b
    Rates, each with its price and where that comes from (tco: computed, list: a price list):
      currency: EUR
      role_rate_bu: {default: 0, render: "0.002"}
      cpu_sec: {rate: "0.0000125", source: tco}
      gpu_sec: {a100: {rate: "0.0006", source: list}}
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.tempo.policy_file import keeping_rates, policy_in, with_rates

    policy = policy_in(_text_of(file))
    if rates is not None:
        policy = with_rates(policy, _text_of(rates))
    async with acting(home) as mesh:
        before = mesh.tempo.policy
        return _changed(before, await mesh.tempo.set(keeping_rates(policy, before)))


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise WrongUsage(
            f"{file} cannot be read: {problem}", hint="give the path of a YAML file"
        ) from problem


@tempo.command()
@command
async def freeze(home: Path | None, *, as_json: bool) -> Answer:
    """Keep the tempo as it is, whatever the load. Only the owner can."""
    return await _freeze(home, is_frozen=True, as_json=as_json)


@tempo.command()
@command
async def unfreeze(home: Path | None, *, as_json: bool) -> Answer:
    """Let the tempo follow the load again, if the policy says so. Only the owner can."""
    return await _freeze(home, is_frozen=False, as_json=as_json)


# --- changes ----------------------------------------------------------------------------------


async def _freeze(home: Path | None, *, is_frozen: bool, as_json: bool) -> Answer:
    async with acting(home) as mesh:
        before = mesh.tempo.policy
        after = await (mesh.tempo.freeze() if is_frozen else mesh.tempo.unfreeze())
    if not as_json and not after.adaptation.enable:
        err.pieces(("the policy has no adaptation: the tempo stays the same anyway", "quiet"))
    return _changed(before, after)


def _changed(before: TempoPolicy, after: TempoPolicy) -> Answer:
    from antiphon.sdk.tempo.policy_file import policy_hash, policy_object

    def words() -> None:
        if before == after:
            out.say("nothing to do: the tempo policy has not changed")
            return
        limits = after.limits
        span = f"between {limits.min_bpm} and {limits.max_bpm}"
        follows = f", adapted to the load {span}" if after.adaptation.enable else ""
        frozen = ", frozen" if after.adaptation.frozen else ""
        out.say(
            "✓",
            f" {after.initial_bpm} bpm{follows}{frozen}; {after.bar_len_beats} beats a bar:"
            f" {after.beats.plan} plan, {after.beats.work} work, {after.beats.review} review",
            style="succeeded",
        )

    facts = {"changed": before != after, "policy_hash": policy_hash(after), **policy_object(after)}
    return Answer(facts, words)


# --- the tempo now ----------------------------------------------------------------------------


async def _now(home: Path | None, *, as_json: bool) -> Answer:
    async with open_mesh(home) as mesh:
        if not as_json:
            err.fading(("listening for a beat", "quiet"))
        now = await mesh.tempo.now()
        err.erase()
        name = await node_names(mesh, [] if as_json else [now.leader])

    def words() -> None:
        for line in _head(now, name):
            out.pieces(*line)

    return Answer(tempo_object(now), words)


def tempo_object(now: TempoNow) -> dict[str, Any]:
    """The tempo as JSON."""
    from antiphon.sdk.tempo.policy_file import all_fields

    fields: dict[str, Any] = all_fields(now)
    return fields


def _head(now: TempoNow, name: NodeName) -> list[list[Piece]]:
    """The tempo in two lines."""
    index = now.beat.index
    marks = "".join("●" if at < index else "○" for at in range(now.bar_len))
    first: list[Piece] = [
        (f"{now.bpm} bpm", "strong"),
        (f"   {marks}   ", "running"),
        (f"beat {index} of {now.bar_len}, {now.phase}", ""),
    ]
    if now.mode == "leader":
        frozen = ", frozen" if now.frozen else ""
        second: list[Piece] = [
            (f"beats come from {name(now.leader)}, term {now.term}{frozen}", "quiet")
        ]
    else:
        second = [("! ", "running"), (MODES[now.mode], "")]
    return [first, second]


# --- live -------------------------------------------------------------------------------------


async def _live(home: Path | None, addresses: list[str], stop: Stop, *, as_json: bool) -> None:
    from antiphon.sdk.tempo.tempo_watch import ALL_TOPICS, read_topic, watching

    async with open_mesh(home) as mesh:
        online = [] if as_json else await mesh.presence.live(wait_s=ASKED_S)
        name = await node_names(mesh, (one.card.node for one in online))
        topics: tuple[Topic, ...] = tuple(read_topic(one, mesh.id) for one in addresses)
        async with (
            watching(mesh.tempo.clock, topics or ALL_TOPICS) as watch,
            asyncio.TaskGroup() as tasks,
        ):
            if as_json:
                showing = tasks.create_task(_print_all(watch))
            elif out.can_rewrite and not topics:
                showing = tasks.create_task(_draw(mesh, watch, name))
            else:
                showing = tasks.create_task(_print_lines(mesh, watch, name))
            await stop.wait()
            showing.cancel()


async def _print_all(watch: TempoWatch) -> None:
    while True:
        heard = await watch.heard()
        warning = {"warning": heard.warning} if heard.warning else {}
        print_json({"topic": heard.what, "author": heard.author, **heard.fields, **warning})


async def _print_lines(mesh: Mesh, watch: TempoWatch, name: NodeName) -> None:
    """A line for each message, where nothing can be drawn."""
    err.pieces((f"listening to mesh {mesh.id}; Ctrl-C stops it", "quiet"))
    while True:
        heard = await watch.heard()
        fields = heard.fields
        if heard.what == "beat":
            words = f"beat {fields['beat_index']} of {fields['bar_len_beats']}, {fields['phase']}"
            words += f", {fields['tempo_bpm']} bpm"
        elif heard.what == "status":
            words = f"{fields['task_id']} {fields['state']} {fields.get('progress', 0):.0%}"
        else:
            words = f"{fields['type']} in thread {fields['thread_id']}"
        out.pieces((f"{name(heard.author)}  ", "quiet"), (words, ""))
        if heard.warning:
            err.say("!", f" {heard.warning}", style="running")


async def _draw(mesh: Mesh, watch: TempoWatch, name: NodeName) -> None:
    """A picture that follows the beats."""
    from rich.live import Live

    with Live(console=out.console, auto_refresh=False, transient=False) as picture:
        while True:
            picture.update(_picture(mesh, watch, name), refresh=True)
            await asyncio.sleep(1 / FRAMES_PER_S)


def _picture(mesh: Mesh, watch: TempoWatch, name: NodeName) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    from antiphon.sdk.tempo.namespace import tempo_now

    lines: list[RenderableType] = [
        joined(line) for line in _head(tempo_now(mesh.tempo.clock), name)
    ]
    claims = sorted(watch.claims.values(), key=lambda one: one.hlc, reverse=True)
    if not claims:
        lines.append(joined([("no node reports what it is doing", "quiet")]))
        return Group(*lines)
    table = Table(box=None, pad_edge=False)
    for head in COLUMNS:
        table.add_column(joined([(head, "quiet")]))
    for one in claims[:CLAIMS_SHOWN]:
        texts = (
            name(one.agent_id),
            one.task_id,
            one.state,
            f"{one.progress:.0%}",
            str(one.beats_left),
            one.notes,
        )
        table.add_row(*(joined([(text, "")]) for text in texts))
    lines.append(table)
    if len(claims) > CLAIMS_SHOWN:
        lines.append(joined([(f"and {len(claims) - CLAIMS_SHOWN} more", "quiet")]))
    return Group(*lines)
