"""Rendezvous: workers come to a job in the order of their draws (spec §8).

A `Rendezvous` keeps calls of one kind: it follows them on the log, or looks where others point.
It works out for each where this worker stands among those it knows, and hands it out at once to
the first rank, to each further one a claim window later. A worker takes them from a queue for
each class (`drawn_queue.py`). Whoever is heard to have taken a job makes the others lay it aside.

Where calls are kept:

    waiting   could be claimed now; handed out when their time has come and there is a credit
    out       in the worker's hands
    aside     not to be looked at before a certain time: taken by others, or given back for later

All three are bounded. While `waiting` is full the follower stops reading: the log is the backlog.
What falls out of `aside` is found again by the full nodes' next call.

Word of mouth is believed about a job's first call only. Once a job has been called again, what
others say delays it by one window at most; then the log itself is read. So a liar can put a job
off by the time a call is repeated in, and not for good.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core import selection
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobOffer, JobSchedule
from antiphon.core.families.jobs.state import HELD, State
from antiphon.core.selection import Need
from antiphon.core.standoff import LONGEST_S
from antiphon.errors import AntiphonError, Unavailable
from antiphon.runtime.calls import Aside, Call, CallDelivery, Touched, need_of

if TYPE_CHECKING:
    from antiphon.core.signed_message import Message
    from antiphon.ports import Record
    from antiphon.runtime.company import Company
    from antiphon.runtime.peer import Peer
    from antiphon.runtime.words import Word

LOAN_S: Final = 30.0
"""How long others believe that a job is in good hands after they last heard so."""
MAX_WAITING: Final = 1_024
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
MAX_ASIDE: Final = 8_192
MAX_HEEDED: Final = 64
"""Pointers that a worker without labels has in hand; more are not heeded. Anybody may point."""
SOON_S: Final = 1.0
"""A job given back for less than this stays at hand."""
PATIENCE: Final = 8
"""Claim windows after which a call comes before all that this worker stands better for."""


class Rendezvous:
    """The calls of one kind, in the order of draws."""

    def __init__(
        self, company: Company, *, loan_s: float = LOAN_S, heeds_pointers: bool = False
    ) -> None:
        """Nothing arrives before it is fed: by `follow`, by `look_at`, or by others' pointers."""
        self.company = company
        self.loan_s = loan_s
        self.news = asyncio.Event()
        """Set when some call may be due; whoever looks clears it first."""
        self.is_closed = False
        self._heeds_pointers = heeds_pointers
        self._peer: Peer = company.peer
        self._waiting: dict[str, Call] = {}
        self._waiting_bytes = 0
        self._out: dict[str, Call] = {}
        self._aside: dict[str, Aside] = {}
        self._ranked_at = dict.fromkeys(job_subjects.CLASSES, -1)
        self._room = asyncio.Event()
        self._looks = asyncio.Event()
        company.listeners.append(self._heard)

    async def close(self) -> None:
        """Stop; what was not handed out is left to the others."""
        self.is_closed = True
        if self._heard in self.company.listeners:
            self.company.listeners.remove(self._heard)
        self.news.set()
        self._room.set()

    def hand_out(self, call: Call) -> CallDelivery:
        """It is in the worker's hands until it is settled."""
        self._take_out(call.need.job)
        self._out[call.need.job] = call
        call.deliveries += 1
        self.company.took(call.need.job, call.record.seq)
        self.company.changed()
        return CallDelivery(call, self._settle, self._hold)

    def _hold(self, call: Call) -> None:
        self.company.took(call.need.job, call.record.seq)

    def _settle(self, call: Call, delay_s: float | None) -> None:
        """A delivery was acknowledged (None) or given back; tell the others."""
        job, seq = call.need.job, call.record.seq
        if self._out.get(job) is call:
            del self._out[job]
        if delay_s is None:
            self.company.ended(job, seq)
            return
        self.company.returned(job, seq, delay_s)
        if self.is_closed or self.company.is_silent:
            return
        if delay_s > SOON_S:
            self._lay_aside(job, Aside(seq, self._now_s() + delay_s))
            return
        call.since_s = self._now_s() + delay_s
        call.is_repeated = True
        self._wait(call)

    # --- whose turn it is ---------------------------------------------------------------------

    def pick(self, urgency: int) -> tuple[Call | None, float | None]:
        """The call of this class to hand out now, or how long until the next one's time comes."""
        now_s, window_ms = self._now_s(), self._peer.control.rules.claim_window_ms
        is_new_order = self._ranked_at[urgency] != self.company.revision
        self._ranked_at[urgency] = self.company.revision
        best: tuple[tuple[int, int], Call] | None = None
        soonest_s: float | None = None
        for call in self._waiting.values():
            if call.urgency != urgency:
                continue
            due_s = call.since_s + selection.wait_s(
                call.rank, window_ms=window_ms, chance=call.chance
            )
            if due_s > now_s and is_new_order:
                self._rank(call)
                due_s = call.since_s + selection.wait_s(
                    call.rank, window_ms=window_ms, chance=call.chance
                )
            if due_s > now_s:
                soonest_s = due_s if soonest_s is None else min(soonest_s, due_s)
                continue
            is_old = now_s - due_s > PATIENCE * window_ms / 1000
            order = (0 if is_old else call.place, call.record.seq)
            if best is None or order < best[0]:
                best = (order, call)
        if best is None:
            return None, None if soonest_s is None else max(soonest_s - now_s, 0.0)
        if self.company.fault_of(self._peer.author.did) is not None:
            # The log would refuse us: whoever it would not is not held up by our word.
            return None, LONGEST_S
        return best[1], None

    def _rank(self, call: Call) -> None:
        call.rank, call.place = self.company.places(call.need)

    def _wait(self, call: Call) -> None:
        job = call.need.job
        self._take_out(job)
        self._aside.pop(job, None)
        self._rank(call)
        call.chance = self._peer.entropy.random()
        self._waiting[job] = call
        self._waiting_bytes += len(call.record.payload)
        self.news.set()

    def _take_out(self, job: str) -> Call | None:
        call = self._waiting.pop(job, None)
        if call is not None:
            self._waiting_bytes -= len(call.record.payload)
            self._room.set()
        return call

    def _lay_aside(self, job: str, what: Aside) -> None:
        self._aside.pop(job, None)
        if len(self._aside) >= MAX_ASIDE:
            del self._aside[next(iter(self._aside))]
        self._aside[job] = what
        self._looks.set()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # --- what others say ----------------------------------------------------------------------

    def _heard(self, message: Message[Word]) -> None:
        word = message.body
        for job, call in word.took:
            self._note_taken(job, call, message)
        for job, call in word.ended:
            self._note_ended(job, call, message)
        for back in word.returned:
            aside = self._aside.get(back.job)
            if aside is not None and aside.holder == message.author and not aside.is_over:
                aside.holder = ""
                aside.look_s = self._now_s() + min(back.after_ms / 1000, LONGEST_S)
                self._looks.set()
        if self._heeds_pointers:
            for job, call in word.calls:
                self._heed(job, call)
        self.news.set()  # somebody may be free or busy now

    def _heed(self, job: str, call: int) -> None:
        """Look where somebody points; the silent know of nobody, so each when chance says."""
        if not self.company.is_silent:
            self.look_at(call, job)
        elif len(self._aside) < MAX_HEEDED:
            window_s = self._peer.control.rules.claim_window_ms / 1000
            self.look_at(call, job, after_s=self._peer.entropy.random() * window_s)

    def _note_taken(self, job: str, call: int, said: Message[Word]) -> None:
        if job in self._out:
            return
        claim = (said.at_ms, said.author)
        waiting = self._waiting.get(job)
        if waiting is not None and waiting.is_repeated:
            if not waiting.was_put_off:  # once: a liar would say it again and again
                waiting.was_put_off = True
                window_s = self._peer.control.rules.claim_window_ms / 1000
                waiting.since_s = max(waiting.since_s, self._now_s() + window_s)
            return
        aside = self._aside.get(job)
        until_s = self._now_s() + self.loan_s * (1 + self._peer.entropy.random() / 4)
        if aside is None or (waiting is not None):
            self._take_out(job)
            self._lay_aside(job, Aside(call, until_s, said.author, said.at_ms))
        elif not aside.is_over and aside.holder == said.author:
            aside.look_s = until_s
        elif aside.holder and selection.is_earlier(claim, (aside.at_ms, aside.holder)):
            aside.holder, aside.at_ms = said.author, said.at_ms

    def _note_ended(self, job: str, call: int, said: Message[Word]) -> None:
        waiting = self._waiting.get(job)
        if job in self._out or (waiting is not None and waiting.is_repeated):
            return
        aside = self._aside.get(job)
        if aside is not None and aside.holder not in ("", said.author):
            return
        self._take_out(job)
        over = Aside(call, self._now_s() + self.loan_s, said.author, said.at_ms, is_over=True)
        self._lay_aside(job, over)

    # --- where calls come from ----------------------------------------------------------------

    def look_at(self, call: int, job: str, *, after_s: float = 0.0) -> None:
        """Read what stands at this sequence, and come back to it if it is still open."""
        if job not in self._out and job not in self._waiting:
            self._lay_aside(job, Aside(call, self._now_s() + after_s))

    async def consider(self, record: Record, *, is_known: bool = False) -> None:
        """Take up a call; one that is not a job's first is looked up on the log before.

        `is_known`: more happened to the job than this record shows.
        """
        entry = self._peer.open(record)
        op = entry.op
        if not isinstance(op, JobSchedule | JobOffer):
            return
        job = record.subject[-64:]
        if op.body.kind != self.company.kind or job in self._out:
            return
        if is_known or isinstance(op, JobOffer) or op.prev != 0:
            await self._consider_again(record, job)
            return
        if job in self._waiting or job in self._aside:
            return
        need = Need(
            kind=op.body.kind,
            job=job,
            seed=selection.seed_of(record.payload),
            requires=op.body.requires,
        )
        if not selection.missing(need.requires, self.company.traits.labels):
            now_s = self._now_s()
            self._wait(Call(record, need, op.body.urgency, since_s=now_s, is_repeated=False))

    async def _consider_again(self, record: Record, job_id: str) -> None:
        peer = self._peer
        view = await peer.read_lane(self.company.kind, job_id)
        if job_id in self._out:
            return
        self._take_out(job_id)
        self._aside.pop(job_id, None)
        job = view.lane.job
        if job is None or job.is_terminal or job.state is State.WAITING:
            return
        need = need_of(view)
        if need is None or selection.missing(need.requires, self.company.traits.labels):
            return
        now_ms = peer.wall.now_ms()
        after_s = (job.claimable_ms(now_ms, peer.author.did) - now_ms) / 1000
        if job.state in HELD or after_s > SOON_S:
            if self.company.is_silent:
                return  # in good hands, or the engine's queue has it; else somebody points again
            jitter_s = peer.entropy.random() * SOON_S
            self._lay_aside(job_id, Aside(record.seq, self._now_s() + after_s + jitter_s))
            return
        since_s = self._now_s() + after_s
        self._wait(Call(record, need, job.urgency, since_s=since_s, is_repeated=True))

    async def follow(self, subject: str, touched: Touched) -> None:
        """Take up every call on these subjects from here on, and what is pending before."""
        after, attempt = touched.after, 0
        while True:
            try:
                async with self._peer.log.follow(after, subject=subject, max_batch=128) as batches:
                    async for batch in batches:
                        attempt = 0
                        for record in batch:
                            await self._has_room()
                            await self._consider_first(record, touched)
                            after = record.seq
            except Unavailable:
                await self._peer.pause(attempt)
                attempt = min(attempt + 1, 6)

    async def _consider_first(self, record: Record, touched: Touched) -> None:
        if touched.is_over(record):
            return
        try:
            await self.consider(record, is_known=touched.is_known(record))
        except Unavailable:
            raise
        except AntiphonError:
            return  # one lane's trouble (too long to read, say) must not stop the others

    async def _has_room(self) -> None:
        while len(self._waiting) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            self._room.clear()
            await self._room.wait()

    async def look_again(self) -> None:
        """Come back to what was laid aside, each when its time has come."""
        while True:
            now_s = self._now_s()
            due = [(job, one.call) for job, one in self._aside.items() if one.look_s <= now_s]
            for job, call in due:
                aside = self._aside.pop(job, None)
                if aside is not None and not aside.is_over:
                    await self._look(call, job)
            rest = [one.look_s for one in self._aside.values()]
            self._looks.clear()
            try:
                async with asyncio.timeout_at(min(rest, default=None)):
                    await self._looks.wait()
            except TimeoutError:
                continue

    async def _look(self, call: int, job: str) -> None:
        try:
            await self._has_room()
            record = await self._peer.record_at(call)
            if record is not None and record.subject.endswith(job):
                await self.consider(record, is_known=True)
        except Unavailable:
            self.look_at(call, job, after_s=SOON_S * (1 + self._peer.entropy.random()))
        except AntiphonError:
            return
