"""Announcements as a rendezvous hands them out, and what a new worker finds on the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobCancel, JobComplete
from antiphon.core.policy import selection
from antiphon.core.policy.selection import Need
from antiphon.core.record import subjects
from antiphon.decoding import UNREADABLE

if TYPE_CHECKING:
    from antiphon.core.policy.rendezvous_turns import Call
    from antiphon.ports import Record
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

CATCH_UP: Final = 10_000
"""Sequences before the newest among which a new worker looks for what is pending."""
_PAGE: Final = 1_024
_REQUIRES: Final = b'"requires"'
_ENDS: Final = frozenset({JobComplete.type_name(), JobCancel.type_name()})


class AnnouncementDelivery:
    """`ports.Delivery` of a rendezvous: the other workers are told what becomes of it.

    It never expires: it is lent within one process, and ends with it.
    """

    __slots__ = ("_hold", "_is_settled", "_settle", "call")

    def __init__(
        self,
        call: Call[Record],
        settle: Callable[[Call[Record], float | None], None],
        hold: Callable[[Call[Record]], None],
    ) -> None:
        """`settle` receives None for an acknowledgement, else the delay in seconds."""
        self.call = call
        self._settle = settle
        self._hold = hold
        self._is_settled = False

    @property
    def record(self) -> Record:
        """The schedule or offer that announced the job."""
        return self.call.record

    @property
    def deliveries(self) -> int:
        """How often it was handed out here, plus one if the log was read before."""
        return self.call.deliveries

    def ack(self) -> None:
        """Never hand it out again."""
        if not self._is_settled:
            self._is_settled = True
            self._settle(self.call, None)

    def nak(self, delay_s: float = 0.0) -> None:
        """Hand it out again, not before `delay_s`."""
        if not self._is_settled:
            self._is_settled = True
            self._settle(self.call, delay_s)

    def in_progress(self) -> None:
        """Tell the others again that it is taken."""
        if not self._is_settled:
            self._hold(self.call)


class RecentActivity(Struct, frozen=True):
    """The recent activity on a kind's jobs, unverified: by job, the type of its newest op.

    It only says which old announcements are worth reading. A node that writes a false end hides
    a job until it is offered again.
    """

    after: int
    upto: int
    last: dict[str, str]

    def is_known(self, call: Record) -> bool:
        """Whether more happened to the announced job than this record shows."""
        return call.seq <= self.upto and call.subject[-64:] in self.last

    def is_over(self, call: Record) -> bool:
        """Whether the announced job seems to have ended."""
        return call.seq <= self.upto and self.last.get(call.subject[-64:]) in _ENDS


class _Typed(Struct):
    type: str


_peek = msgspec.json.Decoder(_Typed).decode


async def recent_activity(session: Session, kind: str) -> RecentActivity:
    """Look through the newest `CATCH_UP` sequences of the log."""
    newest = await session.log.last()
    upto = newest.seq if newest is not None else 0
    after = max(0, upto - CATCH_UP)
    last: dict[str, str] = {}
    subject = f"{subjects.root(session.mesh)}.jobs.job.{kind}.*"
    async for record in _between(session, subject, after, upto):
        try:
            op_type = _peek(record.payload.partition(b"\n")[0]).type
        except UNREADABLE:
            continue
        last[record.subject[-64:]] = op_type
    return RecentActivity(after, upto, last)


async def requiring_labels(session: Session, kind: str, lately: RecentActivity) -> list[Record]:
    """Announcements in the same range that require labels and seem not to have ended."""
    subject = f"{subjects.root(session.mesh)}.jobs.*.{kind}.*"
    return [
        record
        async for record in _between(session, subject, lately.after, lately.upto)
        if _REQUIRES in record.payload
        and job_subjects.is_call(record.subject)
        and not lately.is_over(record)
    ]


async def _between(session: Session, subject: str, after: int, upto: int) -> AsyncIterator[Record]:
    while True:
        page = await session.log.read(after, limit=_PAGE, subject=subject)
        for record in page.records:
            if record.seq <= upto:
                yield record
        if not page.more or not page.records or page.records[-1].seq >= upto:
            return
        after = page.records[-1].seq


def need_of(view: JobView) -> Need | None:
    """Which workers should claim a judged lane's job; None if the lane has no job."""
    job, submitted_with, call = view.lane.job, view.submitted_with, view.first
    if job is None or submitted_with is None or call is None:
        return None
    return Need(
        kind=job.kind,
        job_id=job.id,
        seed=selection.seed_of(call.payload),
        requires=submitted_with.requires,
        cooling=job.cooling,
    )
