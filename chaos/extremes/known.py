"""What a run knows of the log it writes: jobs, fences, digests, and how lanes stand."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import inspect as schemas

from antiphon.core.families.jobs import ops as jobs
from antiphon.core.families.jobs.planned import PlanName
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.record import op as op_types
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import job_lane
from chaos.extremes.values import Pool

KINDS: Final = ("x.a", "x.b", "x.c")
WORKED: Final = "x.work"
"""The kind that a worker serves."""
PLANS: Final = ("p1", "p2", "p3", "p4", "p5", "p6")
KEYS: Final = ("one", "two", "three")
"""Few keys of locks and documents, so that their lanes become long."""
AGENTS: Final = ("main", "b")
ZONES: Final = ("UTC", "Europe/Berlin", "Pacific/Apia", "No/Where", "A/" * 31 + "A", "Etc/GMT+12")
EXPRESSIONS: Final = (
    *("* * * * *", "* * * * * *", "@yearly", "0 0 29 2 *", "0 0 30 2 *", "0 2 * 3 SUN"),
    *("0 0 L * *", "x", "60 * * * *", "\u0661 * * * *", "*/1 " * 60, "1-59/58 0-23 1,31 12 7"),
)
NEWEST: Final = 400
"""How many of the newest jobs are named again."""
DRAWS: Final = 12


def pattern_of(type_: Any) -> str:
    """The pattern by which texts of an annotated type are recognised."""
    found = schemas.type_info(type_)
    while isinstance(found, schemas.Metadata):
        found = found.type
    if not isinstance(found, schemas.StrType) or found.pattern is None:
        raise TypeError(f"{type_} is not a text with a pattern")
    return found.pattern


class Known:
    """The things that an op can name, of which one is drawn at a time."""

    def __init__(self, chance: random.Random, dids: Sequence[str], replica: Replica) -> None:
        """`dids` are the writers; `replica` is that of a full node."""
        self.chance = chance
        self.dids = tuple(dids)
        self.replica = replica
        self.jobs: deque[tuple[str, str]] = deque(maxlen=NEWEST)
        self.digests: deque[str] = deque([digest(b"a"), digest(b"b")], maxlen=64)
        self.records: deque[tuple[int, str]] = deque(maxlen=256)
        self.cids: deque[str] = deque(maxlen=64)
        self.now_ms = 0

    def job_key(self) -> tuple[str, str] | None:
        """A job that was submitted; the newest ones most often."""
        if not self.jobs:
            return None
        return self.jobs[-1 - min(int(self.chance.expovariate(1 / 12)), len(self.jobs) - 1)]

    def job(self) -> Job | None:
        """The same, as it stands."""
        key = self.job_key()
        return None if key is None else job_lane(self.replica, *key).job

    def job_in(self, states: Collection[State] | None) -> Job | None:
        """One in one of these states, if a few draws find one; else any."""
        found = self.job()
        for _ in range(DRAWS):
            if found is None or states is None or found.state in states:
                return found
            found = self.job()
        return found

    def state(self, key: LaneKey) -> Any:
        """How a lane stands."""
        return self.replica.lane(key).state

    def _id(self) -> str | None:
        key = self.job_key()
        return None if key is None else key[1]

    def _fence(self) -> str | None:
        job = self.job()
        return job.fence or None if job is not None else None

    def pools(self) -> Mapping[str, Pool]:
        """What is drawn for a text of a pattern, or for a field of a name."""
        choice = self.chance.choice
        return {
            "now_ms": lambda: self.now_ms,
            pattern_of(op_types.Kind): lambda: choice((*KINDS, WORKED)),
            pattern_of(jobs.JobId): self._id,
            pattern_of(jobs.Fence): self._fence,
            pattern_of(op_types.Digest): lambda: choice(self.digests),
            pattern_of(op_types.Did): lambda: choice(self.dids),
            pattern_of(op_types.AgentName): lambda: choice(AGENTS),
            pattern_of(PlanName): lambda: choice(PLANS),
            "after": self._after,
            "of": self.job_key,
            "key": lambda: choice(KEYS),
            "zone": lambda: choice(ZONES),
            "at": lambda: choice(EXPRESSIONS),
            "kinds": lambda: choice(("*", "x.*", "x.a", "y")),
        }

    def _after(self) -> tuple[tuple[str, str], ...] | None:
        """Jobs to wait for: a few, one again and again, or one that does not exist."""
        some = self.job_key()
        if some is None:
            return None
        many = self.chance.choice((0, 1, 2, 3, 30))
        if self.chance.random() < 0.02:
            many = jobs.MAX_AFTER
        if self.chance.random() < 0.5:
            return (some,) * many
        if self.chance.random() < 0.1:
            return (("y.nowhere", "1" * 64), some)
        return tuple(self.job_key() or some for _ in range(many))
