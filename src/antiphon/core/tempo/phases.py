"""The three phases of a bar or of a job's phrase: plan, work, review (spec §11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta

from antiphon.core.record.op import Body
from antiphon.core.tempo.meter import LONGEST_BAR, SHORTEST_BAR

Phase = Literal["plan", "work", "review"]
PHASES: Final[tuple[Phase, ...]] = ("plan", "work", "review")
Beats = Annotated[int, Meta(ge=1, le=10_000)]


class Phases(Body, frozen=True):
    """How many beats each phase has."""

    plan: Beats = 2
    work: Beats = 4
    review: Beats = 2

    def __iter__(self) -> Iterator[tuple[Phase, int]]:
        """Each phase with its beats, in order."""
        return iter((("plan", self.plan), ("work", self.work), ("review", self.review)))

    @property
    def beats(self) -> int:
        """All beats."""
        return self.plan + self.work + self.review

    def at(self, index: int) -> Phase:
        """The phase of the beat with this index, from 1; beyond the last beat it is review."""
        if index <= self.plan:
            return "plan"
        return "work" if index <= self.plan + self.work else "review"

    def end_of(self, phase: Phase) -> int:
        """How many beats have passed when a phase ends."""
        ends = {"plan": self.plan, "work": self.plan + self.work, "review": self.beats}
        return ends[phase]

    def shrunk(self, retry: int) -> Phases:
        """For the retry of this number: half of the beats for each one before, at least one."""
        less = (max(1, beats >> min(retry, 64)) for _, beats in self)
        plan, work, review = less
        return Phases(plan=plan, work=work, review=review)


def phases_of_bar(bar_len: int) -> Phases:
    """A bar divided as one part plan, two parts work, one part review."""
    if not SHORTEST_BAR <= bar_len <= LONGEST_BAR:
        raise ValueError(f"a bar has {SHORTEST_BAR} to {LONGEST_BAR} beats")
    outer = max(1, bar_len // 4)
    return Phases(plan=outer, work=bar_len - 2 * outer, review=outer)
