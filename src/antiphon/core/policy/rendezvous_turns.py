"""Whose turn it is under rendezvous selection, for the announcements of one kind (spec §8).

Each worker keeps its own `RendezvousTurns`. It is told what happens (an announcement, a lane that
was read, a message of another worker, the end of a delivery) and decides which call to deliver now,
which ones to look up on the log, and when to look again. It has no network and no clock: time,
random numbers and ranks are arguments. A *call* here is an announced job.

Where calls are kept:

    waiting   can be claimed now; delivered when it is their time and there is a credit
    out       delivered to the worker
    aside     not looked at before a certain time: taken by others, or given back for later

A call is in at most one of the three, and all three are bounded: while `waiting` is full nothing
more is read, since the log is the backlog. What is dropped from `aside` is found again when a full
node offers it again.

Messages of other workers are trusted for a job's first announcement only. Once a job has been
announced again, a message delays it by at most one window; then the log itself is read. So a lying
worker can delay a job until it is offered again, but not forever.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, Flag, auto
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from antiphon.core.families.jobs.ops import JobOffer, JobSchedule
from antiphon.core.families.jobs.priority import PRIORITIES, Priority
from antiphon.core.families.jobs.state import HELD, Job, State
from antiphon.core.policy import selection
from antiphon.core.policy.claim_delay import LONGEST_S
from antiphon.core.policy.selection import Candidate, Need
from antiphon.core.record.op import Op

LOAN_S: Final = 30.0
"""How long other workers assume that a job is taken after the last message about it."""
MAX_WAITING: Final = 1_024
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
MAX_ASIDE: Final = 8_192
MAX_HEEDED: Final = 64
"""How many pointers a worker without labels keeps; more are ignored. Any worker can send them."""
SOON_S: Final = 1.0
"""A job given back for no longer than this goes back to `waiting`, not to `aside`."""
PATIENCE: Final = 8
"""Claim windows after which an old call goes before calls for which this worker ranks better."""


class Announcement(Protocol):
    """An announcement as it is on the log."""

    @property
    def seq(self) -> int:
        """Its sequence."""

    @property
    def subject(self) -> str:
        """Where it was published; it ends in the job's id."""

    @property
    def payload(self) -> bytes:
        """Its bytes."""


R = TypeVar("R", bound=Announcement)


class Call(Struct, Generic[R], kw_only=True, eq=False):
    """One announced job that this worker may claim."""

    record: R
    need: Need
    priority: Priority
    since_s: float
    """When the claim windows start."""
    is_repeated: bool = False
    """Whether the job's lane was read: this is not the job's first announcement."""
    deliveries: int = 0
    """How often it was delivered here, plus one if the lane was read before."""
    was_put_off: bool = False
    rank: int = 0
    """How many other workers with a free slot rank before this one."""
    place: int = 0
    """The same for all other workers, busy or not."""
    chance: float = 0.0

    def due_s(self, window_ms: int) -> float:
        """When it is this worker's turn."""
        wait_s = selection.wait_s(self.rank, window_ms=window_ms, chance=self.chance)
        return self.since_s + wait_s


class DeferredCall(Struct):
    """A call that is left alone until `look_s`."""

    seq: int
    look_s: float
    holder: str = ""
    """The worker that is said to have it; empty if none is."""
    at_ms: int = 0
    is_over: bool = False
    """Said to have ended: kept only so that a late announcement does not revive it."""


class Instant(NamedTuple):
    """When something happens, with what a decision about it needs."""

    now_s: float
    window_ms: int
    """The length of a claim window."""
    chance: float = 0.0
    """From 0 to 1, for jitter."""

    @property
    def window_s(self) -> float:
        """The same in seconds."""
        return self.window_ms / 1000


class MessageStamp(NamedTuple):
    """The sender and time of a message."""

    at_ms: int
    node: str


class Changed(Flag):
    """What has changed, and so what has to be looked at again."""

    NOTHING = 0
    WAITING = auto()
    """Some call may be due."""
    ROOM = auto()
    """There may be room for more."""
    ASIDE = auto()
    """A lookup may be due sooner than before."""


class Step(Enum):
    """What to do about a call that was found."""

    NOTHING = "nothing"
    READ = "read"
    """Read the job's lane, and pass the result to `found`."""


