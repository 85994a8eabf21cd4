"""Pictures of what `bench growth` and `bench load` printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.measurement.line_chart import Line, Panel, svg

Report = Mapping[str, Any]
SHARES: Final = (0, 10, 100)
"""Of all things of an axis that are there when it is looked at, in per cent."""


def jobs(told: Report) -> str:
    """The tenths of `bench growth --axis jobs`."""
    tenth = told["jobs"] / len(told["per_s"])
    xs = [(at + 1) * tenth for at in range(len(told["per_s"]))]

    def lines(ending: str) -> list[Line]:
        names = ("worker", "node", "server", "caller")
        found = [(who, told.get(f"{who}_{ending}")) for who in names]
        return [Line(_WHO[who], xs, values) for who, values in found if values is not None]

    panels = [
        Panel("jobs a second", [Line("all", xs, told["per_s"])]),
        Panel("processor time of one job, ms", lines("cpu_ms")),
        Panel("memory, MB", lines("mb")),
        Panel(f"on the log, MB, kept for {told['hour_s']:g} s", [Line("log", xs, told["hot_mb"])]),
    ]
    return svg("Jobs through one mesh", panels, "jobs", "python -m bench growth --axis jobs")


_WHO: Final = {"worker": "worker", "node": "full node", "server": "server", "caller": "caller"}


def axes(found: Mapping[str, Report]) -> str:
    """The milestones of every other axis."""

    def panel(title: str, key: str) -> Panel:
        lines = [
            Line(f"{name}, {one['count'][-1]:,}", SHARES, one[key]) for name, one in found.items()
        ]
        return Panel(title, lines)

    panels = [
        panel("processor time of one job of a light worker, ms", "worker_cpu_ms"),
        panel("memory of the light worker, MB", "worker_mb"),
        panel("memory of a full node, MB", "node_mb"),
        panel("memory of the server, MB", "server_mb"),
    ]
    below = "python -m bench growth --axis all"
    return svg("Many of one thing", panels, "% of them are there", below)


def load(told: Report) -> str:
    """Seconds of `bench load`: at the rate that is held, at twice that, and at half of it."""
    course = told["course"]
    xs, marks = course["at_s"], [(place, "") for place, _ in told["phases"]]
    panels = [
        Panel("jobs that wait", [Line("jobs", xs, course["waiting"])], told["phases"]),
        Panel(
            "wait of those that start then, ms",
            [Line("p99", xs, course["p99_ms"]), Line("p50", xs, course["p50_ms"])],
            marks,
        ),
        Panel(
            "memory, MB",
            [Line("worker", xs, course["worker_mb"]), Line("servers", xs, course["server_mb"])],
            marks,
        ),
    ]
    copies = told["replicas"]
    title = f"{told['held_per_s']:,.0f} jobs a second, then twice that, on {copies} "
    title += "copy" if copies == 1 else "copies"
    below = "python -m bench load" + ("" if copies == 1 else f" --replicas {copies}")
    return svg(title, panels, "seconds", below)
