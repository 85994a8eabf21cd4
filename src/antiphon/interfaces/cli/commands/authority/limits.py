"""`antiphon limits`: how many jobs may run at once or begin in a period, on the whole mesh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import span_words
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import Piece, counted, err, out

if TYPE_CHECKING:
    from antiphon.sdk.authority.limits import Limit, LimitStatus, WaitingJob

JOBS_LISTED = 5


@command
async def limits(
    home: Path | None,
    label: str = typer.Argument(
        "",
        metavar="[LABEL]",
        help="The label to limit, such as gpu. Default: show all limits and what waits.",
        show_default=False,
    ),
    at_once: int | None = typer.Option(None, min=1, help="How many of its jobs may run at once."),
    rate: str = typer.Option("", help="How many may begin in a period: 10/s, 100/m, 20/h."),
    kind: list[str] | None = typer.Option(
        None, help="A kind whose jobs must carry the label, such as render.*; repeatable."
    ),
    *,
    remove: bool = typer.Option(False, "--remove", help="End the limit of this label."),
) -> Answer:
    """Show or change the limits for the whole mesh.

    \b
      antiphon limits                                    what is running, and what waits for what
      antiphon limits gpu --at-once 3 --kind 'render.*'  at most three render jobs at once
      antiphon limits mail --rate 10/m --kind mail
      antiphon limits gpu --remove

    Only the owner can change limits. The coordinator keeps to them: it offers a job when there is
    room.
    """  # noqa: D301 - \b keeps the lines apart
    is_change = at_once is not None or bool(rate)
    if not label or not (is_change or remove):
        if is_change or remove or kind:
            raise WrongUsage(
                "a change needs a label, and --at-once, --rate or --remove",
                hint="antiphon limits gpu --at-once 3 --kind 'render.*'",
            )
        return await _show(home, label)
    if is_change and remove:
        raise WrongUsage("--remove excludes --at-once and --rate", hint="antiphon limits")
    from antiphon.sdk.authority.limits import parse_rate

    period = parse_rate(rate) if rate else None
    async with acting(home) as mesh:
        if remove:
            changed = await mesh.authority.remove_limit(label)
        else:
            changed = await mesh.authority.set_limit(
                label, at_once=at_once, rate=period, kinds=kind or []
            )
        now = next((one for one in mesh.authority.rules.limits if one.label == label), None)

    def words() -> None:
        told = (
            f"{label}: {limit_words(now)}" if now is not None else f"{label} is no longer limited"
        )
        out.pieces(("✓ ", "succeeded"), (told, ""))
        if changed.seq:
            err.pieces((f"  in force from record {changed.seq:,} on", "quiet"))

    return Answer({"label": label, "limit": _limit_json(now), "seq": changed.seq}, words)


async def _show(home: Path | None, label: str) -> Answer:
    async with open_mesh(home) as mesh:
        found = [one for one in await mesh.authority.limits() if label in ("", one.label)]

    def words() -> None:
        if not found:
            out.say(
                f"no limit and no job has the label {label}" if label else "there are no limits"
            )
            err.say("  try: ", "antiphon limits gpu --at-once 3 --kind 'render.*'")
            return
        heads = ("LABEL", "LIMIT", "RUNNING", "WAITING", "KINDS")
        out.table(heads, map(_row, found), flexible=4)
        for one in found:
            _list_waiting(one)

    return Answer({"limits": [_status_json(one) for one in found]}, words)


def _row(one: LimitStatus) -> list[Piece]:
    return [
        (one.label, "strong"),
        (limit_words(one.limit), ""),
        (str(one.open), ""),
        (str(one.waiting), "" if one.waiting else "quiet"),
        (" ".join(f"{kind}.*" for kind in one.limit.kinds) if one.limit else "", "quiet"),
    ]


def _list_waiting(status: LimitStatus) -> None:
    if not status.next:
        return
    out.say("")
    out.say(f"waiting under {status.label}, the next ones first:")
    for one in status.next[:JOBS_LISTED]:
        out.pieces(
            (f"  {one.job.id[:12]}", "strong"), (f"  {one.job.kind}  {cause_words(one)}", "")
        )
    more = status.waiting - min(len(status.next), JOBS_LISTED)
    if more:
        out.pieces((f"  and {more:,} more", "quiet"))


def limit_words(limit: Limit | None) -> str:
    """A limit in words."""
    if limit is None:
        return "none"
    parts = []
    if limit.at_once is not None:
        parts.append(f"{limit.at_once:,} at once")
    if limit.rate is not None:
        parts.append(f"{limit.rate:,} per {span_words(limit.per_ms)}")
    return ", ".join(parts)


def cause_words(waiting: WaitingJob) -> str:
    """What a job waits for, in words."""
    if waiting.cause == "jobs":
        return f"waits for {counted(waiting.unfinished, 'other job')} to end"
    what = {"time": "its time", "room": "room"}.get(waiting.cause, "the coordinator's offer")
    return f"waits for {what}"


def _limit_json(limit: Limit | None) -> dict[str, Any] | None:
    if limit is None:
        return None
    per_ms = limit.per_ms if limit.rate is not None else None
    return {**fields(limit, "at_once", "rate", "kinds"), "per_ms": per_ms}


def _status_json(status: LimitStatus) -> dict[str, Any]:
    waits = [
        {"kind": one.job.kind, "job": one.job.id, **fields(one, "cause", "unfinished")}
        for one in status.next
    ]
    about = fields(status, "label", "open", "waiting")
    return {**about, "limit": _limit_json(status.limit), "next": waits}
