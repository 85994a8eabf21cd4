"""The parts of docs/understand/scale.md that are made from figures."""

from __future__ import annotations

from typing import Any, Final

from bench.measurement import growth_charts
from bench.scale import arithmetic, measurements
from bench.scale.arithmetic import UnitCosts

PAGE: Final = arithmetic.FILE.parents[1] / "scale.md"
PICTURES: Final = PAGE.parents[1] / "pictures"
ALT: Final = {
    "growth-axes": "What a light worker, a full node and the server pay for many of one thing",
    "growth-jobs": "Rate, processor time, memory and the log, from the first job to the last",
    "load-1": "Waiting jobs, waits and memory at the rate that is held, twice and half of it",
    "load-3": "The same with three copies",
}
WORDS: Final = {
    "idle_messages_per_worker_s": ("messages of an idle worker, a second", "{:.3f}"),
    "server_us_per_worker_s": (
        "processor time of the server for that, with its answers and pings, a second",
        "{:.0f} µs",
    ),
    "server_mb_per_worker": ("memory of the server for an idle worker", "{:.3f} MB"),
    "worker_ms_per_job": ("processor time of a worker for a job that does nothing", "{:.2f} ms"),
    "server_ms_per_job": ("the same of three servers", "{:.2f} ms"),
    "node_ms_per_job": ("the same of a full node", "{:.2f} ms"),
    "bytes_per_job": ("records of a small job", "{:,.0f} bytes"),
    "archive_bytes_per_job": ("the same in the archive's files", "{:,.0f} bytes"),
    "replica_bytes_per_job": ("the same in a full node's replica", "{:,.0f} bytes"),
}


def units(costs: UnitCosts) -> str:
    """A row for each unit cost."""
    lines = ["| | cost | command |", "|---|--:|---|"]
    for name, (words, form) in WORDS.items():
        one = getattr(costs, name)
        lines.append(f"| {words} | {form.format(one.value)} | `{one.command}`: {one.key} |")
    return "\n".join(lines) + "\n"


def axes(found: dict[str, Any]) -> str:
    """A row for each axis, with none and with all."""
    lines = [
        "| | how many | a job costs a light worker | its memory | a full node's | a server's |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, one in found.items():
        lines.append(
            f"| {name} | {one['count'][-1]:,} | {_change(one['worker_cpu_ms'])} ms |"
            f" {_change(one['worker_mb'])} MB | {_change(one['node_mb'])} MB |"
            f" {_change(one['server_mb'])} MB |"
        )
    return "\n".join(lines) + "\n"


def _change(values: list[float]) -> str:
    return f"{values[0]:g} → {values[-1]:g}"


def workers(found: dict[str, Any]) -> str:
    """What idle workers cost, and what of it is for what."""
    if not found:
        return ""
    parts, count = found["parts"], found["count"][-1]
    sent = [f"{name} {parts[name]:g}" for name in ("pulls", "reads", "heartbeats") if name in parts]
    return (
        f"| of {count:,} idle workers | |\n|---|--:|\n"
        f"| messages that one sends in a second | {found['idle_msgs_per_worker']:g}"
        f" ({', '.join(sent)}) |\n"
        f"| messages that one gets in a second | {found['out_msgs_per_worker']:g} |\n"
        f"| memory of the server for one | {found['server_kb_per_worker']:g} kB, of which"
        f" {found['server_kb_per_connection']:g} for a connection that does nothing |\n"
        f"| processor time of the server for one, in a second |"
        f" {found['server_us_per_worker_s']:g} µs, of which"
        f" {found['server_us_per_connection_s']:g} for the pings of such a connection |\n"
        f"| the server with all of them | {found['server_cpu_pct'][-1]:g} % of a core,"
        f" {found['server_mb'][-1]:,.0f} MB |\n"
        f"| a full node beside them | {found['node_cpu_pct'][-1]:g} % of a core,"
        f" {found['node_mb'][-1]:,.0f} MB |\n"
        f"| their own processes, for one | {found['fleet_mb'][-1] * 1024 / count:,.0f} kB |\n"
    )


def jobs(found: dict[str, Any]) -> str:
    """What many jobs leave behind."""
    if not found:
        return ""
    return (
        f"| after {found['jobs']:,} jobs | |\n|---|--:|\n"
        f"| a job's processor time, first tenth and last: worker |"
        f" {_change(_ends(found['worker_cpu_ms']))} ms |\n"
        f"| the same of the full node that archives |"
        f" {_change(_ends(found['node_cpu_ms']))} ms |\n"
        f"| memory of the worker, the node, the server |"
        f" {found['worker_mb'][-1]:g}, {found['node_mb'][-1]:g}, {found['server_mb'][-1]:g} MB |\n"
        f"| on the log, at the most, and once all was archived |"
        f" {max(found['hot_mb']):,.0f} MB, {found['hot_mb_after']:g} MB |\n"
        f"| the archive's files, for a million jobs | {found['mb_per_million']:,.0f} MB |\n"
        f"| a full node's replica, for a million jobs |"
        f" {found['replica_mb_per_million']:,.0f} MB |\n"
        f"| until a new full node has caught up | {found['snapshot_start_s']:g} s |\n"
    )


def _ends(values: list[float]) -> list[float]:
    return [values[0], values[-1]]


def load(found: list[dict[str, Any]]) -> str:
    """A row for each number of copies."""
    lines = [
        "| copies | jobs/s held | bare records/s | p50, p99 | at twice that: p99, refused |"
        " waiting at the most | worked off after | then p99 |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {one['replicas']} | {one['held_per_s']:,.0f} for {one['held_s']:,.0f} s |"
        f" {one['bare_held_per_s']:,.0f} | {one['held_p50_ms']:g}, {one['held_p99_ms']:g} ms |"
        f" {one['twice_p99_ms']:,.0f} ms, {one['twice_refused']:,} |"
        f" {_count(one.get('twice_waiting'))} | {one['drained_s']:g} s |"
        f" {one['after_p99_ms']:g} ms |"
        for one in found
    ]
    return "\n".join(lines) + "\n"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,} jobs"


