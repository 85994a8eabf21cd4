"""The beats as one process knows them (spec §11).

A `BeatClock` always answers. Before anybody listens it counts by the tempo policy and by a clock of
this machine that cannot jump; nothing runs and nothing is subscribed to. While somebody listens, it
follows the beats on the bus. What is followed is decided in `antiphon.core.tempo.pulse_view`.

    clock = BeatClock(session)
    clock.beat()                             # Beat(index=3, epoch_ms=…)
    async with clock.listen() as beats:      # follows the pulse while the block runs
        async for beat in beats:
            ...
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.scope import may_keep_time
from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import BEAT
from antiphon.core.policy.backoff import backoff_ms
from antiphon.core.tempo.pulse_view import Mode, PulseView
from antiphon.errors import AntiphonError, Unavailable
from antiphon.runtime.services import beside
from antiphon.runtime.tempo.tempo_messages import BEAT_FRAMES, OlderForms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antiphon.core.bus.signed_message import Message
    from antiphon.core.tempo.messages import BeatFrame
    from antiphon.core.tempo.meter import Beat, Meter
    from antiphon.core.tempo.phases import Phase, Phases
    from antiphon.runtime.log.session import Session

MAX_PENDING: Final = 64
_KNOWN_FOR_S: Final = 5.0
"""How long the answer whether a node may send beats is used."""
_AUTHORS_KEPT: Final = 256
RECONNECT_MS: Final = 100
RECONNECT_MOST_MS: Final = 5_000
_SLEEP_MOST_S: Final = 5.0


class BeatClock:
    """Which beat it is, by what this process has heard."""

    def __init__(self, session: Session) -> None:
        """Costs nothing before it is used."""
        self.session = session
        self.heard = 0
        """Frames that were followed."""
        self.refused: dict[str, int] = {}
        """Frames that were not, by the reason."""
        self.is_sender = False
        """Whether a pulse sends beats by this clock, and hands them over itself."""
        self.watchers: list[Callable[[Message[BeatFrame]], None]] = []
        """Called with each frame that is followed."""
        self._view: PulseView | None = None
        self._listeners = 0
        self._listening: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._authors: dict[str, tuple[tuple[int, int], float, bool]] = {}
        self._synced_s = 0.0
        self._older = OlderForms()

    # --- what it says -----------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time of the pulse; this machine's calendar time at first, and then it never jumps."""
        return self.view.now_ms(self.own_ms())

    def meter(self) -> Meter:
        """The tempo in force, the length of a bar, and a downbeat."""
        return self.view.meter(self.own_ms())

    def phases(self) -> Phases:
        """The beats of each phase of a bar."""
        return self.view.phases(self.own_ms())

    def beat(self) -> Beat:
        """The beat right now."""
        return self.view.beat(self.own_ms())

    def phase(self) -> Phase:
        """The phase right now."""
        return self.view.phase(self.own_ms())

    def mode(self) -> Mode:
        """What the beats are taken from: a leader, the median of pulses, or this machine."""
        return self.view.mode(self.own_ms())

    def leader(self) -> str:
        """The node whose beats are followed; empty without one."""
        return self.view.leader(self.own_ms())

    def own_ms(self) -> int:
        """This machine's time on a clock that cannot jump."""
        return int(self.session.wall.boot_s() * 1000)

    @property
    def view(self) -> PulseView:
        """What was heard, under the newest tempo policy that is known here."""
        policy = self.session.control.tempo
        view = self._view
        if view is None:
            offset_ms = self.session.wall.now_ms() - self.own_ms()
            view = self._view = PulseView(policy, self.session.mesh, offset_ms=offset_ms)
            replaced = self.session.history.tempo_before
            if replaced is not None:  # perhaps a moment ago: a leader may not be there yet
                view.allow(replaced, self.own_ms())
        elif view.policy is not policy:
            view.set_policy(policy, self.own_ms())
        return view

    # --- listening --------------------------------------------------------------------------------

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Beats]:
        """Follow the pulse while the block runs; all blocks share one subscription."""
        self._listeners += 1
        if self._listening is None:
            self._listening = asyncio.ensure_future(self._hear())
        try:
            yield Beats(self)
        finally:
            self._listeners -= 1
            if not self._listeners and self._listening is not None:
                task, self._listening = self._listening, None
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def calling(
        self, on_beat: Callable[[Beat], None], *, only_downbeats: bool = False
    ) -> AsyncIterator[None]:
        """Call a function at every beat, or downbeat, while the block runs."""

        async def call(beats: Beats) -> None:
            async for beat in beats:
                if beat.is_downbeat or not only_downbeats:
                    on_beat(beat)

        async with self.listen() as beats, beside(call(beats)):
            yield

    async def _hear(self) -> None:
        attempt = 0
        while True:
            try:
                async with self.session.engine.bus.subscribe(
                    BEAT.at(), max_pending=MAX_PENDING
                ) as frames:
                    attempt = 0
                    async for frame in frames:
                        await self.note(frame.payload)
            except Unavailable:
                attempt += 1
            chance = self.session.entropy.random()
            pause_ms = backoff_ms(
                attempt, base_ms=RECONNECT_MS, cap_ms=RECONNECT_MOST_MS, chance=chance
            )
            await asyncio.sleep(pause_ms / 1000)

    async def note(self, payload: bytes) -> None:
        """Follow a frame as it was sent, if it is valid."""
        session = self.session
        own_ms = self.own_ms()
        message = BEAT_FRAMES.open(
            payload, mesh=session.mesh, subject=BEAT.at(), now_ms=session.wall.now_ms()
        )
        if isinstance(message, Refused):
            return self._refuse(message.value)
        if self.is_sender and message.author == session.author.did:
            return None  # it was taken when it was sent
        if not await self._may_keep_time(message.author):
            return self._refuse("author")
        self._older.note(message)
        refused = self.take(message, own_ms)
        if refused:
            self._refuse(refused)
            if self.view.differing:
                await self._sync()
        return None

    def take(self, message: Message[BeatFrame], own_ms: int) -> str:
        """Follow a verified frame; why not, or empty."""
        view = self.view
        known = view.revision
        refused = view.take(message.body, message.author, sent_ms=message.at_ms, own_ms=own_ms)
        if refused is not None:
            return refused.why
        self.heard += 1
        if view.revision != known:
            self._moved.set()
        for watcher in self.watchers:
            watcher(message)
        return ""

    def _refuse(self, why: str) -> None:
        self.refused[why] = self.refused.get(why, 0) + 1

    # --- who may send beats -----------------------------------------------------------------------

    async def _may_keep_time(self, did: str) -> bool:
        """The same by the newest control state, if the node is new."""
        if did not in self._authors:
            await self._sync()
        return self.is_timekeeper(did)

    def is_timekeeper(self, did: str) -> bool:
        """Whether a node may send beats, as of a moment ago."""
        session = self.session
        control, now_s = session.control, session.wall.boot_s()
        key = (control.since, control.grants.revision)
        known = self._authors.get(did)
        if known is not None and known[0] == key and now_s < known[1]:
            return known[2]
        if len(self._authors) >= _AUTHORS_KEPT:
            self._authors.clear()
        may = may_keep_time(control, did, session.wall.now_ms() // 1000)
        self._authors[did] = (key, now_s + _KNOWN_FOR_S, may)
        return may

    async def _sync(self) -> None:
        """Read the newest control state, at most once a beat."""
        now_s = self.session.wall.boot_s()
        if now_s - self._synced_s < self.meter().beat_ms / 1000:
            return
        self._synced_s = now_s
        try:
            await self.session.sync_control()
        except AntiphonError:
            return  # what is known has to do

    async def moved(self, within_s: float) -> None:
        """Wait that long, or until beats begin at other times than was expected."""
        if within_s <= 0:
            return
        self._moved.clear()
        try:
            async with asyncio.timeout(min(within_s, _SLEEP_MOST_S)):
                await self._moved.wait()
        except TimeoutError:
            return


class Beats:
    """The beats from now on, each once, when it begins. One that began before now is not given."""

    def __init__(self, clock: BeatClock) -> None:
        """Begins with the next beat."""
        self._clock = clock
        self._last_ms = clock.beat().epoch_ms

    def __aiter__(self) -> Beats:
        return self

    async def __anext__(self) -> Beat:
        clock = self._clock
        while True:
            beat, now_ms = clock.beat(), clock.now_ms()
            beat_ms = clock.meter().beat_ms
            ahead_ms = beat.epoch_ms - self._last_ms
            # A small correction backwards gives no beat twice; after a large one it goes on there.
            if ahead_ms > beat_ms // 2 or ahead_ms < -2 * beat_ms:
                self._last_ms = beat.epoch_ms
                return beat
            await clock.moved((beat.epoch_ms + beat_ms - now_ms) / 1000)
