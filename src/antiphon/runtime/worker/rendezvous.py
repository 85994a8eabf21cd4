"""Rendezvous: workers try to claim a job in the order of their draws (spec §8).

A `Rendezvous` follows the announcements of one kind on the log, or the pointers of others, and
listens to the other workers. `core/policy/rendezvous_turns.py` decides whose turn it is, and what
to look up when; this module reads, waits and sends. A worker takes the announcements from one
`RendezvousQueue` per priority.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.policy.rendezvous_turns import (
    LOAN_S,
    SOON_S,
    Call,
    Changed,
    Instant,
    MessageStamp,
    RendezvousTurns,
    Step,
)
from antiphon.errors import AntiphonError, LogReplaced, Unavailable
from antiphon.ports import Record
from antiphon.runtime.worker.announced_jobs import AnnouncementDelivery, RecentActivity, need_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.bus.signed_message import Message
    from antiphon.core.families.jobs.priority import Priority
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.presence.worker_messages import WorkerMessage
    from antiphon.runtime.presence.worker_presence import WorkerPresence


class Rendezvous:
    """The announcements of one kind, in the order of draws."""

    def __init__(self, presence: WorkerPresence, *, heeds_pointers: bool = False) -> None:
        """Nothing arrives before `follow`, `look_at`, or a pointer of another worker."""
        self.presence = presence
        self.loan_s = LOAN_S
        self.news = asyncio.Event()
        """Set when an announcement may be due; clear it before you look."""
        self.is_closed = False
        self._heeds_pointers = heeds_pointers
        self._session: Session = presence.session
        self._turns = RendezvousTurns[Record](
            presence.me, presence.places, loan_s=LOAN_S, is_silent=presence.is_silent
        )
        self._room = asyncio.Event()
        self._looks = asyncio.Event()
        presence.listeners.append(self._heard)

    async def close(self) -> None:
        """Stop; what was not handed out is left to the other workers."""
        self.is_closed = True
        if self._heard in self.presence.listeners:
            self.presence.listeners.remove(self._heard)
        self.news.set()
        self._room.set()

    def _at(self, chance: float = 0.0) -> Instant:
        return Instant(self._now_s(), self._session.control.rules.claim_window_ms, chance)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _wake(self) -> None:
        """Wake the tasks that the last change concerns."""
        changed = self._turns.changes()
        if Changed.WAITING in changed:
            self.news.set()
        if Changed.ROOM in changed:
            self._room.set()
        if Changed.ASIDE in changed:
            self._looks.set()

    # --- handing out --------------------------------------------------------------------------

    def pick(self, priority: Priority) -> tuple[Call[Record] | None, float | None]:
        """The announcement of this priority to hand out now, or how long until the next is due."""
        is_barred = self.presence.fault_of(self._session.author.did) is not None
        revision = self.presence.revision
        return self._turns.pick(priority, self._at(), revision=revision, is_barred=is_barred)

    def hand_out(self, call: Call[Record]) -> AnnouncementDelivery:
        """Give it to the worker until it is settled."""
        self._turns.hand_out(call)
        self._wake()
        self._hold(call)
        self.presence.changed()
        return AnnouncementDelivery(call, self._settle, self._hold)

    def _hold(self, call: Call[Record]) -> None:
        self.presence.took(call.need.job_id, call.record.seq)

    def _settle(self, call: Call[Record], delay_s: float | None) -> None:
        """A delivery was acknowledged (None) or given back; tell the other workers."""
        job_id, seq = call.need.job_id, call.record.seq
        if delay_s is None:
            self.presence.ended(job_id, seq)
        else:
            self.presence.returned(job_id, seq, delay_s)
        at = self._at(self._session.entropy.random())
        self._turns.settle(call, None if self.is_closed else delay_s, at)
        self._wake()

    # --- what other workers send ------------------------------------------------------------------

    def _heard(self, message: Message[WorkerMessage]) -> None:
        word, said = message.body, MessageStamp(message.at_ms, message.author)
        at, chance = self._at(), self._session.entropy.random
        for job_id, seq in word.took:
            self._turns.hear_taken(job_id, seq, said, at._replace(chance=chance()))
        for job_id, seq in word.ended:
            self._turns.hear_ended(job_id, seq, said, at)
        for back in word.returned:
            self._turns.hear_returned(back.job_id, back.after_ms / 1000, said, at)
        if self._heeds_pointers:
            for job_id, seq in word.calls:
                self._turns.hear_pointer(job_id, seq, at._replace(chance=chance()))
        self._wake()
        self.news.set()  # a worker may be free or busy now

    # --- where announcements come from ------------------------------------------------------------

    def look_at(self, call: int, job_id: str, *, after_s: float = 0.0) -> None:
        """Read the record at this sequence, and return to it if the job is still open."""
        self._turns.look_at(call, job_id, self._now_s() + after_s)
        self._wake()

    async def consider(self, record: Record, *, is_known: bool = False) -> None:
        """Add an announcement; `is_known`: more happened to the job than this record shows."""
        session, turns, chance = self._session, self._turns, self._session.entropy.random
        op = session.open(record).op
        if turns.met(record, op, self._at(chance()), is_known=is_known) is Step.READ:
            view = await session.read_lane(self.presence.kind, record.subject[-64:])
            at, now_ms = self._at(chance()), session.wall.now_ms()
            turns.found(record, view.lane.job, need_of(view), at, now_ms=now_ms)
        self._wake()

    async def follow(self, subject: str, recent_activity: RecentActivity) -> None:
        """Add every announcement on these subjects from now on, and what is pending before."""
        after, attempt = recent_activity.after, 0
        while True:
            try:
                async with self._session.log.follow(
                    after, subject=subject, max_batch=128
                ) as batches:
                    async for batch in batches:
                        attempt = 0
                        for record in batch:
                            await self._has_room()
                            await self._consider_first(record, recent_activity)
                            after = record.seq
            except Unavailable:
                await self._session.pause(attempt)
                attempt = min(attempt + 1, 6)

    async def _consider_first(self, record: Record, recent_activity: RecentActivity) -> None:
        if recent_activity.is_over(record):
            return
        try:
            await self.consider(record, is_known=recent_activity.is_known(record))
        except (Unavailable, LogReplaced):
            raise
        except AntiphonError:
            return  # one lane's problem (too long to read, say) must not stop the others

    async def _has_room(self) -> None:
        while self._turns.is_full:
            self._room.clear()
            await self._room.wait()

    async def look_again(self) -> None:
        """Return to what was put aside, each when its time has come."""
        while True:
            for job_id in self._turns.due(self._now_s()):
                seq = self._turns.take_up(job_id)
                if seq is not None:
                    await self._look(seq, job_id)
            self._looks.clear()
            try:
                async with asyncio.timeout_at(self._turns.next_look_s()):
                    await self._looks.wait()
            except TimeoutError:
                continue

    async def _look(self, call: int, job_id: str) -> None:
        try:
            await self._has_room()
            record = await self._session.record_at(call)
            if record is not None and record.subject.endswith(job_id):
                await self.consider(record, is_known=True)
        except Unavailable:
            self.look_at(call, job_id, after_s=SOON_S * (1 + self._session.entropy.random()))
        except LogReplaced:
            raise
        except AntiphonError:
            return


class RendezvousQueue:
    """`ports.WorkQueue` over a rendezvous's announcements of one priority.

    The worker uses it like an engine's queue. It is dry when no announcement is due.
    """

    def __init__(self, rendezvous: Rendezvous, priority: Priority) -> None:
        """Hands out nothing before it is granted a credit."""
        self.credits = 0
        self.is_dry = False
        self._rendezvous = rendezvous
        self._priority = priority
        self._told: Callable[[], None] = lambda: None

    @property
    def loan_s(self) -> float:
        """How long others assume that a job is being worked on."""
        return self._rendezvous.loan_s

    def watch(self, told: Callable[[], None]) -> None:
        """See `ports.WorkQueue.watch`."""
        self._told = told

    def grant(self, count: int) -> None:
        """Allow `count` more deliveries."""
        if count > 0 and not self._rendezvous.is_closed:
            self.credits += count
            self.is_dry = False
            self._rendezvous.news.set()
            self._rendezvous.presence.changed()

    def ask(self) -> None:
        """See `ports.WorkQueue.ask`: `next` looks again."""
        if self.credits and not self.is_dry:
            self._rendezvous.news.set()

    def revoke_credits(self) -> None:
        """Ask for nothing more."""
        self.credits = 0
        self.is_dry = False
        self._rendezvous.presence.changed()

    async def next(self) -> AnnouncementDelivery:
        """Wait until an announcement is due."""
        rendezvous = self._rendezvous
        while True:
            if rendezvous.is_closed:
                raise Unavailable("the queue is closed")
            rendezvous.news.clear()
            pause_s = None
            if self.credits > 0:
                call, pause_s = rendezvous.pick(self._priority)
                if call is None:
                    self._has_nothing()
                elif rendezvous.presence.free() > 0:
                    self.credits -= 1
                    self.is_dry = False
                    return rendezvous.hand_out(call)
                else:
                    # Granted while there was room, which another queue's job has taken since.
                    self.revoke_credits()
            try:
                async with asyncio.timeout(pause_s):
                    await rendezvous.news.wait()
            except TimeoutError:
                continue

    def next_now(self) -> AnnouncementDelivery | None:
        """Nothing: each is drawn for by itself."""
        return None

    async def close(self) -> None:
        """Does nothing: the code that opened the rendezvous closes it."""
        self.revoke_credits()

    def _has_nothing(self) -> None:
        if not self.is_dry:
            self.is_dry = True
            self._told()
