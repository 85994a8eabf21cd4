"""What jobs cost together, by kind, by node or by account (spec §11).

From what the workers said on the log: completions in their proofs, yields in their bodies. Amounts
in different currencies are kept apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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


class CostSums:
    """Sums by kind, node or account; keeps no job, since there may be millions."""

    def __init__(self, by: CostBy) -> None:
        """Nothing was counted yet."""
        self._by: CostBy = by
        self._lines: dict[str, CostLine] = {}
        self.total = CostLine(name="")

    def add(self, job: Job) -> None:
        """Count one job."""
        ran = bool(job.claimer or job.spent)
        self.total.add(job, job.total_spent, ran=ran)
        for name, spent in _parts(job, self._by):
            self._lines.setdefault(name, CostLine(name=name)).add(job, spent, ran=ran)

    @property
    def lines(self) -> list[CostLine]:
        """The most expensive first."""
        return sorted(
            self._lines.values(), key=lambda line: (-sum(line.amounts.values()), line.name)
        )


def _parts(job: Job, by: CostBy) -> Iterator[tuple[str, Spent]]:
    if by != "node":
        yield (job.kind if by == "kind" else job.account), job.total_spent
    elif job.spent:
        yield from job.spent
    elif job.claimer:
        yield job.claimer, Spent()
