"""The pulse: sends the beats of a mesh (spec §11).

Runs beside every full node whose key holds `/tempo`. One of them leads, by a lease; the others
listen, and take over when they have heard nothing for a beat. The pulse decides nothing: a beat
follows from the time and the tempo policy, and everybody counts on without it.

A leader sends a frame at the beginning of each beat. It changes the tempo on downbeats only, and
stores the change before it sends the first frame of it. When its own clock says that its lease may
be over, it is silent. Where no leader is heard and the lease cannot be taken, each candidate sends
beats of its own without a term, and listeners follow their median.

What happens to it is claimed like any other work, so that the bar's report counts it: that a node
has caught up with the log (`mesh/join`), leads (`mesh/pulse`, executing) and leads no more (done).

Leases are whole seconds. So a takeover within two beats holds for beats of a second or more.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.bus.signed_message import Message
from antiphon.core.bus.subjects import BEAT, MESH, MESH_STATUS
from antiphon.core.presence.cards import PulseCard
from antiphon.core.tempo.messages import StatusClaim
from antiphon.core.tempo.policy import policy_hash
from antiphon.core.tempo.pulse_state import PulseState, beat_frame, begun, on_downbeat
from antiphon.core.tempo.pulse_view import ALREADY_HEARD, degraded_words
from antiphon.core.tempo.time_text import hlc_text
from antiphon.errors import AntiphonError, Held
from antiphon.runtime.tempo.pulse_lease import RENEWALS, PulseLease, lease_ms
from antiphon.runtime.tempo.tempo_messages import BEAT_FRAMES, STATUS_CLAIMS
from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.tempo.messages import Suggestion, TaskState
    from antiphon.core.tempo.policy import TempoPolicy
    from antiphon.ports import Keyring
    from antiphon.runtime.tempo.beat_clock import BeatClock

SLEWED: Final = 256
"""The leader's time of the pulse approaches the calendar time by at most this part of a beat in
each beat, so that no beat is shorter or longer by more than half a percent."""
TRIES_IN_A_BEAT: Final = 8
STAND_BACK: Final = 2
"""A node that has heard no leader yet waits this part of a beat longer for one."""
ALONE_AFTER_BEATS: Final = 3
"""How long a candidate that has just started waits for a leader before it sends its own beats."""
_RELEASE_S: Final = 1.0

_log = LazyLogger(__name__)


def no_suggestion() -> Suggestion | None:
    """The tempo stays as it is."""
    return None


class Pulse:
    """One candidate."""

    def __init__(
        self,
        clock: BeatClock,
        keyring: Keyring,
        metrics: TempoMetrics | None = None,
        *,
        suggest: Callable[[], Suggestion | None] = no_suggestion,
    ) -> None:
        """`suggest` is asked on downbeats for what the adaptation would change."""
        self.clock = clock
        clock.is_sender = True
        self.metrics = metrics or TempoMetrics()
        self.suggest = suggest
        self.lease = PulseLease(clock.session)
        self._session = clock.session
        self._signer = (keyring.did, keyring.sign)
        self._state: PulseState | None = None
        """What it leads by; None while it does not lead."""
        self._policy: TempoPolicy | None = None
        """The policy that the state follows; None until the next downbeat if it is not known."""
        self._alone: PulseState | None = None
        """What it counts by while nobody leads."""
        self._offset_ms = 0.0
        """From its own time to the time of the pulse, while it leads or is alone."""
        self._since_ms = clock.own_ms()
        self._sent_ms = 0
        self._bpm = 0
        self._took = asyncio.Event()
        self._claimed_term = 0
        """The term that this node has said it leads in; 0: it has said that it does not."""
        self._claiming: set[asyncio.Future[None]] = set()

    @property
    def is_leader(self) -> bool:
        """Whether it holds the lease."""
        return self.lease.is_held

    def card(self) -> PulseCard | None:
        """What this node says about it when a roll call asks; None if it may not send beats."""
        if not self.is_candidate():
            return None
        policy, meter = self.clock.view.policy, self.clock.meter()
        return PulseCard(bpm=meter.bpm, policy=policy_hash(policy), leads=self.is_leader)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Send beats until cancelled, from when the control state is known; then release the lease.

        `ready` is set by whoever reads it; without one, it is known already.
        """
        if ready is not None:
            await ready.wait()
        self._since_ms = self.clock.own_ms()
        self._claim("join", "done", f"has the log up to record {self._session.confirmed:,}")
        async with self.clock.listen():
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_lease())
                    tasks.create_task(self._send_beats())
            finally:
                with suppress(AntiphonError, TimeoutError):
                    async with asyncio.timeout(_RELEASE_S):
                        await self.lease.release()
                        self._state = None
                        self._claim_lead()
                        await asyncio.gather(*self._claiming)

    def is_candidate(self) -> bool:
        """Whether this node may send beats."""
        return self.clock.is_timekeeper(self._session.author.did)

    # --- the lease --------------------------------------------------------------------------------

    async def _keep_lease(self) -> None:
        while True:
            beat_ms = self._beat_ms()
            if not self.is_candidate():
                self.lease.drop()
                await asyncio.sleep(beat_ms / 1000)
                continue
            try:
                if self.lease.is_kept:
                    await self.lease.renew(beat_ms)
                elif self._is_silent():
                    await self._take_over(beat_ms)
            except Held:
                pass  # another leads
            except AntiphonError:
                self.metrics.engine_failures += 1
            await asyncio.sleep(self._pause_s(beat_ms))

    def _pause_s(self, beat_ms: int) -> float:
        """Until the lease is renewed, a leader would be missed, or it is tried for again."""
        if self.lease.is_kept:
            return lease_ms(beat_ms) / 1000 / RENEWALS
        missed_in_ms = _missed_after_ms(beat_ms) - self._silent_ms()
        again_ms = beat_ms / TRIES_IN_A_BEAT * (0.75 + self._session.entropy.random() / 2)
        return max(missed_in_ms, again_ms) / 1000

    def _is_silent(self) -> bool:
        """Whether no leader was heard for a beat and a little."""
        return self._silent_ms() > _missed_after_ms(self._beat_ms())

    def _silent_ms(self) -> int:
        """How long no leader was heard, while this node listened."""
        own_ms = self.clock.own_ms()
        silent_ms = self.clock.view.silent_ms(own_ms)
        if silent_ms is None:
            # Whoever followed the last leader goes first: it can send the beat that is missing.
            return own_ms - self._since_ms - self._beat_ms() // STAND_BACK
        return silent_ms

    async def _take_over(self, beat_ms: int) -> None:
        stored = await self.lease.take(beat_ms)
        view, own_ms = self.clock.view, self.clock.own_ms()
        policy = self._session.control.tempo
        state = stored or begun(
            policy, view.meter(own_ms), view.phases(own_ms), at_ms=view.now_ms(own_ms)
        )
        await self.lease.keep(state)
        is_followed = view.term > 0 or view.mode(own_ms) == "median"
        self._offset_ms = view.offset_ms if is_followed else self._calendar_offset_ms()
        self._state, self._alone = state, None
        # Whoever has not heard the last leader may count this beat a little later than it did.
        is_first = is_followed or stored is None
        self._sent_ms = 0 if is_first else state.meter.beat_at(self._now_ms()).epoch_ms
        self._policy = policy if state.policy == policy_hash(policy) else None
        self.metrics.takeovers += 1
        _log.info("pulse_leads", term=self.lease.term, bpm=state.bpm)
        self._took.set()

    # --- beats ------------------------------------------------------------------------------------

    async def _send_beats(self) -> None:
        while True:
            if self.clock.view.term > self.lease.term:
                self.lease.drop()  # another took the lease after us
            if not self.lease.is_kept:
                self._state = None
            try:
                await self._send_beat()
            except Held:
                self._state = None
            except AntiphonError:
                self.metrics.engine_failures += 1
            self._claim_lead()
            self._tell()
            await self._next_beat()

    async def _send_beat(self) -> None:
        """Send the frame of this beat, if it is ours to send and was not sent yet."""
        if self._state is not None:
            await self._lead(self._state)
        elif self._is_alone():
            policy, meter = self._session.control.tempo, self.clock.meter()
            if self._alone is None or self._alone.policy != policy_hash(policy):
                self._alone = begun(policy, meter, self.clock.phases())
                self._offset_ms = self.clock.view.offset_ms
            await self._publish(self._alone, policy, term=0)
        else:
            self._alone = None

    def _is_alone(self) -> bool:
        """Whether no leader was heard for as long as a takeover takes."""
        own_ms = self.clock.own_ms()
        is_new = own_ms - self._since_ms < ALONE_AFTER_BEATS * self._beat_ms()
        return not is_new and not self.clock.view.leader(own_ms) and self.is_candidate()

    async def _lead(self, state: PulseState) -> None:
        beat = state.meter.beat_at(self._now_ms())
        if beat.epoch_ms <= self._sent_ms:
            return
        policy = self._session.control.tempo
        if not self.lease.is_held:
            return
        if beat.is_downbeat:
            changed = on_downbeat(state, policy, self.suggest(), beat.epoch_ms)
            if changed != state:
                await self.lease.keep(changed)
            self._state, self._policy, state = changed, policy, changed
        if self._policy is not None and self.lease.is_held:
            await self._publish(state, self._policy, term=self.lease.term)
            # After the frame: before it, a step back could lead to the beat before this one.
            self._approach_calendar(state.meter.beat_ms)

    async def _publish(self, state: PulseState, policy: TempoPolicy, *, term: int) -> None:
        session, mesh, where = self._session, self._session.mesh, BEAT.at()
        own_ms, at_ms = self.clock.own_ms(), self._now_ms()
        epoch_ms = state.meter.beat_at(at_ms).epoch_ms
        if epoch_ms <= self._sent_ms:
            return
        frame = beat_frame(
            mesh, state, policy, at_ms=at_ms, hlc=session.author.now(), revision=term
        )
        message = Message(
            mesh=mesh, subject=where, signers=(self._signer[0],), at_ms=at_ms, body=frame
        )
        self._sent_ms = epoch_ms
        if self.clock.take(message, own_ms) == ALREADY_HEARD:
            return  # the leader before us still sent it
        payload = BEAT_FRAMES.sign(frame, self._signer, mesh=mesh, subject=where, at_ms=at_ms)
        await session.engine.bus.publish(where, payload)
        self.metrics.beats_sent += 1

    def _claim_lead(self) -> None:
        """Say that this node leads, or that it leads no more, once each."""
        state, term = self._state, self.lease.term
        if state is not None and self._claimed_term != term:
            self._claimed_term = term
            self._claim("pulse", "executing", f"leads in term {term} at {state.bpm} bpm")
        elif state is None and self._claimed_term:
            term, self._claimed_term = self._claimed_term, 0
            self._claim("pulse", "done", f"leads no more: term {term} is over")

    def _claim(self, task: str, state: TaskState, notes: str) -> None:
        """Say what happens to the mesh, beside the beats: these do not wait for it."""
        if self.is_candidate():
            saying = asyncio.ensure_future(self._say(task, state, notes))
            self._claiming.add(saying)
            saying.add_done_callback(self._claiming.discard)

    async def _say(self, task: str, state: TaskState, notes: str) -> None:
        """Send one claim; a failure is only counted."""
        session, where = self._session, MESH_STATUS.at()
        claim = StatusClaim(
            agent_id=self._signer[0],
            task_id=f"{MESH}/{task}",
            beat_index=self.clock.beat().index,
            state=state,
            hlc=hlc_text(session.author.now()),
            notes=notes,
        )
        try:
            payload = STATUS_CLAIMS.sign(
                claim, self._signer, mesh=session.mesh, subject=where, at_ms=session.wall.now_ms()
            )
            await session.engine.bus.publish(where, payload)
        except AntiphonError:
            self.metrics.engine_failures += 1

    async def _next_beat(self) -> None:
        """Wait for the next beat, or until this node becomes the leader."""
        state = self._state or self._alone
        if state is not None:
            meter, now_ms = state.meter, self._now_ms()
        else:
            meter, now_ms = self.clock.meter(), self.clock.now_ms()
        self._took.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout((meter.next_beat(now_ms).epoch_ms - now_ms) / 1000):
                await self._took.wait()

    # --- time -------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        """The time of the pulse, as this node sends it."""
        return self.clock.own_ms() + round(self._offset_ms)

    def _beat_ms(self) -> int:
        return (self._state.meter if self._state else self.clock.meter()).beat_ms

    def _calendar_offset_ms(self) -> float:
        """To this machine's calendar time, as far as the log does not show that it is wrong."""
        now = self._session.author.mesh_time.now()
        return min(max(now.wall_ms, now.least_ms), now.most_ms) - self.clock.own_ms()

    def _approach_calendar(self, beat_ms: int) -> None:
        away_ms = self._calendar_offset_ms() - self._offset_ms
        most_ms = beat_ms / SLEWED
        self._offset_ms += min(max(away_ms, -most_ms), most_ms)

    # --- numbers ----------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Bring the numbers up to date."""
        numbers, meter, view = self.metrics, self.clock.meter(), self.clock.view
        mode = self.clock.mode()
        numbers.mode, numbers.bar_len, numbers.is_leader = mode, meter.bar_len, self.is_leader
        numbers.drift_ms = float(view.drift_ms)
        numbers.is_frozen = mode != "leader" or view.policy.adaptation.frozen
        numbers.degraded = degraded_words(mode, is_other_policy=bool(view.differing))
        numbers.tempo_changes += self._bpm not in {0, meter.bpm}
        numbers.bpm = self._bpm = meter.bpm


def _missed_after_ms(beat_ms: int) -> int:
    return beat_ms * 9 // 8
