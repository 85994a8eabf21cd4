"""Which beats one node follows (spec §11).

Three modes. *leader*: frames with a term arrive; of two leaders the one with the higher term is
followed. *median*: no leader is heard, but others that count for themselves; the median of their
downbeats is followed. *local*: nothing is heard; the node goes on counting by its own clock. In the
last two the tempo is frozen.

Frames come here verified: signed by somebody who holds `/tempo`. A frame that would change the
tempo off a downbeat, or faster than the policy allows, is refused.
"""

from __future__ import annotations

from statistics import median_low
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.tempo.messages import BeatFrame
from antiphon.core.tempo.meter import MINUTE_MS, Meter
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import TempoPolicy, policy_hash
from antiphon.core.tempo.time_text import parse_time
from antiphon.errors import Malformed

Mode = Literal["leader", "median", "local"]
SILENT_BEATS: Final = 2
"""A leader that was not heard for so long is gone."""
STEP_BPM: Final = 1
"""The most by which the tempo changes in a minute."""
MAX_PULSES: Final = 64


class FrameRefused(Struct, frozen=True):
    """Why a frame is not followed."""

    why: str


class _Heard(Struct, frozen=True):
    frame: BeatFrame
    epoch_ms: int
    heard_ms: int
    """By this node's clock, as everything here."""
    author: str


class PulseView:
    """What one node has heard, and what follows from it. Times are the node's own."""

    def __init__(self, policy: TempoPolicy, mesh: str) -> None:
        """Counts from the Unix epoch until a frame arrives."""
        self.policy = policy
        self.mesh = mesh
        self.meter = policy.meter
        self.phases: Phases = policy.beats
        self.differing: dict[str, str] = {}
        """Leaders that follow another policy, and its hash."""
        self._hash = policy_hash(policy)
        self._leader: _Heard | None = None
        self._pulses: dict[str, _Heard] = {}
        self._changed_ms: int | None = None

    def set_policy(self, policy: TempoPolicy) -> None:
        """The owner replaced the policy: its tempo holds until a frame says otherwise."""
        self.policy, self._hash = policy, policy_hash(policy)
        self.meter, self.phases = policy.meter, policy.beats
        self.differing.clear()
        self._leader = self._changed_ms = None
        self._pulses.clear()

    @property
    def term(self) -> int:
        """The term of the leader that is followed, or was last; 0 if none."""
        return self._leader.frame.revision if self._leader is not None else 0

    def mode(self, now_ms: int) -> Mode:
        """What the beats are taken from."""
        if self._is_fresh(self._leader, now_ms):
            return "leader"
        return "median" if self._fresh_pulses(now_ms) else "local"

    def take(self, frame: BeatFrame, author: str, now_ms: int) -> FrameRefused | None:
        """Follow a frame, or say why not."""
        fault = self._fault(frame)
        if fault is not None:
            return FrameRefused(fault)
        heard = _Heard(frame, parse_time(frame.beat_epoch), now_ms, author)
        if frame.policy_hash != self._hash:
            if len(self.differing) < MAX_PULSES:
                self.differing[author] = frame.policy_hash
            return FrameRefused("it follows another tempo policy")
        self.differing.pop(author, None)
        if frame.revision == 0:
            return self._take_pulse(heard, now_ms)
        return self._take_leader(heard, now_ms)

    def _fault(self, frame: BeatFrame) -> str | None:
        if frame.cluster_id != self.mesh:
            return "it is of another mesh"
        try:
            meter, ends_ms = frame.meter, parse_time(frame.deadline_at)
        except Malformed:
            return "its times cannot be read"
        limits = self.policy.limits
        if not limits.min_bpm <= frame.tempo_bpm <= limits.max_bpm:
            return "its tempo is outside the policy's limits"
        beat = meter.beat_at(parse_time(frame.beat_epoch))
        is_sound = (
            frame.beat_ms == meter.beat_ms
            and frame.bar_len_beats == self.policy.bar_len_beats
            and frame.beat_index == beat.index
            and frame.downbeat == beat.is_downbeat
            and ends_ms == beat.epoch_ms + meter.beat_ms
        )
        if not is_sound:
            return "its fields contradict each other"
        if frame.phases is not None and frame.phases.beats != frame.bar_len_beats:
            return "its phases do not fill the bar"
        return None

    # --- the leader -------------------------------------------------------------------------------

    def _take_leader(self, heard: _Heard, now_ms: int) -> FrameRefused | None:
        last, frame = self._leader, heard.frame
        if last is not None and now_ms - last.heard_ms < self.meter.bar_ms:
            if frame.revision < last.frame.revision:
                return FrameRefused("a leader with a higher term was heard")
            if heard.epoch_ms <= last.epoch_ms:
                return FrameRefused("this beat was already heard")
            if not self._may_change(last, heard):
                return FrameRefused("it changes the tempo off a downbeat or too fast")
        if frame.tempo_bpm != self.meter.bpm:
            self._changed_ms = now_ms
        self._leader = heard
        self.meter = frame.meter
        self.phases = frame.phases or self.policy.beats
        self._pulses.clear()
        return None

    def _may_change(self, last: _Heard, heard: _Heard) -> bool:
        step = abs(heard.frame.tempo_bpm - last.frame.tempo_bpm)
        if step == 0:
            return True
        # Its bar began after the last beat that was heard: the change was on that downbeat.
        is_on_downbeat = heard.frame.meter.anchor_ms > last.epoch_ms
        since_ms = self._changed_ms
        is_slow = since_ms is None or heard.heard_ms - since_ms >= MINUTE_MS - last.frame.beat_ms
        return is_on_downbeat and step <= STEP_BPM and is_slow

    # --- without a leader -------------------------------------------------------------------------

    def _take_pulse(self, heard: _Heard, now_ms: int) -> FrameRefused | None:
        if self._is_fresh(self._leader, now_ms):
            return FrameRefused("there is a leader")
        if heard.frame.tempo_bpm != self.meter.bpm:
            return FrameRefused("the tempo is frozen without a leader")
        if len(self._pulses) >= MAX_PULSES and heard.author not in self._pulses:
            return FrameRefused("too many pulses are heard")
        self._pulses[heard.author] = heard
        self.meter = self._median(now_ms)
        return None

    def _median(self, now_ms: int) -> Meter:
        """This meter, shifted to the median of the downbeats that are heard."""
        meter = self.meter
        bar_ms = meter.bar_ms
        shifts = [
            (one.frame.meter.anchor_ms - meter.anchor_ms + bar_ms // 2) % bar_ms - bar_ms // 2
            for one in self._fresh_pulses(now_ms)
        ]
        return replace(meter, anchor_ms=meter.anchor_ms + median_low(shifts))

    def _fresh_pulses(self, now_ms: int) -> list[_Heard]:
        return [one for one in self._pulses.values() if self._is_fresh(one, now_ms)]

    def _is_fresh(self, heard: _Heard | None, now_ms: int) -> bool:
        if heard is None:
            return False
        return now_ms - heard.heard_ms <= SILENT_BEATS * heard.frame.beat_ms
