"""What the notes of all contenders say together: two holders, fences that went back, an order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from chaos.locks.process import Note
from simulator.linearizability import Operation, is_linearizable

MOST_OPERATIONS: Final = 200
State = tuple[str, tuple[str, int] | None]
"""The highest fence, and whose hold it is."""


class Attempt(NamedTuple):
    """One try for a lock, by one process."""

    who: str
    number: int
    key: str
    asked_s: float
    got_s: float = math.inf
    fence: str = ""
    certain_s: float = -math.inf
    """The last moment at which it was certain to hold the lock."""
    let_s: float = math.inf
    freed_s: float = math.inf
    was_given_up: bool = False

    @property
    def has(self) -> bool:
        """Whether it got the lock."""
        return bool(self.fence)


def attempts_of(who: str, notes: Iterable[Note]) -> list[Attempt]:
    """The tries in one journal."""
    found: dict[int, Attempt] = {}
    for note in notes:
        known = found.get(note.number) or Attempt(who, note.number, note.key, note.at_s)
        match note.event:
            case "got":
                known = known._replace(got_s=note.at_s, fence=note.fence)
            case "check":
                known = known._replace(certain_s=note.at_s)
            case "let":
                known = known._replace(let_s=note.at_s)
            case "free":
                known = known._replace(freed_s=note.at_s)
            case "none":
                known = known._replace(was_given_up=True)
            case _:
                pass
        found[note.number] = known
    return list(found.values())


def violations(attempts: Sequence[Attempt]) -> list[str]:
    """Two that were certain to hold one lock at one time, or that were given one fence."""
    found: list[str] = []
    for key, own in _by_key(attempts).items():
        held = sorted((one for one in own if one.has), key=lambda one: one.got_s)
        fences = defaultdict(list)
        latest: Attempt | None = None
        for one in held:
            fences[one.fence].append(one.who)
            if latest is not None and latest.certain_s > one.got_s:
                found.append(f"{key}: {latest.who} was certain after {one.who} had it")
            if latest is None or one.certain_s > latest.certain_s:
                latest = one
        found += [f"{key}: {who} have one fence" for who in fences.values() if len(who) > 1]
    return found


def regressions(attempts: Sequence[Attempt]) -> list[str]:
    """Fences that are not above one that somebody had before the try began."""
    found: list[str] = []
    for key, own in _by_key(attempts).items():
        held = [one for one in own if one.has]
        given = sorted((one.got_s, one.fence) for one in held)
        at, highest = 0, ""
        for one in sorted(held, key=lambda each: each.asked_s):
            while at < len(given) and given[at][0] < one.asked_s:
                highest = max(highest, given[at][1])
                at += 1
            if one.fence <= highest:
                found.append(f"{key}: {one.who} got {one.fence} after {highest}")
    return found


def handovers_ms(attempts: Sequence[Attempt]) -> list[float]:
    """From the moment a holder lets go to the next one that was waiting for it already."""
    found: list[float] = []
    for own in _by_key(attempts).values():
        held = sorted((one for one in own if one.has), key=lambda one: one.fence)
        for before, after in pairwise(held):
            if after.asked_s < before.let_s < after.got_s < math.inf:
                found.append((after.got_s - before.let_s) * 1000)
    return found


def model(state: State, what: tuple[str, tuple[str, int], str]) -> State | None:
    """A lock: `take` needs it free and a higher fence, `free` and `end` need its holder."""
    verb, who, fence = what
    highest, holder = state
    if verb == "take":
        if holder is not None or (fence and fence <= highest):
            return None
        return (fence or highest, who)
    return (highest, None) if holder == who else None


def history_of(attempts: Sequence[Attempt], ttl_s: float) -> list[Operation]:
    """The operations on one lock. A hold that nobody released may have ended with its time."""
    ops: list[Operation] = []
    for one in attempts:
        if one.was_given_up:
            continue
        me = (one.who, one.number)
        ops.append(Operation(("take", me, one.fence), one.asked_s, one.got_s))
        if one.let_s < math.inf:
            ops.append(Operation(("free", me, ""), one.let_s, one.freed_s))
        if one.freed_s == math.inf:
            ops.append(Operation(("end", me, ""), one.asked_s + ttl_s))
    return ops


def linearizable(attempts: Sequence[Attempt], ttl_s: float) -> dict[str, str]:
    """For each lock, whether its first operations could have happened one at a time."""
    answers: dict[str, str] = {}
    for key, own in _by_key(attempts).items():
        first = sorted(own, key=lambda one: one.asked_s)
        while len(history_of(first, ttl_s)) > MOST_OPERATIONS:
            # What was asked before the cut and got after it goes, too: others came in between.
            first = first[: len(first) * 9 // 10]
            cut_s = first[-1].asked_s
            first = [one for one in first if one.got_s <= cut_s]
        answers[key] = is_linearizable(history_of(first, ttl_s), model, ("", None))
    return answers


def _by_key(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = defaultdict(list)
    for one in attempts:
        found[one.key].append(one)
    return found