def cells(found: dict[str, Any]) -> str:
    """A row for each way in which kinds are served."""
    lines = [
        "| each kind is served by | first claim p50, p99 | busiest cell, by the average |"
        " after the loss: p99, longest | as before after |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, words in (("few", "eight cells"), ("by_share", "as many as its share needs")):
        at = {key: found[f"{name}_{key}"] for key in ("p50_s", "p99_s", "busiest", "recovered_s")}
        lines.append(
            f"| {words} | {at['p50_s']:g} s, {at['p99_s']:g} s | {at['busiest']:g} |"
            f" {found[f'{name}_lost_p99_s']:g} s, {found[f'{name}_lost_max_s']:g} s |"
            f" {at['recovered_s']:g} s |"
        )
    return "\n".join(lines) + "\n"


def made(text: str) -> str:
    """The page with its parts made anew."""
    costs = arithmetic.unit_costs()
    measured = measurements.measured()
    drawn = pictures(measured)
    parts = {
        "units": units(costs),
        "table": arithmetic.table(costs),
        "axes": axes(measured["axes"]) + _shown(drawn, "growth-axes"),
        "workers": workers(measured["axes"].get("workers", {})),
        "jobs": jobs(measured.get("jobs", {})) + _shown(drawn, "growth-jobs"),
        "load": load(measured["load"]) + _shown(drawn, "load"),
        "cells": cells(measured["cells"]),
    }
    for name, part in parts.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        text = before + begin + part + end + rest.partition(end)[2]
    return text


def pictures(measured: dict[str, Any]) -> dict[str, str]:
    """By name, what can be drawn of the measurements."""
    found = {"growth-axes": growth_charts.axes(measured["axes"])}
    if "jobs" in measured:
        found["growth-jobs"] = growth_charts.jobs(measured["jobs"])
    for one in measured["load"]:
        if "course" in one:
            found[f"load-{one['replicas']}"] = growth_charts.load(one)
    return found


def _shown(drawn: dict[str, str], begin: str) -> str:
    names = [name for name in drawn if name.startswith(begin)]
    return "".join(f"\n![{ALT[name]}](../pictures/{name}.svg)\n" for name in names)


def write() -> None:
    """Make the page's parts and its pictures anew."""
    PAGE.write_text(made(PAGE.read_text()))
    for name, text in pictures(measurements.measured()).items():
        (PICTURES / f"{name}.svg").write_text(text)
