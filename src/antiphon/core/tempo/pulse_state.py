"""What a leader of the pulse decides, and what the next one goes on from (spec §11).

A tempo, or the beats of the phases, changes on a downbeat and nowhere else. The adaptation may move
the tempo by one bpm a minute, within the policy's limits, while it is not frozen. An owner who
replaces the policy may change everything at once, on the next downbeat.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from antiphon.core.record.op import Body
from antiphon.core.tempo.messages import BeatFrame, Suggestion
from antiphon.core.tempo.meter import MINUTE_MS, Meter
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import BarLen, Bpm, TempoPolicy, policy_hash
from antiphon.core.tempo.tempo_history import TempoSpan
from antiphon.core.tempo.time_text import hlc_text, time_text

STEP_BPM: Final = 1
"""The most by which the adaptation changes the tempo in a minute."""
PAST: Final = 256
"""Changes of the tempo that are kept with it: those of four hours at least."""


class PulseState(Body, frozen=True):
    """The last change: enough to count on in the same meter."""

    bpm: Bpm
    bar_len: BarLen
    anchor_ms: int
    """The downbeat of the last change; 0 before the first."""
    policy: str
    """The hash of the policy that it follows."""
    initial_bpm: Bpm
    """That policy's: as long as it stays the same, a new policy does not reset the tempo."""
    phases: Phases | None = None
    """The beats of each phase, if the adaptation moved them."""
    adapted_ms: int | None = None
    """The downbeat on which the adaptation last changed the tempo."""
    since_ms: int = 0
    """The downbeat from which on all of this has held."""
    past: Annotated[tuple[TempoSpan, ...], Meta(max_length=PAST)] = ()
    """What held before, oldest first: for nodes that were not there to hear it."""

    @property
    def meter(self) -> Meter:
        """The meter in force."""
        return Meter(bpm=self.bpm, bar_len=self.bar_len, anchor_ms=self.anchor_ms)

    @property
    def span(self) -> TempoSpan:
        """The same as a part of the history of the tempo."""
        return TempoSpan(
            from_ms=self.since_ms,
            bpm=self.bpm,
            bar_len=self.bar_len,
            anchor_ms=self.anchor_ms,
            policy=self.policy,
            phases=self.phases,
        )

    def phases_in(self, policy: TempoPolicy) -> Phases:
        """The beats of each phase in force."""
        return self.phases or policy.beats


def beat_frame(
    mesh: str,
    state: PulseState,
    policy: TempoPolicy,
    *,
    at_ms: int,
    hlc: tuple[int, int],
    revision: int = 0,
) -> BeatFrame:
    """The frame of the beat at a time of the pulse; the revision is 0 without a leader."""
    meter, phases = state.meter, state.phases_in(policy)
    beat = meter.beat_at(at_ms)
    return BeatFrame(
        cluster_id=mesh,
        tempo_bpm=meter.bpm,
        beat_ms=meter.beat_ms,
        bar_len_beats=meter.bar_len,
        beat_index=beat.index,
        beat_epoch=time_text(beat.epoch_ms),
        downbeat=beat.is_downbeat,
        phase=phases.at(beat.index),
        hlc=hlc_text(hlc),
        policy_hash=state.policy,
        deadline_at=time_text(beat.epoch_ms + meter.beat_ms),
        phases=state.phases,
        revision=revision,
    )


def begun(
    policy: TempoPolicy,
    meter: Meter | None = None,
    phases: Phases | None = None,
    *,
    at_ms: int = 0,
) -> PulseState:
    """The state of a first leader; meter and phases are what it followed until now, if anything."""
    meter = meter or policy.meter
    if meter.bar_len != policy.bar_len_beats:
        meter, phases = policy.meter, None
    return PulseState(
        bpm=min(max(meter.bpm, policy.limits.min_bpm), policy.limits.max_bpm),
        bar_len=meter.bar_len,
        anchor_ms=meter.anchor_ms,
        policy=policy_hash(policy),
        initial_bpm=policy.initial_bpm,
        phases=None if phases == policy.beats else phases,
        since_ms=meter.downbeat_before(at_ms),
    )


def on_downbeat(
    state: PulseState, policy: TempoPolicy, suggestion: Suggestion | None, downbeat_ms: int
) -> PulseState:
    """The state from a downbeat of its meter on."""
    after = _after(state, policy, suggestion, downbeat_ms)
    if after == state:
        return state
    return replace(after, since_ms=downbeat_ms, past=(*state.past, state.span)[-PAST:])


def _after(
    state: PulseState, policy: TempoPolicy, suggestion: Suggestion | None, downbeat_ms: int
) -> PulseState:
    if state.policy != policy_hash(policy):
        return _under(state, policy, downbeat_ms)
    adaptation = policy.adaptation
    if suggestion is None or not adaptation.enable or adaptation.frozen:
        return state
    phases = suggestion.phases
    if phases is not None and phases.beats == state.bar_len:
        state = replace(state, phases=None if phases == policy.beats else phases)
    return _adapted(state, policy, suggestion.tempo_bpm or state.bpm, downbeat_ms)


def _under(state: PulseState, policy: TempoPolicy, downbeat_ms: int) -> PulseState:
    """The owner replaced the policy. Its tempo begins anew only if it names another one."""
    is_same = (
        state.initial_bpm == policy.initial_bpm
        and state.bar_len == policy.bar_len_beats
        and policy.limits.min_bpm <= state.bpm <= policy.limits.max_bpm
    )
    if is_same:
        return replace(state, policy=policy_hash(policy), phases=None)
    fresh = begun(policy, replace(policy.meter, anchor_ms=downbeat_ms), at_ms=downbeat_ms)
    return replace(fresh, adapted_ms=state.adapted_ms)


def _adapted(state: PulseState, policy: TempoPolicy, target: int, downbeat_ms: int) -> PulseState:
    limits, last_ms = policy.limits, state.adapted_ms
    if last_ms is not None and downbeat_ms - last_ms < MINUTE_MS:
        return state
    step = min(max(target - state.bpm, -STEP_BPM), STEP_BPM)
    bpm = min(max(state.bpm + step, limits.min_bpm), limits.max_bpm)
    if bpm == state.bpm:
        return state
    return replace(state, bpm=bpm, anchor_ms=downbeat_ms, adapted_ms=downbeat_ms)
