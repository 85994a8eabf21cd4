"""Which of the plans that stand are run (spec §7.4).

Of each party the oldest, up to the rule `plans_max`. If all parties together have more than a
coordinator runs, each has its oldest before any has its next: one party's flood hides no other's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_PLANS: Final = 10_000
"""How many plans are run in all."""


def selected(standing: Iterable[tuple[str, int]], *, each: int) -> set[int]:
    """The plans that are run, of pairs of a party and the sequence at which a plan began."""
    ranks: Counter[str] = Counter()
    ranked: list[tuple[int, int]] = []
    for party, first_seq in sorted(standing, key=lambda one: one[1]):
        if ranks[party] < each:
            ranked.append((ranks[party], first_seq))
            ranks[party] += 1
    return {first_seq for _, first_seq in sorted(ranked)[:MOST_PLANS]}