class RendezvousTurns(Generic[R]):
    """The announced jobs of one kind, in the order of draws."""

    def __init__(
        self,
        me: Candidate,
        places: Callable[[Need], tuple[int, int]],
        *,
        loan_s: float = LOAN_S,
        is_silent: bool = False,
    ) -> None:
        """`places` returns a call's rank and place; a silent worker takes no part in ranks."""
        self._me = me
        self._places = places
        self._loan_s = loan_s
        self._is_silent = is_silent
        self._waiting: dict[str, Call[R]] = {}
        self._waiting_bytes = 0
        self._out: dict[str, Call[R]] = {}
        self._aside: dict[str, DeferredCall] = {}
        self._ranked_at = dict.fromkeys(PRIORITIES, -1)
        self._changed = Changed.NOTHING

    def changes(self) -> Changed:
        """What has changed since this was last read."""
        changed, self._changed = self._changed, Changed.NOTHING
        return changed

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read for now."""
        return len(self._waiting) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES

    # --- whose turn it is ---------------------------------------------------------------------

    def pick(
        self, priority: Priority, at: Instant, *, revision: int, is_barred: bool = False
    ) -> tuple[Call[R] | None, float | None]:
        """The call of this priority to deliver now, or the time until the next one is due.

        Ranks are computed again when `revision` changes. `is_barred`: the log would reject this
        worker's claims, so it picks nothing and does not hold up other workers.
        """
        is_new_order = self._ranked_at[priority] != revision
        self._ranked_at[priority] = revision
        best: tuple[tuple[int, int], Call[R]] | None = None
        soonest_s: float | None = None
        for call in self._waiting.values():
            if call.priority != priority:
                continue
            due_s = call.due_s(at.window_ms)
            if due_s > at.now_s and is_new_order:
                call.rank, call.place = self._places(call.need)
                due_s = call.due_s(at.window_ms)
            if due_s > at.now_s:
                soonest_s = due_s if soonest_s is None else min(soonest_s, due_s)
                continue
            is_old = at.now_s - due_s > PATIENCE * at.window_s
            order = (0 if is_old else call.place, call.record.seq)
            if best is None or order < best[0]:
                best = (order, call)
        if best is None:
            return None, None if soonest_s is None else max(soonest_s - at.now_s, 0.0)
        return (None, LONGEST_S) if is_barred else (best[1], None)

    def hand_out(self, call: Call[R]) -> None:
        """It is delivered to the worker until it is settled."""
        self._take_out(call.need.job_id)
        self._out[call.need.job_id] = call
        call.deliveries += 1

    def settle(self, call: Call[R], delay_s: float | None, at: Instant) -> None:
        """It is finished (`delay_s` is None), or given back for `delay_s` seconds."""
        job_id = call.need.job_id
        if self._out.get(job_id) is call:
            del self._out[job_id]
        if delay_s is None or self._is_silent:
            return
        if delay_s > SOON_S:
            self._lay_aside(job_id, DeferredCall(call.record.seq, at.now_s + delay_s))
            return
        call.since_s = at.now_s + delay_s
        call.is_repeated = True
        self._wait(call, at)

    # --- what is found on the log -------------------------------------------------------------

    def met(self, record: R, op: Op | None, at: Instant, *, is_known: bool = False) -> Step:
        """A record was found among the announcements; if it is not its job's first, read the lane.

        `is_known`: more has happened to the job than this record shows.
        """
        if not isinstance(op, JobSchedule | JobOffer):
            return Step.NOTHING
        job_id = record.subject[-64:]
        if op.body.kind not in self._me.kinds or job_id in self._out:
            return Step.NOTHING
        if is_known or isinstance(op, JobOffer) or op.prev != 0:
            return Step.READ
        if job_id in self._waiting or job_id in self._aside:
            return Step.NOTHING
        need = Need(
            kind=op.body.kind,
            job_id=job_id,
            seed=selection.seed_of(record.payload),
            requires=op.body.requires,
        )
        if self._is_able(need):
            priority = op.body.priority
            self._wait(Call(record=record, need=need, priority=priority, since_s=at.now_s), at)
        return Step.NOTHING

    def found(
        self, record: R, job: Job | None, need: Need | None, at: Instant, *, now_ms: int
    ) -> None:
        """The lane of a call's job was read: it replaces what was known before."""
        job_id = record.subject[-64:]
        if job_id in self._out:
            return
        self._take_out(job_id)
        self._aside.pop(job_id, None)
        if job is None or job.is_terminal or job.state is State.WAITING:
            return
        if need is None or not self._is_able(need):
            return
        after_s = (job.claimable_ms(now_ms, self._me.did) - now_ms) / 1000
        if job.state in HELD or after_s > SOON_S:
            if self._is_silent:
                return  # taken, or the engine's queue has it; else there will be another pointer
            look_s = at.now_s + after_s + at.chance * SOON_S
            self._lay_aside(job_id, DeferredCall(record.seq, look_s))
            return
        call = Call(record=record, need=need, priority=job.priority, since_s=at.now_s + after_s)
        call.is_repeated, call.deliveries = True, 1
        self._wait(call, at)

    def look_at(self, seq: int, job_id: str, look_s: float) -> None:
        """Look up the record at this sequence at this time."""
        if job_id not in self._out and job_id not in self._waiting:
            self._lay_aside(job_id, DeferredCall(seq, look_s))

    def due(self, now_s: float) -> list[str]:
        """The jobs in `aside` that are due."""
        return [job_id for job_id, aside in self._aside.items() if aside.look_s <= now_s]

    def take_up(self, job_id: str) -> int | None:
        """The sequence to read for a job in `aside`; None if it is no longer there."""
        aside = self._aside.pop(job_id, None)
        return None if aside is None or aside.is_over else aside.seq

    def next_look_s(self) -> float | None:
        """When the next job in `aside` is due; None if there is none."""
        return min((aside.look_s for aside in self._aside.values()), default=None)

    # --- messages of other workers ------------------------------------------------------------

    def hear_taken(self, job_id: str, seq: int, said: MessageStamp, at: Instant) -> None:
        """Another worker has taken a job, or still holds it."""
        if job_id in self._out:
            return
        waiting = self._waiting.get(job_id)
        if waiting is not None and waiting.is_repeated:
            if not waiting.was_put_off:  # once: a lying worker would send it again and again
                waiting.was_put_off = True
                waiting.since_s = max(waiting.since_s, at.now_s + at.window_s)
            return
        aside = self._aside.get(job_id)
        until_s = at.now_s + self._loan_s * (1 + at.chance / 4)
        if aside is None or waiting is not None:
            self._take_out(job_id)
            self._lay_aside(job_id, DeferredCall(seq, until_s, said.node, said.at_ms))
        elif not aside.is_over and aside.holder == said.node:
            aside.look_s = until_s
        elif aside.holder and selection.is_earlier(said, (aside.at_ms, aside.holder)):
            aside.holder, aside.at_ms = said.node, said.at_ms

    def hear_ended(self, job_id: str, seq: int, said: MessageStamp, at: Instant) -> None:
        """Another worker has read that a job ended."""
        waiting = self._waiting.get(job_id)
        if job_id in self._out or (waiting is not None and waiting.is_repeated):
            return
        aside = self._aside.get(job_id)
        if aside is not None and aside.holder not in ("", said.node):
            return
        self._take_out(job_id)
        until_s = at.now_s + self._loan_s
        self._lay_aside(job_id, DeferredCall(seq, until_s, said.node, said.at_ms, is_over=True))

    def hear_returned(self, job_id: str, after_s: float, said: MessageStamp, at: Instant) -> None:
        """Another worker gave a job back, and it should not be looked at for `after_s` seconds."""
        aside = self._aside.get(job_id)
        if aside is not None and aside.holder == said.node and not aside.is_over:
            aside.holder = ""
            aside.look_s = at.now_s + min(after_s, LONGEST_S)
            self._changed |= Changed.ASIDE

    def hear_pointer(self, job_id: str, seq: int, at: Instant) -> None:
        """A pointer to a call; silent workers know of no others, so each looks at a random time."""
        if not self._is_silent:
            self.look_at(seq, job_id, at.now_s)
        elif len(self._aside) < MAX_HEEDED:
            self.look_at(seq, job_id, at.now_s + at.chance * at.window_s)

    # --- keeping ------------------------------------------------------------------------------

    def _is_able(self, need: Need) -> bool:
        return not selection.missing(need.requires, self._me.labels)

    def _wait(self, call: Call[R], at: Instant) -> None:
        call.rank, call.place = self._places(call.need)
        call.chance = at.chance
        self._waiting[call.need.job_id] = call
        self._waiting_bytes += len(call.record.payload)
        self._changed |= Changed.WAITING

    def _take_out(self, job_id: str) -> None:
        call = self._waiting.pop(job_id, None)
        if call is not None:
            self._waiting_bytes -= len(call.record.payload)
            self._changed |= Changed.ROOM

    def _lay_aside(self, job_id: str, aside: DeferredCall) -> None:
        self._aside.pop(job_id, None)
        if len(self._aside) >= MAX_ASIDE:
            del self._aside[next(iter(self._aside))]
        self._aside[job_id] = aside
        self._changed |= Changed.ASIDE
