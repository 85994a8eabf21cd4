"""Writes in turns: what one node has to write now goes to the log together.

Every intent is written as `writer` writes it, with its own compare-and-set, verdict and result.
What a turn shares is the work around that: one signature over many ops, one request that carries
them, one read that brings all of them back, one confirmation of control.

A turn takes what is there and waits for nothing: at rest an intent goes at once, alone, and by the
path of a single write if a task waits for it. While a few turns are under way, or one that is
larger, intents gather for the next: the jobs of a large turn go on one after the other, and belong
together again.

Whatever does not go as hoped is left to whoever wanted it: an answer that is missing, a race that
was lost, a read that failed. That continues alone, from where its op stands, so no intent waits for
the trouble of another, and no record's fate is guessed from another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.opened_record import placed
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.ports import APPENDS_AT_ONCE, LANES_AT_ONCE
from antiphon.runtime.log.writer import (
    NOT_BEGUN,
    Begun,
    Intent,
    Policy,
    Written,
    in_place,
    own_record,
    send_together,
    sign_together,
    whole_lane,
    write_one,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.family import Lane
    from antiphon.core.record.branches import LaneKey
    from antiphon.core.record.op import Op
    from antiphon.ports import Record
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.session import Session

UNDER_WAY: Final = 3
"""Turns that may be under way before intents gather."""
TOGETHER: Final = min(APPENDS_AT_ONCE, LANES_AT_ONCE)
"""Intents of one turn: as many as one read brings back."""
LOOKS: Final = 3
"""How often a turn looks for what was stored: of a log's copies some are a moment behind."""
LOOK_AGAIN_S: Final = 0.003
"""The pause before it looks again, twice as long each time."""
SAMPLE_EVERY: Final = 16
"""Of so many own ops of a type that are believed, at least one is read as a stranger's."""
SLOW_S: Final = 0.5
"""A turn that takes longer than this holds up no others: its answers may be lost."""


Told = Callable[[Begun | None], None]
"""Told how far a turn has brought an intent, which goes on from there; None: the session ends.
Called once, in the event loop. It must not wait, and must not raise."""


class _Waiting(Struct, eq=False):
    """An intent, and who wants to know."""

    intent: Intent
    policy: Policy
    told: Told
    draft: Draft | None = None
    seq: int = 0
    waiter: asyncio.Future[Begun] | None = None
    """What a task waits for, if one does; done before it was told, its task was cancelled."""
    is_told: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_told or (self.waiter is not None and self.waiter.done())

    def goes_on(self, begun: Begun | None) -> None:
        if not self.is_over:
            self.is_told = True
            self.told(begun)


class _Samples:
    """Of a turn's ops that are sure, one of each type is read back as a stranger's.

    Whoever does not check what it writes itself believes its own mistakes. So if that one is
    rejected, for whatever reason, all others of its type are read as strangers' as well, and so is
    the first of the next turn. `unread` counts by type what was believed since; small turns share
    a sample.
    """

    def __init__(
        self, session: Session, stored: list[_Waiting], unread: dict[type[Op], int]
    ) -> None:
        self._session = session
        self._unread = unread
        self._sure = [one for one in stored if one.policy.is_sure]
        self._doubted: set[int] = set()
        first: dict[type[Op], _Waiting] = {}
        for one in self._sure:
            op = one.intent.op
            first.setdefault(op, one)
            unread[op] = unread.get(op, SAMPLE_EVERY) + 1
        for op, one in first.items():
            if unread[op] >= SAMPLE_EVERY:
                unread[op] = 0
                self._doubt(one)

    def _doubt(self, one: _Waiting) -> None:
        if one.draft is not None:
            self._doubted.add(one.seq)
            self._session.forget_own(one.seq)

    def is_believed(self, one: _Waiting) -> bool:
        """Whether its bytes need not be read."""
        return one.seq not in self._doubted

    def judged(self, one: _Waiting, verdict: Verdict) -> None:
        """Told of every verdict."""
        if verdict is not Verdict.OK and not self.is_believed(one):
            self._unread[one.intent.op] = SAMPLE_EVERY
            for other in self._sure:
                if other.intent.op is one.intent.op and self.is_believed(other):
                    self._doubt(other)


