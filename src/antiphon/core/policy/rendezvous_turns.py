"""Whose turn it is under rendezvous: the calls of one kind, as one worker keeps them (spec §8).

`RendezvousTurns` is told what happens (a call, a lane that was read, a word of another worker, the
end of a delivery) and says which call to hand out now, which ones to look up on the log, and when
to look again. It knows no network and no clock: time, chance and ranks are given to it.

Where calls are kept:

    waiting   could be claimed now; handed out when their time has come and there is a credit
    out       in the worker's hands
    aside     not to be looked at before a certain time: taken by others, or given back for later

A call is in one of the three at most, and all three are bounded: while `waiting` is full nothing
more is read, since the log is the backlog. What falls out of `aside` is found again by the full
nodes' next call.

Word of mouth is believed about a job's first call only. Once a job has been called again, what
others say delays it by one window at most; then the log itself is read. So a liar can put a job
off by the time a call is repeated in, and not for good.
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


class Announcement(Protocol):
    """A call as it stands on the log."""

    @property
    def seq(self) -> int:
        """Its place."""

    @property
    def subject(self) -> str:
        """Where it was published; it ends in the job's id."""

    @property
    def payload(self) -> bytes:
        """Its bytes."""


R = TypeVar("R", bound=Announcement)


class Call(Struct, Generic[R], kw_only=True, eq=False):
    """One call that this worker may come to answer."""

    record: R
    need: Need
    priority: Priority
    since_s: float
    """From when on the ranks count."""
    is_repeated: bool = False
    """Whether the log was read before it: it is not the job's first call."""
    deliveries: int = 0
    """How often it was handed out here, and once more where the log was read before."""
    was_put_off: bool = False
    rank: int = 0
    """How many others with a free slot stand before this worker."""
    place: int = 0
    """The same of all others, busy or not."""
    chance: float = 0.0

    def due_s(self, window_ms: int) -> float:
        """When it is this worker's turn."""
        wait_s = selection.wait_s(self.rank, window_ms=window_ms, chance=self.chance)
        return self.since_s + wait_s


class Aside(Struct):
    """A call that is left alone until `look_s`."""

    seq: int
    look_s: float
    holder: str = ""
    """Who is said to have it; empty if nobody is."""
    at_ms: int = 0
    is_over: bool = False
    """Said to have ended: kept only so that a late record of its call does not revive it."""


class Instant(NamedTuple):
    """When something happens, with what a decision about it takes."""

    now_s: float
    window_ms: int
    """The length of a claim window."""
    chance: float = 0.0
    """From 0 to 1, for jitter."""

    @property
    def window_s(self) -> float:
        """The same in seconds."""
        return self.window_ms / 1000


class Said(NamedTuple):
    """Whose word it is, and of when."""

    at_ms: int
    node: str


class Changed(Flag):
    """What became different, and so who has to look again."""

    NOTHING = 0
    WAITING = auto()
    """Some call may be due."""
    ROOM = auto()
    """There may be room for more."""
    ASIDE = auto()
    """Something may have to be looked up sooner than before."""


class Step(Enum):
    """What to do about a call that was found."""

    NOTHING = "nothing"
    READ = "read"
    """Read the job's lane, and tell `found` what it says."""


