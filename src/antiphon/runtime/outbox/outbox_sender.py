"""Sends what waits in an outbox: in order, each once, and each with its end written down.

Before an item is sent for the first time, its file says so. After a crash the next sender finds
that out, and looks at the mesh before it sends. Where looking cannot tell, because the lane was
archived or the inbox has forgotten, it asks a person.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core import lane_archive
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.messages.register import DONE_MS
from antiphon.errors import AntiphonError, EngineDenied, LostRace, Rejected, Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.outbox.outbox_item import OutboxItem, Send, Submit, ranked

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.messages.envelope import MessageBody
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.outbox.outbox_store import OutboxStore

OLDEST_MS: Final = 30 * 24 * 3600_000
"""What waited longer is not sent any more."""
FORGOTTEN_MS: Final = DONE_MS - 60_000
"""How long after it was sent a message is surely still recognized as the same."""

Deliver = Callable[["MessageBody"], Awaitable[None]]
"""Signs a message now, and puts it into its inbox."""
Archived = Callable[[str, str], Awaitable[bool]]
"""Whether an archive of this machine shows that a job, by kind and id, was on the log."""


class OutboxSender:
    """Sends the outbox of one state directory with one session."""

    def __init__(
        self, store: OutboxStore, session: Session, *, deliver: Deliver, archived: Archived
    ) -> None:
        """Nothing is sent before `send`."""
        self._store = store
        self._session = session
        self._deliver = deliver
        self._archived = archived

    async def send(self) -> list[OutboxItem]:
        """Send what waits; the items that ended by it. The store's lock must be held.

        `Unavailable` if the mesh cannot be reached: what is left waits on.
        """
        items = self._store.items()
        tentative = [one for one in items if one.is_tentative]
        twice = {one.op_id for one in ranked(tentative).equivocal}
        lost = {one.job() for one in items if one.state == "dropped"}
        unsettled: set[tuple[str, str] | None] = set()
        ended: list[OutboxItem] = []
        for item in tentative:
            if item.needs() & lost:
                after = replace(item, state="dropped", why="a job that it waits for was dropped")
            elif item.needs() & unsettled:
                after = item  # it waits for that one
            elif item.id in twice:
                after = replace(item, state="dropped", why=_ONE_TIMESTAMP)
            elif item.state == "asks" or not item.may_be_sent_by(self._session.author.did):
                after = item
            else:
                after = await self._settle(item)
            if after.state != item.state:
                self._store.update(after)
            if after.is_tentative:
                unsettled.add(after.job())
                continue
            ended.append(after)
            if after.state == "dropped":
                lost.add(after.job())
        self._store.prune()
        return ended

    async def _settle(self, item: OutboxItem) -> OutboxItem:
        """Send one item; what became of it."""
        if self._session.wall.now_ms() - item.at_ms > OLDEST_MS:
            return replace(item, state="dropped", why="it waited for more than 30 days")
        try:
            match item.what:
                case Submit(body=body):
                    return await self._submit(item, body)
                case Send():
                    return await self._put(item, item.what)
        except Rejected as refused:
            return replace(item, state="dropped", why=refused.message)
        except LostRace as lost:
            raise Unavailable(lost.message, hint=lost.hint) from lost
        except AntiphonError as problem:
            if isinstance(problem, Unavailable) and not isinstance(problem, EngineDenied):
                raise
            return replace(item, state="asks", why=problem.message)

    def _marked(self, item: OutboxItem) -> OutboxItem:
        """The item as it is from now on: it may have been sent. That is on disk first."""
        if item.sent_ms:
            return item
        marked = replace(item, sent_ms=self._session.author.now().wall_ms)
        self._store.update(marked)
        return marked

    # --- submits ------------------------------------------------------------------------------

    async def _submit(self, item: OutboxItem, body: ScheduleBody) -> OutboxItem:
        if item.sent_ms and await self._may_be_archived(item, body):
            if await self._archived(body.kind, item.what.name):
                return replace(item, state="held")
            return replace(item, state="asks", why=_MAYBE_ARCHIVED)
        item = self._marked(item)
        found = await submission.submit(self._session, body)
        return replace(item, state="held", seq=found.seq)

    async def _may_be_archived(self, item: OutboxItem, body: ScheduleBody) -> bool:
        """Whether a form that was sent may have been accepted, ended and archived since."""
        view = await self._session.read_lane(body.kind, item.what.name)
        if view.lane.job is not None:
            return False
        control = await self._session.sync_control()
        sent = replace(self._session.compose(JobSchedule, body, prev=0), hlc=(item.sent_ms, 0))
        return lane_archive.is_too_old(JOBS, control, sent)

    # --- messages -----------------------------------------------------------------------------

    async def _put(self, item: OutboxItem, what: Send) -> OutboxItem:
        now_ms, body = self._session.wall.now_ms(), what.body
        if item.sent_ms and now_ms - item.sent_ms > FORGOTTEN_MS:
            return replace(item, state="asks", why=_MAYBE_READ)
        if body.ttl_ms:
            left_ms = body.ttl_ms - (now_ms - item.at_ms)
            if left_ms <= 0:
                return replace(item, state="dropped", why="its time was over before it was sent")
            body = replace(body, ttl_ms=left_ms)
        item = self._marked(item)
        await self._deliver(body)
        return replace(item, state="held")


_ONE_TIMESTAMP: Final = (
    "another item has the same timestamp: was the state directory copied, or restored?"
)
_MAYBE_ARCHIVED: Final = (
    "it was sent and no answer came; since then its lane may have been archived, so nobody can tell"
    " here whether it ran"
)
_MAYBE_READ: Final = (
    "it was sent and no answer came; by now its receiver may have read it and forgotten that"
)
