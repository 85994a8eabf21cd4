"""What a seed means, and the report of its run."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.rules import Rules
from simulator.actors.owner import DRAWN, RULES
from simulator.checks.laws import Violation


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
