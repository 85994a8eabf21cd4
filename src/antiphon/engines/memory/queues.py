"""The server's side of a work queue: who holds which announcement, and until when.

As JetStream does it: the queue walks the log once and lends each matching record to one member
that has room. A loan ends by an ack (for good), by a nak or by its time, and then the record is
lent again before anything newer. **Nothing is fenced**: an ack, nak or sign of life counts for
the record, from whichever delivery it came and however stale that is (spec §8).

One timer per queue, and none while nothing is lent: an idle queue costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from antiphon.engines.memory.filters import SubjectFilter
from antiphon.engines.memory.log import LogStore
from antiphon.ports import Record


class Member(Protocol):
    """One worker's end of a queue."""

    room: int
    """Deliveries that it may still be given; the queue counts it down."""

    def receive(self, record: Record, deliveries: int) -> None:
        """Take a delivery. Must not wait and must not fail."""


class Loan:
    """One record that was handed out and is not settled."""

    __slots__ = ("deliveries", "due", "is_lent", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.deliveries = 0
        self.due = 0.0
        """Loop time: the end of the loan, or of the wait after a nak."""
        self.is_lent = False


class QueueStore:
    """One named queue over one filter, from the first record of the log on."""

    def __init__(
        self,
        wanted: SubjectFilter,
        *,
        log: LogStore,
        loan_s: float,
        is_up: Callable[[], bool],
    ) -> None:
        self.wanted = wanted
        self.loan_s = loan_s
        self._log = log
        self._is_up = is_up
        self._cursor = 0
        self._unsettled: dict[int, Loan] = {}
        self._lent: OrderedDict[int, Loan] = OrderedDict()
        """In order of `due`: all loans are equally long and a renewed one goes to the end."""
        self._again: deque[int] = deque()
        self._parked: list[tuple[float, int]] = []
        self._members: set[Member] = set()
        self._waiting: deque[Member] = deque()
        """Members that asked, each once, taking turns."""
        self._in_line: set[Member] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    # --- members ----------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Connect a member; it gets something as soon as it has room."""
        self._members.add(member)
        self.ask(member)

    def leave(self, member: Member) -> None:
        """Disconnect a member. What it holds stays lent until it is settled or due."""
        self._members.discard(member)
        if member in self._in_line:
            self._in_line.discard(member)
            self._waiting.remove(member)

    def ask(self, member: Member) -> None:
        """A member's room has changed."""
        if member.room > 0 and member in self._members:
            if member not in self._in_line:
                self._in_line.add(member)
                self._waiting.append(member)
            self.hand_out()

    def hand_out(self) -> None:
        """Lend as much as there is room for."""
        waiting = self._waiting
        if not waiting or not self._is_up():
            return
        now = asyncio.get_running_loop().time()
        while waiting:
            member = waiting[0]
            if member.room <= 0:
                self._in_line.discard(waiting.popleft())
                continue
            record = self._next_again() or self._next_new()
            if record is None:
                break
            member.room -= 1
            waiting.rotate(-1)
            loan = self._lend(record.seq, now)
            member.receive(record, loan.deliveries)
        self._arm()

    # --- settling ---------------------------------------------------------------------------

    def ack(self, seq: int) -> None:
        """Never hand it out again."""
        if self._unsettled.pop(seq, None) is not None:
            self._lent.pop(seq, None)

    def nak(self, seq: int, delay_s: float) -> None:
        """Hand it out again, at once or later."""
        loan = self._unsettled.get(seq)
        if loan is None:
            return
        if delay_s > 0:
            loan.is_lent = False
            self._lent.pop(seq, None)
            loan.due = asyncio.get_running_loop().time() + delay_s
            heappush(self._parked, (loan.due, seq))
            self._arm()
        elif loan.is_lent or loan.due:
            self._put_back(loan)
            self.hand_out()

    def in_progress(self, seq: int) -> None:
        """The loan starts again."""
        loan = self._lent.get(seq)
        if loan is not None:
            loan.due = asyncio.get_running_loop().time() + self.loan_s
            self._lent.move_to_end(seq)

    # --- restoring --------------------------------------------------------------------------

    def image(self) -> tuple[int, list[tuple[int, int]]]:
        """What would be on disk: how far it walked, and the unsettled records with their counts."""
        return self._cursor, [(loan.seq, loan.deliveries) for loan in self._unsettled.values()]

    def load(self, image: tuple[int, list[tuple[int, int]]]) -> None:
        """Restore an image; everything unsettled is due."""
        self._cursor, unsettled = image
        self._unsettled.clear()
        self._lent.clear()
        self._again.clear()
        self._parked.clear()
        for seq, deliveries in unsettled:
            loan = self._unsettled[seq] = Loan(seq)
            loan.deliveries = deliveries
            self._again.append(seq)

    def shorten(self) -> None:
        """The log lost its end: forget what is no longer in it."""
        last = self._log.last_seq
        self._cursor = min(self._cursor, last)
        for seq in [seq for seq in self._unsettled if seq > last]:
            self.ack(seq)

    # --- inside -----------------------------------------------------------------------------

    def _next_again(self) -> Record | None:
        while self._again:
            seq = self._again.popleft()
            loan = self._unsettled.get(seq)
            if loan is None or loan.is_lent or loan.due:
                continue  # settled, handed out or parked since it was put here
            record = self._log.at(seq)
            if record is not None:
                return record
            del self._unsettled[seq]  # purged
        return None

    def _next_new(self) -> Record | None:
        record, self._cursor = self._log.next_after(self.wanted, self._cursor)
        return record

    def _lend(self, seq: int, now: float) -> Loan:
        loan = self._unsettled.get(seq)
        if loan is None:
            loan = self._unsettled[seq] = Loan(seq)
        loan.deliveries += 1
        loan.due = now + self.loan_s
        loan.is_lent = True
        self._lent[seq] = loan
        return loan

    def _put_back(self, loan: Loan) -> None:
        self._lent.pop(loan.seq, None)
        loan.is_lent = False
        loan.due = 0.0
        self._again.append(loan.seq)

    def _arm(self) -> None:
        due = min(
            next(iter(self._lent.values())).due if self._lent else float("inf"),
            self._parked[0][0] if self._parked else float("inf"),
        )
        if due == float("inf") or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due  # uvloop's timers do not say when they are due
        self._timer = asyncio.get_running_loop().call_at(due, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._lent:
            loan = next(iter(self._lent.values()))
            if loan.due > now:
                break
            self._put_back(loan)
        while self._parked and self._parked[0][0] <= now:
            due, seq = heappop(self._parked)
            parked = self._unsettled.get(seq)
            if parked is not None and not parked.is_lent and parked.due == due:
                self._put_back(parked)
        self.hand_out()
        self._arm()
