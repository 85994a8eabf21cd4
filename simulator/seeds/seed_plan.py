"""What a seed means, and the report of its run.

`plan_of` decides from the seed alone what a world has and how long it lasts: neither its place in a
sweep nor the length of the sweep counts. Eight consecutive seeds have every feature, and together
they last at most an hour.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.rules import Rules
from simulator.actors.owner import DRAWN, RULES
from simulator.checks.laws import Violation

SORTS: Final = 8
"""The remainder of a seed by this decides which features its world has."""
WITH_STEPS: Final = frozenset({1, 4, 6, 7})
AUDITED: Final = frozenset({2, 5, 6})
WITH_QUESTIONS: Final = frozenset({6})
"""Remainders. They are even where jobs ask people, since such a world is open."""
CHAOS_S: Final = 300.0
LONG_CHAOS_S: Final = 1500.0
LONG_EVERY: Final = 9
"""One seed in nine is long. Nine and eight have no common factor: each sort of world is long once
in 72 seeds, and of eight consecutive seeds at most one is."""
BURSTS: Final = 1
"""Times in a world that both submitters submit the same jobs together."""


class Plan(Struct, frozen=True, kw_only=True):
    """What one seed runs."""

    seed: int
    chaos_s: float = 3300.0
    jobs_per_hour: float = 240.0
    faults_per_hour: float = 180.0
    authority: Literal["chain", "open"] | None = None
    """What an op needs; unless it is said, odd seeds are chained."""
    stress: tuple[str, ...] = ()
    """Faults and deeds that come far more often than usual."""
    bursts: int = 0
    """How often both submitters submit the same jobs at the same moment, many in one request."""
    has_steps: bool = False
    """Whether handlers take their time in steps, and somebody stores steps of others."""
    is_audited: bool = False
    """Whether model calls are audited on the whole mesh, and handlers make some."""
    has_questions: bool = False
    """Whether some jobs ask people, and somebody forges answers; such a world is open."""
    stop_at_first: bool = False
    """End as soon as a law is broken: nobody wants the rest of a mutant's run."""

    @property
    def is_chained(self) -> bool:
        """Whether every op needs a chain of delegations from the owner."""
        if self.has_questions:
            return False
        return self.seed % 2 == 1 if self.authority is None else self.authority == "chain"

    @property
    def has_plans(self) -> bool:
        """Whether a submitter puts plans: in every second pair of worlds, open and chained."""
        return self.seed % 4 < 2

    @property
    def rules(self) -> Rules:
        """What the mesh is founded with."""
        return replace(
            RULES,
            authority="chain" if self.is_chained else "open",
            selection=DRAWN if self.seed % 8 >= 6 else (),
            audit_inference=self.is_audited,
        )


def plan_of(seed: int, *, chaos_s: float | None = None, faults_per_hour: float = 180.0) -> Plan:
    """The world of a seed; with another length or another rate of faults if they are given."""
    sort = seed % SORTS
    if chaos_s is None:
        chaos_s = CHAOS_S if seed % LONG_EVERY else LONG_CHAOS_S
    return Plan(
        seed=seed,
        chaos_s=chaos_s,
        faults_per_hour=faults_per_hour,
        bursts=BURSTS,
        has_steps=sort in WITH_STEPS,
        is_audited=sort in AUDITED,
        has_questions=sort in WITH_QUESTIONS,
    )


class Outcome(Struct, frozen=True, kw_only=True):
    """What there is to say about a run."""

    seed: int
    seconds: float
    """Virtual seconds, healing included."""
    jobs: int
    ops: int
    runs: int
    faults: dict[str, int]
    verdicts: dict[str, int]
    violations: list[Violation]
    broken: int
    stories: list[str]
    digest: str
    """Of every record and its verdict: the same world has the same one."""
    is_chained: bool
    grants: int
    revocations: int
    """Delegations that were accepted, and revocations."""
    seals: int
    """Seals that were accepted."""
    left_open: int
    """Jobs that nobody alive may claim in the end."""
    healing_s: float
    """How long it took until everything had ended, once faults had stopped."""
