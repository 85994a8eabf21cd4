"""What a job was derived from, and what a plan waits for (spec §7.4).

A *plan* says what to submit, and its *trigger* when: at the ticks of a cron expression, or whenever
a job of some kind ends. The coordinator submits the job; the schedule that it writes names the plan
as its first dep and says which tick or which job caused it. The job's id follows from the plan's op
and the tick or cause alone, so whoever derives it derives the same job.

Only shape and bounds are decided here. Whether an expression is valid, and which ticks it has,
depends on libraries and time zone data that change: no verdict may.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from blake3 import blake3
from msgspec import Meta

from antiphon.core.record import codec, subjects
from antiphon.core.record.op import Body, Kind, WallMs

MAX_DEPTH: Final = 16
"""How many reactions may follow one another."""

Missed = Literal["skip", "last", "all"]
"""What becomes of ticks that passed while no coordinator ran."""
Ending = Literal["succeeded", "failed", "aborted", "ended"]


class Cron(Body, frozen=True, tag_field="type", tag="cron"):
    """A trigger: the ticks of a cron expression in a time zone."""

    at: Annotated[str, Meta(min_length=1, max_length=256)]
    zone: Annotated[str, Meta(pattern=r"^[A-Za-z0-9+_-]+(?:/[A-Za-z0-9+_-]+)*\Z", max_length=64)]
    missed: Missed = "last"
    from_ms: WallMs | None = None
    """No tick up to this time counts; none up to the put counts in any case."""


class Reaction(Body, frozen=True, tag_field="type", tag="reaction"):
    """A trigger: every job of some kinds that ends so, after the plan was put."""

    on: Ending
    kinds: Annotated[
        str,
        Meta(pattern=r"^(?:\*|[a-z][a-z0-9_.-]*(?:\.\*)?)\Z", max_length=subjects.MAX_KIND_LENGTH),
    ]
    """A kind, everything below one (`build.*`), or `*`."""
    result: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    """The name of the input that is the cause's result; only where the cause has succeeded."""
    output: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    """Which of the cause's outputs that result is; None: what its handler returned."""

    def covers(self, kind: str) -> bool:
        """Whether it waits for jobs of this kind."""
        if self.kinds == "*":
            return True
        if self.kinds.endswith(".*"):
            return kind.startswith(self.kinds[:-1])
        return kind == self.kinds

    def counts(self, state: str) -> bool:
        """Whether it waits for jobs that ended in this state."""
        return self.on in ("ended", state)


def patterns_of(kind: str) -> list[str]:
    """What a reaction can name to wait for jobs of this kind."""
    parts = kind.split(".")
    above = [".".join(parts[:length]) + ".*" for length in range(1, len(parts))]
    return [kind, *above, "*"]


Trigger = Cron | Reaction


class Tick(Body, frozen=True, tag_field="type", tag="tick"):
    """The job was derived from a plan at this time."""

    tick_ms: WallMs


class Cause(Body, frozen=True, tag_field="type", tag="cause"):
    """The job was derived from a plan because this job ended."""

    kind: Kind
    job: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    ended_ms: WallMs
    """When it ended, by the stamp of the record that ended it."""
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 1
    """How many reactions led here: one more than to the job that caused it."""


Derivation = Tick | Cause


def due_ms(derived: Derivation) -> int:
    """When a job was to be derived: at the tick, or at the end of the cause."""
    return derived.tick_ms if isinstance(derived, Tick) else derived.ended_ms


def nonce(plan: str, derived: Derivation) -> str:
    """The nonce of a derived job: a function of the plan's op id and the tick or cause alone."""
    if isinstance(derived, Tick):
        what: list[object] = [plan, "tick", derived.tick_ms]
    else:
        what = [plan, "cause", derived.kind, derived.job]
    return blake3(codec.encode(what)).hexdigest()


def depth_of(derived: Derivation | None) -> int:
    """How many reactions led to a job."""
    return derived.depth if isinstance(derived, Cause) else 0
