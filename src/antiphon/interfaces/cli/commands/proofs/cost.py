"""`antiphon cost`: what jobs cost, by kind, by node or by account."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import some_seconds
from antiphon.interfaces.cli.screen.lookup import complete_job, complete_kind, find_job
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import Piece, counted, err, out

if TYPE_CHECKING:
    from antiphon.sdk.costs.cost_report import CostLine
    from antiphon.sdk.mesh import Mesh

By = Literal["kind", "node", "account"]


@command
async def cost(
    mesh: Mesh,
    *,
    by: By = typer.Option("kind", help="What to sum up by."),
    since: float | None = typer.Option(
        None,
        parser=some_seconds,
        metavar="TIME",
        help="Only jobs that ended within this time: 24h, 7d. Default: all that are known.",
    ),
    kind: str = typer.Option(
        "", help="Only this kind and kinds below it.", autocompletion=complete_kind
    ),
    like: str = typer.Option(
        "",
        metavar="JOB",
        help="Estimate instead: the device time of a job like this one on each device class.",
        autocompletion=complete_job,
    ),
) -> Answer:
    """Show what jobs cost.

    Sums of what the workers stated in their proofs, and in yields, at the rates that the owner
    set. A job's account is charge_to in its budget, or else the key that submitted it.

    \b
      antiphon cost --by account --since 30d
      antiphon submit render.frame 1 --budget charge_to=team-a --budget max_bu=8
      antiphon cost --like 3f9a
    """  # noqa: D301 - \b keeps the lines apart
    if like:
        return await _like(mesh, like)
    since_s = None if since is None else time.time() - since
    moment = None if since_s is None else datetime.fromtimestamp(since_s, UTC)
    report = await mesh.cost(by=by, since=moment, kind=kind)
    held = await mesh.authority.who()

    def called(name: str) -> str:
        return held.called(name) if name.startswith("did:") else name

    def words() -> None:
        if not report.lines:
            out.say("no job has ended" + (" in this time" if since_s is not None else " yet"))
            return
        rows = [_row(line, called(line.name)) for line in report.lines]
        if len(rows) > 1:
            rows.append(_row(report.total, "total"))
        heads = (by.upper(), "JOBS", "SUCCEEDED", "BEATS", "COST", "PER RESULT")
        out.table(heads, rows, flexible=0)
        _tell_gaps(report.total)

    facts = {
        "by": report.by,
        "lines": [_line_object(line) | {"called": called(line.name)} for line in report.lines],
        "total": _line_object(report.total),
        "since_ms": None if since_s is None else round(since_s * 1000),
    }
    return Answer(facts, words)


async def _like(mesh: Mesh, prefix: str) -> Answer:
    """What a job like this one would take on each device class."""
    from antiphon.sdk.costs.cost_report import amount_text
    from antiphon.sdk.proofs.estimate import estimate_like

    job = await find_job(mesh, prefix)
    found = await estimate_like(mesh.job(job.kind, job.id), mesh.tempo.policy.rates)

    def cost_text(nano: int | None) -> str:
        return "no rate" if nano is None else f"{amount_text(nano)} {found.currency}"

    def words() -> None:
        said = (
            f"{job.kind} {short(job.id)} took {found.effective_ms / 1000:g} s of effective compute"
        )
        out.say(f"{said}; the same work, for planning only:")
        rows: list[list[Piece]] = [
            [
                (one.device, "strong"),
                (f"{one.device_ms / 1000:g} s", ""),
                (cost_text(one.amount_nano), ""),
            ]
            for one in found.devices
        ]
        out.table(("DEVICE", "TIME", "COST"), rows, flexible=0)

    devices = [
        {
            "device": one.device,
            "seconds": one.device_ms / 1000,
            "cost": None if one.amount_nano is None else amount_text(one.amount_nano),
        }
        for one in found.devices
    ]
    facts = {
        "job": job.id,
        "ecu_sec": found.effective_ms / 1000,
        "currency": found.currency,
        "devices": devices,
    }
    return Answer(facts, words)


def _tell_gaps(total: CostLine) -> None:
    if total.without:
        err.say(f"{counted(total.without, 'job')} without a measured cost: no rates were in force")
        if not total.amounts:
            err.say(
                "  try: ",
                "antiphon tempo set FILE --rates rates.yaml; antiphon tempo set --help shows both",
            )
    if total.partial:
        err.say(
            f"{counted(total.partial, 'job')} cost at least this much: something that has a rate"
            " was not measured, and antiphon proof JOB names it"
        )


def _row(line: CostLine, name: str) -> list[Piece]:
    from antiphon.sdk.costs.cost_report import amount_text, beats_text

    each = (
        f"{amount_text(per)} {currency}"
        for currency in sorted(line.amounts)
        if (per := line.per_result(currency)) is not None
    )
    amounts = (f"{amount_text(nano)} {unit}" for unit, nano in sorted(line.amounts.items()))
    return [
        (name, "strong"),
        (f"{line.jobs:,}", ""),
        (f"{line.succeeded:,}", ""),
        (beats_text(line.beats_milli), ""),
        (", ".join(amounts) or "not measured", "" if line.amounts else "quiet"),
        (", ".join(each), "quiet"),
    ]


def _line_object(line: CostLine) -> dict[str, object]:
    from antiphon.sdk.costs.cost_report import amount_text, beats_text

    per = {unit: line.per_result(unit) for unit in sorted(line.amounts)}
    return {
        **fields(line, "name", "jobs", "succeeded", "partial"),
        "beats": beats_text(line.beats_milli),
        "cost": {unit: amount_text(nano) for unit, nano in sorted(line.amounts.items())},
        "cpd": {unit: None if nano is None else amount_text(nano) for unit, nano in per.items()},
        "without_cost": line.without,
    }