class WriteTurns:
    """The turns of one session. `spawn` starts a task that belongs to the session's owner."""

    def __init__(self, session: Session, spawn: Callable[..., asyncio.Task[None]]) -> None:
        """Nothing is written yet."""
        self._session = session
        self._spawn = spawn
        self._waiting: list[_Waiting] = []
        self._turns: dict[object, tuple[float, int]] = {}
        """The turns under way: since when, and how many intents each has."""
        self._unread: dict[type[Op], int] = {}
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def write_one(self, intent: Intent, policy: Policy) -> Written:
        """Write one intent to the log, together with what others write now; see `writer`."""
        waiter: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()

        def told(begun: Begun | None) -> None:
            if begun is None:
                waiter.cancel()
            else:
                waiter.set_result(begun)

        self._add(_Waiting(intent, policy, told, waiter=waiter))
        try:
            begun = await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # told in the same moment
                self._end(waiter.result().turn)
            raise
        return await self.go_on(intent, policy, begun)

    def begin(self, intent: Intent, policy: Policy, told: Told) -> None:
        """Write one intent in the next turn, and tell how far that came; then `go_on` with it."""
        self._add(_Waiting(intent, policy, told))

    def _add(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._soon is None:
            # Whoever was woken in the same moment gets to say what it wants to write, too.
            self._soon = asyncio.get_running_loop().call_soon(self._next)

    def flush(self) -> None:
        """Begin a turn at once, if none is under way: nobody else is about to say anything."""
        if self._soon is not None and not self._turns:
            self._soon.cancel()
            self._next()

    async def go_on(self, intent: Intent, policy: Policy, begun: Begun) -> Written:
        """The rest of what a turn has begun: nothing, where it went as hoped."""
        try:
            if (written := begun.written) is not None and not policy.insists:
                return written.check()
            return await write_one(self._session, intent, policy, begun)
        finally:
            self._end(begun.turn)

    # --- when a turn begins -----------------------------------------------------------------

    def _next(self) -> None:
        """Begin turns, as many as may be under way."""
        self._soon = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while self._waiting:
            late_s = now_s - SLOW_S
            current = [one for one in self._turns.values() if one[0] > late_s]
            largest = max((size for _, size in current), default=0)
            if len(current) >= UNDER_WAY or len(self._waiting) < largest:
                self._timer = loop.call_at(min(current)[0] + SLOW_S, self._next)
                return
            taken, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            taken = [one for one in taken if not one.is_over]
            if not taken:
                continue
            turn = object()
            self._turns[turn] = (now_s, len(taken))
            if len(taken) == 1 and taken[0].waiter is not None:
                taken[0].goes_on(Begun(turn=turn))
            else:
                self._start(turn, taken)

    def _start(self, turn: object, taken: list[_Waiting]) -> None:
        work = self._carry_out(turn, taken)
        try:
            self._spawn(work)
        except RuntimeError:  # the owner is shutting down, and starts nothing any more
            work.close()
            self._turns.pop(turn)
            for one in taken:
                one.goes_on(NOT_BEGUN)

    def _end(self, turn: object | None) -> None:
        if self._turns.pop(turn, None) is not None and self._waiting and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._next)

    # --- one turn ---------------------------------------------------------------------------

    async def _carry_out(self, turn: object, taken: list[_Waiting]) -> None:
        try:
            await self._write(taken)
        except AntiphonError:
            pass  # each goes on alone, and meets the problem itself if it is still there
        except asyncio.CancelledError:
            for one in taken:
                one.goes_on(None)
            raise
        finally:
            self._end(turn)
            for one in taken:
                one.goes_on(Begun(draft=one.draft, seq=one.seq))

    async def _write(self, taken: list[_Waiting]) -> None:
        session = self._session
        signed = sign_together(session, [(one.intent, one.policy) for one in taken])
        for one, begun in zip(taken, signed, strict=True):
            one.draft = begun.draft
            if begun.draft is None:
                one.goes_on(begun)
        drafted = [one for one in taken if one.draft is not None]
        if not drafted:
            return
        timeout_s = min(one.policy.timeout_s for one in drafted)
        drafts = [one.draft for one in drafted if one.draft is not None]
        sent = await send_together(session, drafts, timeout_s=timeout_s)
        stored: list[_Waiting] = []
        for one, begun in zip(drafted, sent, strict=True):
            if begun.told is None:
                one.seq = begun.seq
                stored.append(one)
            else:
                one.goes_on(begun)
        await self._read_back(stored)

    # --- reading back -----------------------------------------------------------------------

    async def _read_back(self, stored: list[_Waiting]) -> None:
        """Read what was stored, in two reads however many there are; judge each at its place."""
        own = [one for one in stored if one.policy.look is own_record]
        whole = [one for one in stored if one.policy.look in _WHOLE]
        for one in stored:
            if one not in own and one not in whole:
                one.goes_on(Begun(draft=one.draft, seq=one.seq))
        if stored:
            self._session.confirm_soon(max(one.seq for one in stored))
        samples = _Samples(self._session, stored, self._unread)
        if not own or not whole:
            await asyncio.sleep(0)  # control is asked for first, and known when this is judged
            await self._read_own(own, samples)
            await self._read_whole(whole, samples)
            return
        reads = (self._read_own(own, samples), self._read_whole(whole, samples))
        for problem in await asyncio.gather(*reads, return_exceptions=True):
            if problem is not None:
                raise problem

    async def _read_own(self, stored: list[_Waiting], samples: _Samples) -> None:
        """Judge ends and renewals on the lanes that they were written for."""
        if not stored:
            return
        session, left = self._session, stored
        for look in range(LOOKS):
            await _pause(look)
            subjects = [one.draft.subject for one in left if one.draft is not None]
            found = {record.subject: record for record in await session.log.newest(subjects)}
            await session.confirm(max(one.seq for one in left))
            missed: list[_Waiting] = []
            for one in left:
                record = found.get(one.draft.subject) if one.draft is not None else None
                if record is None or record.seq < one.seq:
                    missed.append(one)
                elif record.seq == one.seq and one.intent.lane is not None:
                    await self._judge_own(one, record, one.intent.lane, samples)
            if not missed:
                return
            left = missed

    async def _judge_own(
        self, one: _Waiting, record: Record, lane: Lane, samples: _Samples
    ) -> None:
        draft = one.draft
        if draft is None:
            return
        try:
            if record.payload == draft.payload and samples.is_believed(one):
                opened = placed(draft.opened, record.seq, record.commit_ms)
            else:
                opened = self._session.open(record)
            outcome = await self._session.judge(opened, lane)
        except AntiphonError:
            return
        samples.judged(one, outcome.verdict)
        written = Written(one.intent, one.seq, verdict=outcome.verdict, lane=outcome.lane)
        one.goes_on(Begun(written=written))

    async def _read_whole(self, stored: list[_Waiting], samples: _Samples) -> None:
        """Judge claims on their whole lanes: nothing runs on an assumption (decision 0006)."""
        placed = {
            one.draft.opened.place.key: one
            for one in stored
            if one.draft is not None and one.draft.opened.place is not None
        }
        if not placed:
            return
        wanted = {key: one.seq for key, one in placed.items()}
        for look in range(LOOKS):
            await _pause(look)
            missed: dict[LaneKey, int] = {}
            async for key, view in self._session.lanes.read_each(wanted):
                one = placed[key]
                if one.draft is None or view is None:
                    missed[key] = one.seq  # a long lane, or a copy that is behind
                    continue
                # A reader forgets some of the rejected records, and none of the accepted ones.
                verdict = view.verdict_of(one.draft.op_id) or Verdict.MALFORMED
                samples.judged(one, verdict)
                written = Written(one.intent, one.seq, verdict=verdict, lane=view.lane, view=view)
                one.goes_on(Begun(written=written))
            if not missed:
                return
            wanted = missed


async def _pause(look: int) -> None:
    if look:
        await asyncio.sleep(LOOK_AGAIN_S * 2 ** (look - 1))


_WHOLE: Final[Sequence[object]] = (in_place, whole_lane)
"""Ways to read back that are a read of the whole lane, for an op on a lane."""
