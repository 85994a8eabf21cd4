"""Whether a concurrent history could have happened one operation at a time.

Wing and Gong's search with Lowe's memory of what was tried. An operation takes effect at one moment
between its invocation and its return. One that was never answered returns at infinity, and may
never have happened. A model says what an operation does to a state, or that it cannot happen there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

MOST_STEPS: Final = 200_000
Answer = Literal["yes", "no", "unknown"]
Model = Callable[[Any, Any], Hashable | None]
"""`model(state, what)`: the state afterwards, or None if it cannot happen there."""


class Operation(Struct, frozen=True):
    """One call, by times that all callers share."""

    what: Any
    invoked: float
    returned: float = math.inf
    """Infinity: nobody knows whether it happened."""


def is_linearizable(
    history: Sequence[Operation], model: Model, state: Hashable, *, most_steps: int = MOST_STEPS
) -> Answer:
    """Whether some order explains every answer; `unknown` if that takes too many steps."""
    ops = sorted(history, key=lambda one: (one.returned, one.invoked))
    must = sum(1 << at for at, one in enumerate(ops) if one.returned < math.inf)
    seen: set[tuple[int, Hashable]] = set()
    todo: list[tuple[int, Hashable]] = [(0, state)]
    steps = 0
    while todo:
        done, now = todo.pop()
        if done & must == must:
            return "yes"
        if (done, now) in seen:
            continue
        seen.add((done, now))
        steps += 1
        if steps > most_steps:
            return "unknown"
        todo.extend(reversed(_next(ops, done, now, model)))
    return "no"


def _next(
    ops: list[Operation], done: int, now: Hashable, model: Model
) -> list[tuple[int, Hashable]]:
    """What may happen next: nothing that was invoked after something else had to have happened."""
    found: list[tuple[int, Hashable]] = []
    first_return = math.inf
    for at, one in enumerate(ops):
        if done >> at & 1:
            continue
        if one.invoked > first_return:
            continue
        first_return = min(first_return, one.returned)
        after = model(now, one.what)
        if after is not None:
            found.append((done | 1 << at, after))
    return found
