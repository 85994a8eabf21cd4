"""Which beats one node follows (spec §11).

Three modes. *leader*: frames with a term arrive; of two leaders the one with the higher term is
followed. *median*: no leader is heard, but others that count for themselves; the median of their
downbeats is followed. *local*: nothing is heard; the node goes on counting by its own clock. In the
last two the tempo is frozen.

Two times. A node's *own* time is a clock that cannot jump. The *time of the pulse* is what frames
are written in: own time and an offset, which is learned from frames. So a node whose clock is
wrong, or is set, keeps the beat. A message can only be late, never early: the largest offset of the
last few is the best one.

Frames come here verified: signed by somebody who holds `/tempo`. A frame that would change the
tempo or the phases off a downbeat, or the tempo faster than the policy allows, is refused.
"""

from __future__ import annotations

from collections import deque
from statistics import median_low
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.tempo.messages import BeatFrame
from antiphon.core.tempo.meter import MINUTE_MS, Beat, Meter
from antiphon.core.tempo.phases import Phase, Phases
from antiphon.core.tempo.policy import TempoPolicy, policy_hash
from antiphon.core.tempo.pulse_state import STEP_BPM
from antiphon.core.tempo.time_text import parse_time
from antiphon.errors import Malformed

Mode = Literal["leader", "median", "local"]
SILENT_HALF_BEATS: Final = 5
"""A leader that was not heard for so long is gone: another one takes over within two beats."""
OFFSETS_KEPT: Final = 8
MAX_PULSES: Final = 64
MAX_DIFFERING: Final = 64
ALREADY_HEARD: Final = "this beat was already heard"


class FrameRefused(Struct, frozen=True):
    """Why a frame is not followed."""

    why: str


def degraded_words(mode: Mode, *, is_other_policy: bool) -> str:
    """Why the beats are not a leader's, in few words; empty while they are."""
    if mode == "leader":
        return ""
    if is_other_policy:
        return "another tempo policy"
    return "no leader" if mode == "median" else "no pulse"


class _Heard(Struct, frozen=True):
    frame: BeatFrame
    author: str
    epoch_ms: int
    meter: Meter
    """Anchored at the downbeat of the frame's bar."""
    offset_ms: int
    own_ms: int


class _Replaced(Struct, frozen=True):
    """A policy that the owner has replaced, and how long leaders may still go on by it."""

    hash: str
    policy: TempoPolicy
    until_ms: int