class RendezvousTurns(Generic[R]):
    """The calls of one kind, in the order of draws."""

    def __init__(
        self,
        me: Candidate,
        places: Callable[[Need], tuple[int, int]],
        *,
        loan_s: float = LOAN_S,
        is_silent: bool = False,
    ) -> None:
        """`places` tells a call's rank and place; whoever is silent takes part in no ranks."""
        self._me = me
        self._places = places
        self._loan_s = loan_s
        self._is_silent = is_silent
        self._waiting: dict[str, Call[R]] = {}
        self._waiting_bytes = 0
        self._out: dict[str, Call[R]] = {}
        self._aside: dict[str, Aside] = {}
        self._ranked_at = dict.fromkeys(PRIORITIES, -1)
        self._changed = Changed.NOTHING

    def changes(self) -> Changed:
        """What became different since this was last asked."""
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
        """The call of this priority to hand out now, or how long until the next one's time comes.

        Ranks are worked out anew when `revision` moved. Who `is_barred` would be refused by the
        log, and holds nobody up who would not be.
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
        """It is in the worker's hands until it is settled."""
        self._take_out(call.need.job_id)
        self._out[call.need.job_id] = call
        call.deliveries += 1

    def settle(self, call: Call[R], delay_s: float | None, at: Instant) -> None:
        """It was done with (None), or given back for so long."""
        job_id = call.need.job_id
        if self._out.get(job_id) is call:
            del self._out[job_id]
        if delay_s is None or self._is_silent:
            return
        if delay_s > SOON_S:
            self._lay_aside(job_id, Aside(call.record.seq, at.now_s + delay_s))
            return
        call.since_s = at.now_s + delay_s
        call.is_repeated = True
        self._wait(call, at)

    # --- what is found on the log -------------------------------------------------------------

    def met(self, record: R, op: Op | None, at: Instant, *, is_known: bool = False) -> Step:
        """A record was met where calls are; one that is not its job's first call is read about.

        `is_known`: more happened to the job than this record shows.
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
        """The lane of a call's job was read: what it says replaces what was known before."""
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
                return  # in good hands, or the engine's queue has it; else somebody points again
            look_s = at.now_s + after_s + at.chance * SOON_S
            self._lay_aside(job_id, Aside(record.seq, look_s))
            return
        call = Call(record=record, need=need, priority=job.priority, since_s=at.now_s + after_s)
        call.is_repeated, call.deliveries = True, 1
        self._wait(call, at)

    def look_at(self, seq: int, job_id: str, look_s: float) -> None:
        """Look up what stands at this sequence, at this time."""
        if job_id not in self._out and job_id not in self._waiting:
            self._lay_aside(job_id, Aside(seq, look_s))

    def due(self, now_s: float) -> list[str]:
        """The jobs that lie aside, and whose time has come."""
        return [job_id for job_id, aside in self._aside.items() if aside.look_s <= now_s]

    def take_up(self, job_id: str) -> int | None:
        """Where to read about a job that lay aside; None if there is nothing to read any more."""
        aside = self._aside.pop(job_id, None)
        return None if aside is None or aside.is_over else aside.seq

    def next_look_s(self) -> float | None:
        """When the next job's time comes; None if nothing lies aside."""
        return min((aside.look_s for aside in self._aside.values()), default=None)

    # --- what others say ----------------------------------------------------------------------

    def hear_taken(self, job_id: str, seq: int, said: Said, at: Instant) -> None:
        """Somebody has decided for a job, or still holds it."""
        if job_id in self._out:
            return
        waiting = self._waiting.get(job_id)
        if waiting is not None and waiting.is_repeated:
            if not waiting.was_put_off:  # once: a liar would say it again and again
                waiting.was_put_off = True
                waiting.since_s = max(waiting.since_s, at.now_s + at.window_s)
            return
        aside = self._aside.get(job_id)
        until_s = at.now_s + self._loan_s * (1 + at.chance / 4)
        if aside is None or waiting is not None:
            self._take_out(job_id)
            self._lay_aside(job_id, Aside(seq, until_s, said.node, said.at_ms))
        elif not aside.is_over and aside.holder == said.node:
            aside.look_s = until_s
        elif aside.holder and selection.is_earlier(said, (aside.at_ms, aside.holder)):
            aside.holder, aside.at_ms = said.node, said.at_ms

    def hear_ended(self, job_id: str, seq: int, said: Said, at: Instant) -> None:
        """Somebody has read a job's end."""
        waiting = self._waiting.get(job_id)
        if job_id in self._out or (waiting is not None and waiting.is_repeated):
            return
        aside = self._aside.get(job_id)
        if aside is not None and aside.holder not in ("", said.node):
            return
        self._take_out(job_id)
        until_s = at.now_s + self._loan_s
        self._lay_aside(job_id, Aside(seq, until_s, said.node, said.at_ms, is_over=True))

    def hear_returned(self, job_id: str, after_s: float, said: Said, at: Instant) -> None:
        """Somebody lets go of a job, which nobody should look at for so long."""
        aside = self._aside.get(job_id)
        if aside is not None and aside.holder == said.node and not aside.is_over:
            aside.holder = ""
            aside.look_s = at.now_s + min(after_s, LONGEST_S)
            self._changed |= Changed.ASIDE

    def hear_pointer(self, job_id: str, seq: int, at: Instant) -> None:
        """Somebody points to a call; the silent know of nobody, so each looks when chance says."""
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

    def _lay_aside(self, job_id: str, aside: Aside) -> None:
        self._aside.pop(job_id, None)
        if len(self._aside) >= MAX_ASIDE:
            del self._aside[next(iter(self._aside))]
        self._aside[job_id] = aside
        self._changed |= Changed.ASIDE
