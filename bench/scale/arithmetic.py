"""The sums of docs/understand/scale.md: from one job and one idle worker to a cell's machines.

Nothing here is measured. The unit costs are, by the commands that `unit-costs.json` names.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

FILE: Final = Path(__file__).parents[2] / "docs/understand/performance/unit-costs.json"
SERVERS: Final = 3
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
YEAR_S: Final = 365 * DAY_S
ROOM: Final = 2.0
"""Machines are bought for twice of what is used on average."""
CORE_MONTH: Final = 25.0
"""US dollars for one core with 4 GB for a month: a stated assumption, about what clouds ask."""
TB_MONTH: Final = 25.0
"""The same for a terabyte of objects."""


class Unit(Struct, frozen=True, forbid_unknown_fields=True):
    """One measured figure."""

    value: float
    command: str
    key: str
    """What the command calls it."""
    date: str


class UnitCosts(Struct, frozen=True, forbid_unknown_fields=True):
    """What one of each costs, on the machine that measured."""

    idle_messages_per_worker_s: Unit
    server_us_per_worker_s: Unit
    """Of one server, for an idle worker, in each second."""
    server_mb_per_worker: Unit
    worker_ms_per_job: Unit
    server_ms_per_job: Unit
    """Of all servers together, with three copies."""
    node_ms_per_job: Unit
    bytes_per_job: Unit
    archive_bytes_per_job: Unit
    replica_bytes_per_job: Unit


class Cell(Struct, frozen=True, kw_only=True):
    """One mesh on three servers with so many workers and jobs."""

    workers: int
    jobs_per_s: float
    idle_messages_per_s: float
    server_cores: float
    """Of the three servers together."""
    node_cores: float
    """Of one full node; there should be two or three."""
    worker_cores: float
    """Of all workers together, for what Antiphon adds to their jobs."""
    server_gb: float
    hot_gb: float
    """Records of one hour, on each server."""
    replica_gb_day: float
    """What a full node's replica grows by."""
    archive_tb_year: float


def unit_costs() -> UnitCosts:
    """As the file has them."""
    return msgspec.json.decode(FILE.read_bytes(), type=UnitCosts)


def cell(costs: UnitCosts, workers: int, jobs_per_s: float) -> Cell:
    """The sums for one cell."""
    messages = workers * costs.idle_messages_per_worker_s.value
    on_servers_ms = jobs_per_s * costs.server_ms_per_job.value
    bytes_per_s = jobs_per_s * costs.bytes_per_job.value
    return Cell(
        workers=workers,
        jobs_per_s=jobs_per_s,
        idle_messages_per_s=messages,
        server_cores=on_servers_ms / 1e3 + workers * costs.server_us_per_worker_s.value / 1e6,
        node_cores=jobs_per_s * costs.node_ms_per_job.value / 1e3,
        worker_cores=jobs_per_s * costs.worker_ms_per_job.value / 1e3,
        server_gb=workers * costs.server_mb_per_worker.value / 1e3,
        hot_gb=bytes_per_s * HOUR_S / 1e9,
        replica_gb_day=jobs_per_s * costs.replica_bytes_per_job.value * DAY_S / 1e9,
        archive_tb_year=jobs_per_s * costs.archive_bytes_per_job.value * YEAR_S / 1e12,
    )


def most_jobs_per_s(costs: UnitCosts) -> float:
    """What one full node of one core keeps up with: the bound of a cell."""
    return 1e3 / costs.node_ms_per_job.value


def cells_for(costs: UnitCosts, workers: int, jobs_per_s: float, *, each: int = 10_000) -> int:
    """How many cells hold so many workers, and so many jobs at half of what a full node can."""
    by_jobs = jobs_per_s / (most_jobs_per_s(costs) / 2)
    return max(math.ceil(workers / each), math.ceil(by_jobs), 1)


def dollars_a_month(one: Cell, count: int) -> float:
    """Servers, three full nodes and a year of the archive of each cell; no workers."""
    cores = (one.server_cores + SERVERS * one.node_cores) * ROOM
    least = max(cores, 2 * SERVERS)  # a machine has two cores, however idle
    return count * (least * CORE_MONTH + one.archive_tb_year * TB_MONTH)


def table(costs: UnitCosts) -> str:
    """The page's table: from ten workers to a million, a tenth of a job a second for each."""
    lines = [
        "| workers | jobs/s | cells | idle messages/s | cores of servers | memory of a server, GB |"
        " cores of one full node | its replica, GB a day | hot log, GB for an hour |"
        " archive, TB a year | $ a month |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for power in range(1, 7):
        workers = 10**power
        jobs_per_s = workers / 10
        count = cells_for(costs, workers, jobs_per_s)
        one = cell(costs, workers // count, jobs_per_s / count)
        lines.append(
            f"| {workers:,} | {jobs_per_s:,.0f} | {count:,} |"
            f" {one.idle_messages_per_s * count:,.1f} | {one.server_cores * count:,.1f} |"
            f" {one.server_gb / SERVERS:,.2f} | {one.node_cores:,.2f} |"
            f" {one.replica_gb_day:,.1f} | {one.hot_gb:,.2f} |"
            f" {one.archive_tb_year * count:,.1f} | {dollars_a_month(one, count):,.0f} |"
        )
    return "\n".join(lines) + "\n"