class PulseView:
    """What one node has heard, and what follows from it."""

    def __init__(self, policy: TempoPolicy, mesh: str, *, offset_ms: int = 0) -> None:
        """Counts from the Unix epoch until a frame arrives.

        `offset_ms` is the difference between this machine's calendar time and its own time.
        """
        self.policy = policy
        self.mesh = mesh
        self.offset_ms = offset_ms
        self.differing: dict[str, str] = {}
        """Nodes that follow another policy, and its hash."""
        self.revision = 0
        """Changes when beats may begin at other times than was expected."""
        self.drift_ms = 0
        """How far the newest frame was from where this node expected it; late is negative."""
        self._meter = policy.meter
        self._phases: Phases = policy.beats
        self._hash = policy_hash(policy)
        self._before: _Replaced | None = None
        self._is_unsettled = False
        """Whether the policy was replaced, and the meter is still that of the one before."""
        self._leader: _Heard | None = None
        self._offsets: deque[int] = deque(maxlen=OFFSETS_KEPT)
        self._pulses: dict[str, _Heard] = {}
        self._adapted_ms: int | None = None

    # --- what holds -------------------------------------------------------------------------------

    def now_ms(self, own_ms: int) -> int:
        """The time of the pulse."""
        return own_ms + self.offset_ms

    def meter(self, own_ms: int) -> Meter:
        """The meter in force."""
        self._settle(own_ms)
        return self._meter

    def phases(self, own_ms: int) -> Phases:
        """The beats of each phase in force."""
        self._settle(own_ms)
        return self._phases

    def beat(self, own_ms: int) -> Beat:
        """The beat at a time."""
        return self.meter(own_ms).beat_at(self.now_ms(own_ms))

    def phase(self, own_ms: int) -> Phase:
        """The phase of that beat."""
        return self.phases(own_ms).at(self.beat(own_ms).index)

    def mode(self, own_ms: int) -> Mode:
        """What the beats are taken from."""
        if self.leader(own_ms):
            return "leader"
        return "median" if self._fresh_pulses(own_ms) else "local"

    def leader(self, own_ms: int) -> str:
        """The node whose beats are followed; empty without one."""
        last = self._leader
        return last.author if last is not None and _is_fresh(last, own_ms) else ""

    @property
    def term(self) -> int:
        """The term of the leader that is followed, or was last; 0 if none."""
        return self._leader.frame.revision if self._leader is not None else 0

    def silent_ms(self, own_ms: int) -> int | None:
        """How long ago a leader was last heard; None if never."""
        return None if self._leader is None else own_ms - self._leader.own_ms

    # --- the policy -------------------------------------------------------------------------------

    def set_policy(self, policy: TempoPolicy, own_ms: int) -> None:
        """The owner replaced the policy.

        A leader goes on in the old one until its next downbeat; without a leader it holds at once.
        """
        if policy != self.policy:
            replaced, self.policy, self._hash = self.policy, policy, policy_hash(policy)
            self._is_unsettled = True
            self.differing.clear()
            self.allow(replaced, own_ms)

    def allow(self, replaced: TempoPolicy, own_ms: int) -> None:
        """Follow leaders by the policy before this one for two bars more, and then no longer."""
        until_ms = own_ms + 2 * max(replaced.slowest_bar_ms, self._meter.bar_ms)
        self._before = _Replaced(policy_hash(replaced), replaced, until_ms)

    def _settle(self, own_ms: int) -> None:
        """Without a leader, follow a policy that was set meanwhile."""
        if not self._is_unsettled or self._before is None or self.leader(own_ms):
            return
        before, self._is_unsettled = self._before.policy, False
        policy, self._leader = self.policy, None
        limits = policy.limits
        if (
            policy.initial_bpm != before.initial_bpm
            or policy.bar_len_beats != self._meter.bar_len
            or not limits.min_bpm <= self._meter.bpm <= limits.max_bpm
        ):
            self._meter = policy.meter
        self._phases, self._adapted_ms = policy.beats, None
        self._pulses.clear()
        self.revision += 1

    # --- frames -----------------------------------------------------------------------------------

    def take(
        self, frame: BeatFrame, author: str, *, sent_ms: int, own_ms: int
    ) -> FrameRefused | None:
        """Follow a frame, or say why not; `sent_ms` is its author's time of the pulse."""
        policy = self._policy_of(frame, own_ms)
        if policy is None:
            if len(self.differing) < MAX_DIFFERING:
                self.differing[author] = frame.policy_hash
            return FrameRefused("it follows another tempo policy")
        self.differing.pop(author, None)
        heard = self._read(frame, author, policy, sent_ms=sent_ms, own_ms=own_ms)
        if isinstance(heard, FrameRefused):
            return heard
        if frame.revision == 0:
            return self._take_pulse(heard)
        return self._take_leader(heard, policy)

    def _policy_of(self, frame: BeatFrame, own_ms: int) -> TempoPolicy | None:
        """The policy that a frame follows: this one, or the one that it is about to replace."""
        if frame.policy_hash == self._hash:
            return self.policy
        before = self._before
        if before is not None and frame.policy_hash == before.hash and own_ms < before.until_ms:
            return before.policy
        return None

    def _read(
        self, frame: BeatFrame, author: str, policy: TempoPolicy, *, sent_ms: int, own_ms: int
    ) -> _Heard | FrameRefused:
        if frame.cluster_id != self.mesh:
            return FrameRefused("it is of another mesh")
        try:
            meter, epoch_ms = frame.meter, parse_time(frame.beat_epoch)
            ends_ms = parse_time(frame.deadline_at)
        except Malformed:
            return FrameRefused("its times cannot be read")
        if not policy.limits.min_bpm <= frame.tempo_bpm <= policy.limits.max_bpm:
            return FrameRefused("its tempo is outside the policy's limits")
        beat = meter.beat_at(epoch_ms)
        phases = frame.phases or policy.beats
        if phases.beats != frame.bar_len_beats:
            return FrameRefused("its phases do not fill the bar")
        is_sound = (
            frame.beat_ms == meter.beat_ms
            and frame.bar_len_beats == policy.bar_len_beats
            and frame.beat_index == beat.index
            and frame.downbeat == beat.is_downbeat
            and frame.phase == phases.at(beat.index)
            and epoch_ms <= sent_ms < ends_ms == epoch_ms + meter.beat_ms
        )
        if not is_sound:
            return FrameRefused("its fields contradict each other")
        return _Heard(frame, author, epoch_ms, meter, sent_ms - own_ms, own_ms)

    # --- the leader -------------------------------------------------------------------------------

    def _take_leader(self, heard: _Heard, policy: TempoPolicy) -> FrameRefused | None:
        last, frame = self._leader, heard.frame
        is_following = last is not None and heard.own_ms - last.own_ms < last.meter.bar_ms
        if last is not None and is_following:
            if frame.revision < last.frame.revision:
                return FrameRefused("a leader with a higher term was heard")
            if heard.epoch_ms <= last.epoch_ms:
                return FrameRefused(ALREADY_HEARD)
            fault = self._change_fault(last, heard)
            if fault:
                return FrameRefused(fault)
        # A new leader counts on in the time of the last one, unless it did not hear it.
        is_new = last is None or frame.revision != last.frame.revision
        if is_new and abs(heard.offset_ms - self.offset_ms) > frame.beat_ms // 2:
            self._offsets.clear()
        if frame.policy_hash == self._hash:
            self._before, self._is_unsettled = None, False
        meter = self._anchored(heard.meter)
        if meter.bpm != self._meter.bpm and last is not None and is_following:
            self._adapted_ms = last.meter.downbeat_after(last.epoch_ms)
        elif not is_following:
            self._adapted_ms = None
        self.drift_ms = heard.offset_ms - self.offset_ms if last is not None else 0
        self._offsets.append(heard.offset_ms)
        offset_ms = max(self._offsets)
        if meter != self._meter or abs(offset_ms - self.offset_ms) > meter.beat_ms // 8:
            self.revision += 1
        self._leader, self._meter, self.offset_ms = heard, meter, offset_ms
        self._phases = frame.phases or policy.beats
        self._pulses.clear()
        return None

    def _anchored(self, meter: Meter) -> Meter:
        """The meter of a frame; the known one if it says the same."""
        known = self._meter
        is_same = (
            known.bpm == meter.bpm
            and known.bar_len == meter.bar_len
            and (meter.anchor_ms - known.anchor_ms) % known.bar_ms == 0
        )
        return known if is_same else meter

    def _change_fault(self, last: _Heard, heard: _Heard) -> str:
        """What is wrong with the change from one frame to the next; empty if nothing is."""
        old, new = last.frame, heard.frame
        same_policy = old.policy_hash == new.policy_hash
        if same_policy and (old.tempo_bpm, old.phases) == (new.tempo_bpm, new.phases):
            return ""
        downbeat_ms = last.meter.downbeat_after(last.epoch_ms)
        if heard.epoch_ms < downbeat_ms:
            return "it changes the tempo, the phases or the policy within a bar"
        if not same_policy or old.tempo_bpm == new.tempo_bpm:
            return ""
        # The bar after the change begins where the one before it ended.
        if heard.meter.anchor_ms != downbeat_ms and heard.epoch_ms - last.epoch_ms < min(
            last.meter.bar_ms, heard.meter.bar_ms
        ):
            return "it changes the tempo off a downbeat"
        if abs(new.tempo_bpm - old.tempo_bpm) > STEP_BPM:
            return f"it changes the tempo by more than {STEP_BPM} bpm"
        if self._adapted_ms is not None and downbeat_ms - self._adapted_ms < MINUTE_MS:
            return "it changes the tempo twice in a minute"
        return ""

    # --- without a leader -------------------------------------------------------------------------

    def _take_pulse(self, heard: _Heard) -> FrameRefused | None:
        own_ms = heard.own_ms
        self._settle(own_ms)
        if self.leader(own_ms):
            return FrameRefused("there is a leader")
        if (heard.meter.bpm, heard.meter.bar_len) != (self._meter.bpm, self._meter.bar_len):
            return FrameRefused("the tempo is frozen without a leader")
        last = self._pulses.get(heard.author)
        if last is None and len(self._pulses) >= MAX_PULSES:
            return FrameRefused("too many pulses are heard")
        if last is not None and heard.epoch_ms <= last.epoch_ms:
            return FrameRefused(ALREADY_HEARD)
        self._pulses[heard.author] = heard
        self._follow_median(own_ms)
        return None

    def _follow_median(self, own_ms: int) -> None:
        """Shift the downbeats to the median of those that are heard."""
        meter, bar_ms = self._meter, self._meter.bar_ms
        here_ms = meter.anchor_ms - self.offset_ms
        pulses = self._fresh_pulses(own_ms)
        shifts = [
            (one.meter.anchor_ms - one.offset_ms - here_ms + bar_ms // 2) % bar_ms - bar_ms // 2
            for one in pulses
        ]
        shift_ms = median_low(shifts)
        self.offset_ms = median_low([one.offset_ms for one in pulses])
        self._meter = replace(meter, anchor_ms=here_ms + shift_ms + self.offset_ms)
        if abs(shift_ms) > meter.beat_ms // 8:
            self.revision += 1

    def _fresh_pulses(self, own_ms: int) -> list[_Heard]:
        return [one for one in self._pulses.values() if _is_fresh(one, own_ms)]


def _is_fresh(heard: _Heard, own_ms: int) -> bool:
    return 2 * (own_ms - heard.own_ms) <= SILENT_HALF_BEATS * heard.frame.beat_ms
