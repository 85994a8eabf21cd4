"""The measurements behind docs/understand/scale.md, and how a run's output becomes one of them.

`scale.json` has what `bench growth`, `bench load` and `bench scale` printed, `unit-costs.json` the
figures of it that the sums start from.
"""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bench.scale import arithmetic
from bench.scale.arithmetic import Unit, UnitCosts

MEASURED: Final = arithmetic.FILE.with_name("scale.json")


def measured() -> dict[str, Any]:
    """What the file has."""
    found: dict[str, Any] = json.loads(MEASURED.read_text())
    return found


def take(text: str) -> str:
    """Keep the report at the end of a run's output; what it was."""
    told = json.loads(text.strip().splitlines()[-1])
    have, costs, today = measured(), arithmetic.unit_costs(), time.strftime("%Y-%m-%d")
    what = taken(have, told)
    MEASURED.write_text(json.dumps(have, indent=1) + "\n")
    units = msgspec.json.encode(with_figures(costs, told, today))
    arithmetic.FILE.write_bytes(msgspec.json.format(units, indent=1) + b"\n")
    return what


def taken(have: dict[str, Any], told: dict[str, Any]) -> str:
    """Put a report where it belongs; what it was."""
    if "held_per_s" in told:
        others = [one for one in have["load"] if one["replicas"] != told["replicas"]]
        have["load"] = sorted([*others, told], key=lambda one: int(one["replicas"]))
        return f"load on {told['replicas']}"
    if "cells_for_a_million" in told:
        keys = [key for key in told if key.startswith(("few_", "by_share_"))]
        have["cells"] = {key: told[key] for key in keys}
        return "cells"
    if "axes" not in told:
        raise SystemExit("this is no output of bench growth, load or scale")
    have["axes"] |= told["axes"]
    names = list(told["axes"])
    if "jobs" in told:
        have["jobs"] = {key: value for key, value in told.items() if key != "axes"}
        names.append("jobs")
    return ", ".join(names)


def with_figures(costs: UnitCosts, told: dict[str, Any], today: str) -> UnitCosts:
    """The unit costs, with those that a report of `bench growth` has."""
    command = "python -m bench growth --axis"
    if workers := told.get("axes", {}).get("workers"):
        of = f"{command} workers"
        sent, us = workers["idle_msgs_per_worker"], workers["server_us_per_worker_s"]
        mb = round(workers["server_kb_per_worker"] / 1024, 4)
        costs = replace(
            costs,
            idle_messages_per_worker_s=Unit(sent, of, "idle_msgs_per_worker", today),
            server_us_per_worker_s=Unit(us, of, "server_us_per_worker_s", today),
            server_mb_per_worker=Unit(mb, of, "server_kb_per_worker", today),
        )
    if "node_cpu_ms" in told:
        of, ms = f"{command} jobs", round(median(told["node_cpu_ms"]), 2)
        archive, replica = told["mb_per_million"], told["replica_mb_per_million"]
        costs = replace(
            costs,
            node_ms_per_job=Unit(ms, of, "node_cpu_ms", today),
            archive_bytes_per_job=Unit(archive, of, "mb_per_million", today),
            replica_bytes_per_job=Unit(replica, of, "replica_mb_per_million", today),
        )
    return costs
