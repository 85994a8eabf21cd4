"""What jobs cost together, by kind, by node or by account (spec §11).

From what the workers said on the log: completions in their proofs, yields in their bodies. Amounts
in different currencies are kept apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct, field

from antiphon.core.cost.job_cost import Spent
from antiphon.core.families.jobs.state import Job, State

CostBy = Literal["kind", "node", "account"]


class CostLine(Struct, kw_only=True):
    """What some jobs cost."""

    name: str
    """The kind, the node's key or the account."""
    jobs: int = 0
    succeeded: int = 0
    beats_milli: int = 0
    amounts: Counter[str] = field(default_factory=Counter)
    """In billionths, by currency."""
    without: int = 0
    """Jobs that ran and of which no cost is known."""
    partial: int = 0
    """Jobs in whose cost something is missing that has a price and was not measured."""

    def per_result(self, currency: str) -> int | None:
        """The cost of each job that succeeded, in billionths, rounded; None if none did."""
        if not self.succeeded:
            return None
        return (2 * self.amounts[currency] + self.succeeded) // (2 * self.succeeded)

    def add(self, job: Job, spent: Spent, *, ran: bool) -> None:
        """Count one job, or one node's part of it."""
        self.jobs += 1
        self.succeeded += job.state is State.SUCCEEDED
        self.beats_milli += spent.beats_milli
        if spent.currency:
            self.amounts[spent.currency] += spent.amount_nano
        self.without += ran and not spent.currency
        self.partial += bool(spent.currency) and spent.is_partial


def cost_sums(jobs: Iterable[Job], by: CostBy) -> tuple[list[CostLine], CostLine]:
    """A line for each kind, node or account, the most expensive first; and all jobs together."""
    lines: dict[str, CostLine] = {}
    total = CostLine(name="")
    for job in jobs:
        ran = bool(job.claimer or job.spent)
        total.add(job, job.total_spent, ran=ran)
        for name, spent in _parts(job, by):
            line = lines.setdefault(name, CostLine(name=name))
            line.add(job, spent, ran=ran)
    ordered = sorted(lines.values(), key=lambda line: (-sum(line.amounts.values()), line.name))
    return ordered, total


def _parts(job: Job, by: CostBy) -> Iterator[tuple[str, Spent]]:
    if by != "node":
        yield (job.kind if by == "kind" else job.account), job.total_spent
    elif job.spent:
        yield from job.spent
    elif job.claimer:
        yield job.claimer, Spent()
