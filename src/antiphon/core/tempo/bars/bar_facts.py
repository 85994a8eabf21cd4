"""What is kept of one bar, and how each fact changes it (spec §11).

Every change is a maximum, a minimum or a sum for a key, so facts may come in any order and, except
for those of the log, more than once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from antiphon.core.clock.hlc import Hlc

if TYPE_CHECKING:
    from antiphon.core.tempo.messages import StatusClaim, TaskState
    from antiphon.core.tempo.meter import Meter

MAX_NODES: Final = 1024
MAX_ROWS: Final = 256
"""Tasks of one node in one bar."""
MAX_ENDS: Final = 8192
"""Ended jobs that a bar knows by name; the others are only counted."""
MAX_CELLS: Final = 128

_PHASE_OF: Final = {"planning": 0, "executing": 1, "waiting": 1, "review": 2}
"""The phase in which a task in this state is."""
_JOB: Final = re.compile(r"[^/]+/[0-9a-f]{64}")

K = TypeVar("K", str, tuple[str, str])
V = TypeVar("V")


class Noted(StrEnum):
    """What became of a fact."""

    COUNTED = "counted"
    LATE = "late"
    """Counted, in a bar that had ended."""
    AHEAD = "ahead"
    """Kept until its bar begins."""
    FORGED = "forged"
    """Signed by another node than the one it names."""
    TOO_OLD = "too_old"
    TOO_MANY = "too_many"
    MALFORMED = "malformed"

    @property
    def is_counted(self) -> bool:
        """Whether it is in a report, or will be."""
        return self in (Noted.COUNTED, Noted.LATE, Noted.AHEAD)


class JobEnd(Struct, frozen=True, kw_only=True):
    """A job that ended, as the log has it."""

    task_id: str
    at_ms: int
    scheduled_ms: int
    is_success: bool
    cost_nano: int | None = None
    """In billionths of the currency's unit; None: nobody measured it."""


class Use(Struct, frozen=True):
    """How much of a machine is in use, 0 to 1; None: not known."""

    cpu: float | None = None
    gpu: float | None = None


class ClaimFact(Struct, frozen=True):
    """A claim and its time."""

    claim: StatusClaim
    at: Hlc

    @property
    def at_ms(self) -> int:
        """Its wall time."""
        return self.at.wall_ms


class PromiseFact(Struct, frozen=True):
    """A promise: its thread, when it was made, and for how many beats later."""

    thread: str
    beats: int
    at_ms: int


class AnswerFact(Struct, frozen=True):
    """Help that was given in a thread."""

    thread: str
    at_ms: int


class Overran(Struct, frozen=True):
    """A job whose run was cut because a phase had used up its beats, as the log has it."""

    task_id: str
    at_ms: int


class QueueFact(Struct, frozen=True):
    """A change of how many jobs of a role wait for a worker."""

    role: str
    change: int
    at_ms: int


Fact = ClaimFact | PromiseFact | AnswerFact | QueueFact | JobEnd | Overran


class Row(Struct):
    """One task of one agent in one bar."""

    key: tuple[str, str]
    """Its name in a report: a job is one task, whoever works on it; other names are an agent's."""
    last: tuple[Hlc, TaskState]
    cells: dict[int, tuple[Hlc, TaskState]]
    """The last state in each beat."""
    first_output_ms: int | None
    had_beats: list[Hlc | None]
    """By phase: the first claim with beats left, and the last one without."""
    had_none: list[Hlc | None]


