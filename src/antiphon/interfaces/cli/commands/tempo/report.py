"""`antiphon report`: what happened in the last bars, with plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.terminal import Piece, clock, counted, err, out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.tempo.bar_reports import KeptReport

STATES: Final = {
    "planning": "pending",
    "executing": "running",
    "waiting": "waiting",
    "review": "claimed",
    "done": "succeeded",
    "failed": "failed",
}
"""The states in the order of a job's life, and the style of each."""
FIGURES: Final = {
    "tnt": "succeeded per beat",
    "bpd": "beats per result",
    "wr": "part of the beats spent waiting",
    "eta": "part of the beats that led to a result",
    "pmr": "part of the promises that were broken",
    "cpd": "cost per result",
    "ttfu": "beats until the first output",
}
STEPS: Final = "▁▂▃▄▅▆▇█"
NOTHING: Final = "·"
"""Where there is no number."""
SHOWN: Final = 16
"""Bars that are plotted unless somebody asks for more or fewer."""


@command
async def report(
    mesh: Mesh,
    address: str = typer.Argument(
        "",
        metavar="[ADDRESS]",
        help="A time such as ';beats=~~16' or ';seconds=~~60', or a job: the bars of its life."
        " Default: now.",
        show_default=False,
    ),
    *,
    last: int = typer.Option(SHOWN, min=1, help="Show this many bars."),
) -> Answer:
    """Show what happened in the last bars.

    Tasks, queues, promises and key figures.
    """
    from antiphon.sdk.tempo.bar_reports import kpis_of, parse_address

    where = parse_address(address)
    if where.warning:
        err.say(where.warning, style="quiet")
    found = await mesh.tempo.reports(where, last=last)

    def words() -> None:
        if found:
            show(found)
        else:
            out.say("no bar has been reported yet, or none at that time")
            err.say("  try: ", "antiphon node: it reports each bar when it has ended")

    return Answer({"reports": [report_object(one) for one in found], "kpis": kpis_of(found)}, words)


def report_object(kept: KeptReport) -> dict[str, Any]:
    """A report as JSON, with the alarms that were raised at its end."""
    from msgspec import to_builtins

    found: dict[str, Any] = to_builtins(kept.report)
    # Fields that are empty are left out on the wire; a reader of JSON wants them all.
    fields = {name: getattr(kept.report, name) for name in kept.report.__struct_fields__}
    whole = {name: found.get(name, value) for name, value in fields.items()}
    return {**whole, "alarms": [{"name": one.name, "why": one.why} for one in kept.alarms]}


def show(found: Sequence[KeptReport]) -> None:
    """Print the newest of these reports, and how each number developed."""
    newest = found[-1]
    body = newest.report
    tasks = newest.tally.tasks
    out.pieces(
        (f"{clock(newest.start_ms)} to {clock(newest.end_ms)}", "strong"),
        (f"  {body.tempo_bpm} bpm, {counted(newest.tally.beats, 'beat')}", ""),
        (f", {counted(tasks, 'task')}", ""),
    )
    states = [state for state in STATES if body.counts.get(state)]
    most = max((body.counts[state] for state in states), default=0)
    for state in states:
        number = body.counts[state]
        out.pieces((f"  {state:<10}{number:>6,}  ", ""), (bar(number, most), STATES[state]))
    out.table(("", "THIS BAR", *_heads(found)), _rows(found), flexible=0)
    for alarm in newest.alarms:
        out.say("✗ ", f"{alarm.name}: {alarm.why}", style="failed")
    said = body.suggested
    if said is not None and said.why:
        changes = []
        if said.tempo_bpm is not None:
            changes.append(f"{said.tempo_bpm} bpm")
        if said.phases is not None:
            changes.append(" ".join(f"{phase} {beats}" for phase, beats in said.phases))
        words = f"{', '.join(changes)}: {said.why}" if changes else said.why
        out.pieces(("suggested  ", "quiet"), (words, ""))


def _heads(found: Sequence[KeptReport]) -> tuple[str, ...]:
    return () if len(found) == 1 else (f"LAST {len(found)}", "")


def _rows(found: Sequence[KeptReport]) -> list[list[Piece]]:
    from antiphon.sdk.tempo.bar_reports import kpis_of

    newest, whole = found[-1].report, kpis_of(found)
    rows = [
        _row("tempo, bpm", [kept.report.tempo_bpm for kept in found], found),
        _row("overruns", [kept.report.overruns for kept in found], found, is_sum=True),
        _row("promises due", [kept.report.promises_due for kept in found], found, is_sum=True),
        _row(
            "promises broken", [kept.report.promises_broken for kept in found], found, is_sum=True
        ),
        _row("claims late", [kept.report.claims_late for kept in found], found, is_sum=True),
    ]
    roles = sorted({role for kept in found for role in kept.report.queue_depth})
    rows += [
        _row(f"queue {role}", [kept.report.queue_depth.get(role, 0) for kept in found], found)
        for role in roles
    ]
    rows += [
        _row(f"{name} in use", [kept.report.utilisation.get(name) for kept in found], found)
        for name in ("cpu", "gpu")
        if name in newest.utilisation
    ]
    for name, words in FIGURES.items():
        values = [kept.report.kpis.get(name) for kept in found]
        row = _row(f"{name}  {words}", values, found)
        if len(found) > 1:
            row[2] = (_number(whole[name]), "")
        rows.append(row)
    return rows


def _row(
    name: str, values: Sequence[float | None], found: Sequence[KeptReport], *, is_sum: bool = False
) -> list[Piece]:
    row: list[Piece] = [(name, ""), (_number(values[-1]), "")]
    if len(found) == 1:
        return row
    total = sum(value or 0 for value in values) if is_sum else None
    return [*row, (_number(total) if is_sum else "", ""), (sparkline(values), "quiet")]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def bar(value: float, most: float, *, width: int = 24) -> str:
    """A bar as long as its part of the most; what is not 0 has at least one character."""
    if value <= 0 or most <= 0:
        return ""
    return STEPS[-1] * max(1, round(width * min(value / most, 1)))


def sparkline(values: Sequence[float | None]) -> str:
    """One small bar for each value, from the least to the most among them."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING * len(values)
    least, most = min(known), max(known)
    return "".join(NOTHING if value is None else _step(value, least, most) for value in values)


def _step(value: float, least: float, most: float) -> str:
    if most == least:
        return STEPS[len(STEPS) // 2 - 1] if most else STEPS[0]
    return STEPS[round((value - least) / (most - least) * (len(STEPS) - 1))]
