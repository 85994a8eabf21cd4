"""Which of a plan's due ticks are run (spec §7.4).

The coordinator runs a tick as soon as its time has come. If it was offline, or there was none, a
tick is late. Up to `LATE_MS` that is no matter. What is later was *missed*, and the plan says what
becomes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.families.jobs.derivation import Missed

LATE_MS: Final = 60_000
MOST_MISSED: Final = 1_000
"""How many ticks a plan with `missed: all` makes up for: the newest."""


def most_wanted(missed: Missed) -> int:
    """How many of the newest ticks can be wanted: there is at most one in a second."""
    return MOST_MISSED if missed == "all" else LATE_MS // 1000 + 1


def wanted(due: Sequence[int], now_ms: int, missed: Missed) -> list[int]:
    """The ticks to run now, oldest first, of all that are due."""
    on_time = [tick for tick in due if tick >= now_ms - LATE_MS]
    match missed:
        case "skip":
            return on_time
        case "last":
            return on_time or list(due[-1:])
        case "all":
            return list(due[-MOST_MISSED:])
