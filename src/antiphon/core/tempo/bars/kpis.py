"""The key figures of one bar, or of several (spec §11; each with an example in docs/do/reports.md).

    tnt   tempo-normalised throughput   succeeded / beats elapsed
    bpd   beats per deliverable         beats used / succeeded
    wr    wait ratio                    waiting beats / beats used
    eta   efficiency                    non-waiting beats of what succeeded / beats used
    pmr   promise miss rate             promises broken / promises due
    cpd   cost per deliverable          cost / succeeded
    ttfu  time to first useful output   median beats from submission to the first output

A figure whose divisor is 0 is None, and so is a cost that nobody measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Final

from msgspec import Struct

KPIS: Final = ("tnt", "bpd", "wr", "eta", "pmr", "cpd", "ttfu")
_DIGITS: Final = 6
"""Decimal places: a sum in another order must not give another report."""


class Tally(Struct, frozen=True, kw_only=True):
    """What the figures are made of; tallies of several bars can be added."""

    beats: int = 0
    """Beats that passed."""
    tasks: int = 0
    """Tasks that claims or the log told of."""
    succeeded: int = 0
    beats_used: int = 0
    """Beats in which a task was worked on: two tasks in one beat are two."""
    beats_waited: int = 0
    beats_useful: int = 0
    """Of what succeeded, without the waiting."""
    promises_due: int = 0
    promises_broken: int = 0
    cost: float | None = None
    firsts: tuple[float, ...] = ()
    """For each job that succeeded: beats from its submission to its first output."""
    overruns_in: tuple[int, int, int] = (0, 0, 0)
    """Tasks that overran in plan, work and review."""


def combined(tallies: Iterable[Tally]) -> Tally:
    """The tally of several bars; a task that lasted two bars counts in both."""
    each = list(tallies)
    costs = [one.cost for one in each if one.cost is not None]
    plan, work, review = (sum(one.overruns_in[place] for one in each) for place in range(3))
    return Tally(
        beats=sum(one.beats for one in each),
        tasks=sum(one.tasks for one in each),
        succeeded=sum(one.succeeded for one in each),
        beats_used=sum(one.beats_used for one in each),
        beats_waited=sum(one.beats_waited for one in each),
        beats_useful=sum(one.beats_useful for one in each),
        promises_due=sum(one.promises_due for one in each),
        promises_broken=sum(one.promises_broken for one in each),
        cost=sum(costs) if costs else None,
        firsts=tuple(beats for one in each for beats in one.firsts),
        overruns_in=(plan, work, review),
    )


def kpis(tally: Tally) -> dict[str, float | None]:
    """All figures by name."""
    return {
        "tnt": _ratio(tally.succeeded, tally.beats),
        "bpd": _ratio(tally.beats_used, tally.succeeded),
        "wr": _ratio(tally.beats_waited, tally.beats_used),
        "eta": _ratio(tally.beats_useful, tally.beats_used),
        "pmr": _ratio(tally.promises_broken, tally.promises_due),
        "cpd": _ratio(tally.cost, tally.succeeded),
        "ttfu": round(median(tally.firsts), _DIGITS) if tally.firsts else None,
    }


def _ratio(part: float | None, whole: int) -> float | None:
    return round(part / whole, _DIGITS) if part is not None and whole else None
