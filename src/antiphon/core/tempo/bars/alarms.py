"""Alarms about a mesh's rhythm, raised and cleared after each bar (spec §11).

    promise_miss_rate   more than 10 % of the promises due in 5 bars were broken, of at least 5
    overrun_rate        more than 10 % of the tasks of 5 bars overran, of at least 5
    no_status_claims    a job ran for a whole bar, and nobody said anything about it

A rate that raised its alarm has to fall to half of the limit to clear it, so that an alarm does not
come and go with every bar. While any is raised, the tempo is frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from antiphon.core.tempo.bars.kpis import Tally

AlarmName = Literal["promise_miss_rate", "overrun_rate", "no_status_claims"]
RAISED_ABOVE: Final = 0.10
CLEARED_BELOW: Final = 0.05
BARS: Final = 5
FEWEST: Final = 5
NAMED: Final = 8
"""Silent jobs that an alarm names at most."""


class Alarm(Struct, frozen=True):
    """A raised alarm, and the reason in words."""

    name: AlarmName
    why: str


class AlarmBar(Struct, frozen=True, kw_only=True):
    """What alarms look at in one bar."""

    tally: Tally
    overruns: int = 0
    silent: tuple[str, ...] = ()
    """Jobs that ran for the whole bar without a claim."""


def alarms(raised: Iterable[AlarmName], bars: Sequence[AlarmBar]) -> tuple[Alarm, ...]:
    """The alarms after the newest of these bars, given those that were raised before it."""
    known, newest = set(raised), bars[-BARS:]
    due = sum(bar.tally.promises_due for bar in newest)
    broken = sum(bar.tally.promises_broken for bar in newest)
    tasks = sum(bar.tally.tasks for bar in newest)
    late = sum(bar.overruns for bar in newest)
    found = []
    if _is_high(broken, due, is_raised="promise_miss_rate" in known):
        found.append(Alarm("promise_miss_rate", f"{broken} of {due} promises were broken"))
    if _is_high(late, tasks, is_raised="overrun_rate" in known):
        found.append(Alarm("overrun_rate", f"{late} of {tasks} tasks overran"))
    silent = newest[-1].silent if newest else ()
    if silent:
        more = f" and {len(silent) - NAMED} more" if len(silent) > NAMED else ""
        found.append(Alarm("no_status_claims", f"{', '.join(silent[:NAMED])}{more}"))
    return tuple(found)


def silent_jobs(running: Mapping[str, int], heard: Iterable[str], start_ms: int) -> tuple[str, ...]:
    """Jobs that have run since before a bar began and were not heard of in it."""
    spoke = set(heard)
    return tuple(
        sorted(task for task, since in running.items() if since <= start_ms and task not in spoke)
    )


def _is_high(part: int, whole: int, *, is_raised: bool) -> bool:
    # Too few to tell: it stays as it is. Nothing at all for so many bars: it is over.
    if whole < FEWEST:
        return is_raised and whole > 0
    return part / whole > (CLEARED_BELOW if is_raised else RAISED_ABOVE)
