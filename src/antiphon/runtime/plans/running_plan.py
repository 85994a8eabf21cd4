"""A plan that the coordinator runs, and how far it has come."""

from __future__ import annotations

from msgspec import Struct, field

from antiphon.core.derivations import missed_ticks
from antiphon.core.families.jobs.derivation import Cron, Reaction
from antiphon.core.families.plans.state import Plan
from antiphon.runtime.plans.cron_ticks import CronTicks

Key = tuple[str, str, int]
"""A plan: its kind, its name, and where it was last put."""


def key_of(plan: Plan) -> Key:
    """The plan as a service's item."""
    return plan.body.kind, plan.body.name, plan.put_seq


class RunningPlan(Struct):
    """Of a cron plan the ticks that are due, of a reaction the causes that were answered."""

    plan: Plan
    party: str
    is_begun: bool = False
    """Whether it is known from where it continues."""
    ticks: CronTicks | None = None
    """None for a reaction, and where the expression is not valid here."""
    due: list[int] = field(default_factory=list)
    """Ticks whose time has come and that are not derived, oldest first."""
    seen_ms: int = 0
    """Up to here every tick is derived, left out or in `due`."""
    next_ms: int | None = None
    """The tick after that."""
    cursor: int = 0
    """Every cause that ended up to here was looked at."""
    upto: int = 0
    """Up to here there may be others."""
    refused_under: tuple[int, int] | None = None
    """The control state under which the log refused it: it is not tried again before the next."""

    @property
    def key(self) -> Key:
        """The plan as a service's item."""
        return key_of(self.plan)

    @property
    def waits_for(self) -> tuple[str, str] | None:
        """The kinds and the ending of a reaction's causes; None for a cron plan."""
        trigger = self.plan.body.trigger
        return (trigger.kinds, trigger.on) if isinstance(trigger, Reaction) else None

    def begin_ticks(self, ticks: CronTicks, derived_ms: int) -> None:
        """Continue after the newest tick that was derived."""
        self.ticks, self.seen_ms, self.next_ms = ticks, derived_ms, ticks.next(derived_ms)

    def see_ticks(self, now_ms: int) -> None:
        """Take in the ticks that have become due, and leave out those that are too late."""
        trigger = self.plan.body.trigger
        if self.ticks is None or not isinstance(trigger, Cron):
            return
        if self.next_ms is not None and self.next_ms <= now_ms:
            most = missed_ticks.most_wanted(trigger.missed)
            fresh = self.ticks.due(self.seen_ms, now_ms, most=most)
            self.due = [*self.due, *fresh][-missed_ticks.MOST_MISSED :]
            self.seen_ms = now_ms
            self.next_ms = self.ticks.next(now_ms)
        self.due = missed_ticks.wanted(self.due, now_ms, trigger.missed)

    def done(self, upto: int) -> None:
        """Note that everything up to a tick, or up to the end of a cause, is on the log."""
        if self.waits_for is not None:
            self.cursor = max(self.cursor, upto)
        else:
            self.due = [tick for tick in self.due if tick > upto]
