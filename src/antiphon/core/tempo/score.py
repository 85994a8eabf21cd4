"""A job's score: beats for each phase, how long it may wait, and what happens then (spec §11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from antiphon.core.record import codec
from antiphon.core.record.op import Body
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import BarLen, Bpm
from antiphon.errors import Malformed

Waited = Literal["help", "io"]
WaitBeats = Annotated[int, Meta(ge=0, le=10_000)]
Escalation = Annotated[
    str,
    Meta(
        pattern=r"^(?:(?:emit|fallback):[a-z0-9][a-z0-9_.-]{0,63}|checkpoint|defer:next-phrase)\Z"
    ),
]
"""`emit:NAME` tells listeners, `fallback:NAME` calls the handler's fallback of that name,
`checkpoint` stores what the handler has, `defer:next-phrase` gives the job back until then."""
_Escalations = Annotated[tuple[Escalation, ...], Meta(max_length=16)]


class WaitBudget(Body, frozen=True):
    """How many beats a job may wait: for help in the whole phrase, for input and output."""

    help: WaitBeats = 2
    io: WaitBeats = 1


class PhraseRetry(Body, frozen=True):
    """How often a phrase is tried again; each time its phases have half of the beats."""

    max_phrases: Annotated[int, Meta(ge=1, le=100)] = 2
    backoff: Literal["geometric"] = "geometric"


class Escalations(Body, frozen=True):
    """What is done when a wait has used up its budget, and when a phase overruns."""

    on_wait_exhausted: _Escalations = ()
    on_overrun: _Escalations = ()


class Score(Body, frozen=True):
    """The beats that a job asks for."""

    tempo: Bpm | None = None
    """A hint; the mesh's policy decides."""
    bar_len: BarLen | None = None
    phases: Phases = Phases()
    wait_budget: WaitBudget = WaitBudget()
    retry: PhraseRetry = PhraseRetry()
    escalation: Escalations = Escalations()

    def phrase(self, attempts: int) -> Phases:
        """The beats of the phases after that many failed attempts."""
        return self.phases.shrunk(min(attempts, self.retry.max_phrases - 1))


def phrase_beats(phases: Phases, bar_len: int) -> int:
    """How long a phrase is: its phases, rounded up to whole bars."""
    return -(-phases.beats // bar_len) * bar_len


def read_score(fields: Mapping[str, Any]) -> Score:
    """A score from what a person wrote: its keys, or a file that has them under `score`."""
    inner = fields.get("score", fields)
    codec.check_profile(inner)
    try:
        return msgspec.convert(inner, Score)
    except msgspec.ValidationError as problem:
        raise Malformed(f"the score is not valid: {problem}", reason="score") from problem
