"""The tempo policy of a mesh: an owner's op, `mesh.tempo` (spec §11).

Its keys are those of the policy file, which `antiphon tempo set FILE` takes as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from antiphon.core.cost.rates import Rates, read_rates
from antiphon.core.record import codec
from antiphon.core.record.op import Body
from antiphon.core.tempo.meter import (
    DEFAULT_BAR_LEN,
    DEFAULT_BPM,
    FASTEST_BPM,
    LONGEST_BAR,
    SHORTEST_BAR,
    SLOWEST_BPM,
    Meter,
)
from antiphon.core.tempo.phases import Phase, Phases, phases_of_bar
from antiphon.errors import Malformed

Bpm = Annotated[int, Meta(ge=SLOWEST_BPM, le=FASTEST_BPM)]
BarLen = Annotated[int, Meta(ge=SHORTEST_BAR, le=LONGEST_BAR)]


class TempoLimits(Body, frozen=True):
    """Between which tempi the adaptation may move."""

    min_bpm: Bpm = 6
    max_bpm: Bpm = 24


class Adaptation(Body, frozen=True):
    """Whether and how the tempo follows the load."""

    enable: bool = False
    hysteresis_pct: Annotated[int, Meta(ge=0, le=100)] = 10
    """A target that is closer to the tempo than this changes nothing."""
    change_per_minute: Literal["1_beat"] = "1_beat"
    """At most one bpm a minute."""
    frozen: bool = False
    """Whether the operator holds the tempo where it is."""


class Observability(Body, frozen=True):
    """What is published beside the beats."""

    emit_bar_reports: bool = True


class TempoPolicy(Body, frozen=True):
    """Tempo, bars and phases of a mesh, and how they may change."""

    cluster_id: Annotated[str, Meta(max_length=128)] = ""
    """A name for people; frames carry the mesh's id."""
    initial_bpm: Bpm = DEFAULT_BPM
    bar_len_beats: BarLen = DEFAULT_BAR_LEN
    phases: Phases | Annotated[tuple[Phase, ...], Meta(min_length=3, max_length=3)] = (
        "plan",
        "work",
        "review",
    )
    """Their beats; a list of the three divides the bar 1:2:1."""
    limits: TempoLimits = TempoLimits()
    adaptation: Adaptation = Adaptation()
    observability: Observability = Observability()
    rates: Rates | None = None
    """What beats and resources cost; None: nothing is priced."""

    @property
    def meter(self) -> Meter:
        """The meter before any change of tempo."""
        return Meter(bpm=self.initial_bpm, bar_len=self.bar_len_beats)

    @property
    def slowest_bar_ms(self) -> int:
        """The length of a bar at the slowest tempo."""
        return Meter(bpm=self.limits.min_bpm, bar_len=self.bar_len_beats).bar_ms

    @property
    def beats(self) -> Phases:
        """The beats of each phase of a bar."""
        given = self.phases
        return given if isinstance(given, Phases) else phases_of_bar(self.bar_len_beats)


DEFAULT_POLICY: Final = TempoPolicy()
"""In force while the owner has set none."""


def policy_fault(policy: TempoPolicy) -> str | None:
    """Why a policy contradicts itself, or None."""
    limits = policy.limits
    if limits.min_bpm > limits.max_bpm:
        return "limits.min_bpm is above limits.max_bpm"
    if not limits.min_bpm <= policy.initial_bpm <= limits.max_bpm:
        return "initial_bpm is outside limits.min_bpm..limits.max_bpm"
    if isinstance(policy.phases, tuple):
        is_usual = policy.phases == TempoPolicy().phases
        return None if is_usual else "phases as a list are plan, work, review, in this order"
    if policy.beats.beats != policy.bar_len_beats:
        return f"the phases have {policy.beats.beats} beats, the bar {policy.bar_len_beats}"
    return None


def policy_hash(policy: TempoPolicy) -> str:
    """The digest by which nodes notice that they follow different policies."""
    return f"sha256:{sha256(codec.encode(policy)).hexdigest()}"


def read_policy(fields: Mapping[str, Any]) -> TempoPolicy:
    """A policy from what a person wrote; it may have rates, which may also be a file of their own.

    `structs.replace(policy, rates=read_rates(…))` puts the two together.
    """
    plain = {name: value for name, value in fields.items() if name != "rates"}
    codec.check_profile(plain)
    try:
        policy = msgspec.convert(plain, TempoPolicy)
    except msgspec.ValidationError as problem:
        raise Malformed(f"the tempo policy is not valid: {problem}", reason="tempo") from problem
    fault = policy_fault(policy)
    if fault is not None:
        raise Malformed(f"the tempo policy contradicts itself: {fault}", reason="tempo")
    return policy if fields.get("rates") is None else replace(policy, rates=read_rates(fields))