class Bar:
    """What is kept of one bar."""

    def __init__(self, meter: Meter, start_ms: int) -> None:
        self.meter = meter
        self.start_ms = start_ms
        self.end_ms = meter.downbeat_after(start_ms)
        self.is_closed = False
        self.late = 0
        self.rows: dict[str, dict[tuple[str, str], Row]] = {}
        self.ends: dict[str, JobEnd] = {}
        self.overran: set[str] = set()
        self.unnamed = [0, 0]
        """Ended jobs beyond the bound: failed, succeeded."""
        self.cost_nano: int | None = None
        """The cost of what ended; a whole number, so that the sum is the same in any order."""
        self.queue: dict[str, int] = {}
        """Change of the queues, by role."""
        self.use: dict[str, tuple[Hlc, Use]] = {}

    def follow(self, meter: Meter) -> None:
        """The tempo is this one, also for what is already counted."""
        self.meter, self.end_ms = meter, meter.downbeat_after(self.start_ms)

    @property
    def beats(self) -> int:
        """How many beats it lasts, or lasted."""
        return max(1, round((self.end_ms - self.start_ms) / self.meter.beat_ms))

    def each_row(self) -> Iterator[tuple[str, str, Row]]:
        """Agent, task, and what is kept of them."""
        for rows in self.rows.values():
            for (agent, task), row in rows.items():
                yield agent, task, row


def take_claim(bar: Bar, author: str, fact: ClaimFact) -> Noted:
    """Add a claim to the share of the node that signed it."""
    rows = share_of(bar.rows, author, MAX_NODES)
    if rows is None:
        return Noted.TOO_MANY
    claim, at = fact.claim, fact.at
    if claim.cpu is not None or claim.gpu is not None:
        _take_use(bar, author, (at, Use(claim.cpu, claim.gpu)))
    key, seen = (claim.agent_id, claim.task_id), (at, claim.state)
    row = rows.get(key)
    if row is None:
        if not admit(rows, key, MAX_ROWS):
            return Noted.TOO_MANY
        is_job = _JOB.fullmatch(claim.task_id) is not None
        named = ("", claim.task_id) if is_job else key
        row = rows[key] = Row(named, seen, {}, None, [None] * 3, [None] * 3)
    row.last = max(row.last, seen)
    beat = (at.wall_ms - bar.start_ms) // bar.meter.beat_ms
    if beat < MAX_CELLS:
        row.cells[beat] = max(row.cells.get(beat, seen), seen)
    if claim.progress > 0 or claim.state == "done":
        first = at.wall_ms if row.first_output_ms is None else min(row.first_output_ms, at.wall_ms)
        row.first_output_ms = first
    place = _PHASE_OF.get(claim.state)
    if place is not None:
        if claim.beats_left:
            row.had_beats[place] = min(row.had_beats[place] or at, at)
        else:
            row.had_none[place] = max(row.had_none[place] or at, at)
    return Noted.COUNTED


def _take_use(bar: Bar, author: str, use: tuple[Hlc, Use]) -> None:
    known = bar.use.get(author)
    if known is not None:
        bar.use[author] = max(known, use, key=_use_order)
    elif admit(bar.use, author, MAX_NODES):
        bar.use[author] = use


def take_end(bar: Bar, end: JobEnd) -> Noted:
    """Add a job that ended, once."""
    if end.task_id in bar.ends:
        return Noted.TOO_MANY
    if end.cost_nano is not None:
        bar.cost_nano = (bar.cost_nano or 0) + end.cost_nano
    if len(bar.ends) < MAX_ENDS:
        bar.ends[end.task_id] = end
    else:
        bar.unnamed[end.is_success] += 1
    return Noted.COUNTED


def _use_order(one: tuple[Hlc, Use]) -> tuple[Hlc, float, float]:
    return one[0], one[1].cpu or 0.0, one[1].gpu or 0.0


def share_of(shares: dict[str, dict[K, V]], node: str, most: int) -> dict[K, V] | None:
    """The share of a node; None where there are too many nodes with smaller names."""
    share = shares.get(node)
    if share is None:
        if not admit(shares, node, most):
            return None
        share = shares[node] = {}
    return share


def admit(keys: dict[K, V], key: K, most: int) -> bool:
    """Whether a new key has room; the largest one gives way to a smaller one."""
    if len(keys) < most:
        return True
    largest = max(keys)
    if largest < key:
        return False
    del keys[largest]
    return True
