"""Sends what waits in an outbox: in order, each once, and each with its end written down.

Before an item is sent for the first time, its file says so. After a crash the next sender finds
that out, and looks at the mesh before it sends. Where looking cannot tell, because the lane was
archived or the inbox has forgotten, it asks a person. The blobs that an item names go before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core import lane_archive
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.messages.register import DONE_MS
from antiphon.core.record.verdict import ABOUT_TIME
from antiphon.errors import (
    AntiphonError,
    EngineDenied,
    Forked,
    InboxFull,
    LogReplaced,
    LostRace,
    Outdated,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.runtime.caller import submission
from antiphon.runtime.outbox.lane_writes import MAYBE_ARCHIVED, LaneWriter
from antiphon.runtime.outbox.outbox_item import (
    Artifact,
    Complete,
    OfJob,
    OutboxItem,
    Put,
    Release,
    Send,
    Store,
    Submit,
    Yield,
    ranked,
)
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.messages.envelope import MessageBody
    from antiphon.ports import Blobs
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.outbox.outbox_item import Part
    from antiphon.runtime.outbox.outbox_store import OutboxStore

OLDEST_MS: Final = 30 * 24 * 3600_000
"""What waited longer is not sent any more."""
FORGOTTEN_MS: Final = DONE_MS - 60_000
"""How long after it was sent a message is surely still recognized as the same."""

OF_SESSION: Final = (LogReplaced, Outdated, Forked)
"""Errors of the whole session: trying again with it changes nothing."""

log = LazyLogger(__name__)

Deliver = Callable[["MessageBody"], Awaitable[None]]
"""Signs a message now, and puts it into its inbox."""
Archived = Callable[[str, str], Awaitable[bool]]
"""Whether an archive of this machine shows that a job, by kind and id, was on the log."""


class OutboxSender:
    """Sends the outbox of one state directory with one session."""

    def __init__(
        self,
        store: OutboxStore,
        session: Session,
        *,
        deliver: Deliver,
        archived: Archived,
        takes: Callable[[OutboxItem], bool] = lambda _: True,
        blobs: Blobs | None = None,
    ) -> None:
        """Nothing is sent before `send`. `takes` says which items are this sender's to send.

        `blobs` is where artifacts are stored; None: with the engine.
        """
        self.ended: Callable[[OutboxItem], None] = lambda _: None
        """Called with each item that is held or dropped now; soon its file may be gone."""
        self._takes = takes
        self._blobs = blobs or session.engine.blobs
        self._store = store
        self._session = session
        self._deliver = deliver
        self._archived = archived
        self._full: set[str] = set()
        """Receivers that had no room in this pass: later messages to them do not overtake."""
        self._is_limited = False
        """Whether this sender may send no more messages for now."""

    async def send(self) -> list[OutboxItem]:
        """Send what waits; the items that ended by it. The store's lock must be held.

        `Unavailable` if the mesh cannot be reached, one of `OF_SESSION` if nothing more can be sent
        with this session: what is left waits on.
        """
        self._full, self._is_limited = set(), False
        items = self._store.items()
        tentative = [one for one in items if one.is_tentative]
        twice = {one.op_id for one in ranked(tentative).equivocal}
        lost = _lost(items)
        unsettled: set[Part | None] = set()
        ended: list[OutboxItem] = []
        for item in tentative:
            if item.needs() & lost and isinstance(item.what, OfJob):
                self._store.remove(item)  # what its run made before was told as dropped
                self.ended(replace(item, state="dropped", why=RUN_DROPPED))
                continue
            if item.needs() & lost:
                after = replace(item, state="dropped", why="a job that it waits for was dropped")
            elif item.needs() & unsettled:
                after = item  # it waits for that one
            elif item.id in twice:
                after = replace(item, state="dropped", why=_ONE_TIMESTAMP)
            elif item.state == "asks" or not self._may_send(item):
                after = item
            else:
                after = await self._settle(item)
            if after.state != item.state:
                self._store.update(after)
            if after.state != "dropped" and isinstance(item.what, Submit):
                lost.discard(after.part_of())
            if after.is_tentative:
                unsettled.add(after.part_of())
                continue
            self.ended(after)
            ended.append(after)
            if after.state == "dropped":
                lost.add(after.part_of())
        self._store.prune()
        return ended

    def _may_send(self, item: OutboxItem) -> bool:
        return item.may_be_sent_by(self._session.author.did) and self._takes(item)

    async def _settle(self, item: OutboxItem) -> OutboxItem:
        """Send one item; what became of it."""
        try:
            if self._now_ms() - item.at_ms > OLDEST_MS and not item.is_confirmed:
                return await self._too_old(item)
            for digest in self._store.blobs.waiting(item):
                await self._store.blobs.send(digest, self._blobs)
            match item.what:
                case Submit(body=body):
                    return await self._submit(item, body)
                case Store(hash=digest):  # its content went before it
                    is_sent = self._store.blobs.has(digest)
                    return replace(item, **(_HELD if is_sent else _CONTENT_GONE))
                case Send():
                    return await self._put(item, item.what)
                case what:
                    return await LaneWriter(self._session, item, what, self._store.update).write()
        except Rejected as refused:
            if refused.reason in _BY_THE_CLOCK:
                raise Unavailable(refused.message, hint=refused.hint) from refused
            return replace(item, state="dropped", why=refused.message)
        except LostRace as lost:
            raise Unavailable(lost.message, hint=lost.hint) from lost
        except OF_SESSION:
            raise  # it is not about this item
        except AntiphonError as problem:
            if isinstance(problem, Unavailable) and not isinstance(problem, EngineDenied):
                raise
            return replace(item, state="asks", why=problem.message)

    def _now_ms(self) -> int:
        """The time by which items grow old: a clock that jumped ahead must not drop all of them."""
        session = self._session
        return int(min(session.wall.now_ms(), session.author.mesh_time.most_ms()))

    async def _too_old(self, item: OutboxItem) -> OutboxItem:
        """What becomes of an item that is not sent any more. What was sent before is looked for."""
        found: OutboxItem | None = None
        match item.what:
            case Submit(body=body) if item.sent_ms:
                found = await self._found(item, body)
            case Send() if item.sent_ms:
                found = item.unsure(_MAYBE_READ)
            case Put() | Release() | Artifact() | Complete() | Yield() if item.forms:
                found = await LaneWriter(self._session, item, item.what, self._store.update).find()
        return found or replace(item, state="dropped", why="it waited for more than 30 days")

    def _marked(self, item: OutboxItem) -> OutboxItem:
        """The item as it is from now on: it may have been sent. That is on disk first."""
        if item.sent_ms:
            return item
        marked = replace(item, sent_ms=self._session.author.now().wall_ms)
        self._store.update(marked)
        return marked

    # --- submits ------------------------------------------------------------------------------

    async def _submit(self, item: OutboxItem, body: ScheduleBody) -> OutboxItem:
        if item.sent_ms and (found := await self._found(item, body)) is not None:
            return found
        item = self._marked(item)
        submitted = await submission.submit(self._session, body)
        return replace(item, state="held", seq=submitted.seq)

    async def _found(self, item: OutboxItem, body: ScheduleBody) -> OutboxItem | None:
        """What became of a form that was sent; None: it was not accepted so far."""
        view = await self._session.read_lane(body.kind, item.what.name)
        if view.lane.job is not None:
            return replace(item, state="held", seq=view.first.seq if view.first else 0)
        if not await self._may_be_archived(body, item.sent_ms):
            return None
        if await self._archived(body.kind, item.what.name):
            return replace(item, state="held")
        return item.unsure(MAYBE_ARCHIVED)

    async def _may_be_archived(self, body: ScheduleBody, sent_ms: int) -> bool:
        """Whether a job of which nothing is on its lane may have ended and been archived."""
        control = await self._session.sync_control()
        sent = replace(self._session.compose(JobSchedule, body, prev=0), hlc=(sent_ms, 0))
        return lane_archive.is_too_old(JOBS, control, sent)

    # --- messages -----------------------------------------------------------------------------

    async def _put(self, item: OutboxItem, what: Send) -> OutboxItem:
        now_ms, body = self._now_ms(), what.body
        if item.sent_ms and now_ms - item.sent_ms > FORGOTTEN_MS:
            return item.unsure(_MAYBE_READ)
        if body.ttl_ms:
            left_ms = body.ttl_ms - (now_ms - item.at_ms)
            if left_ms <= 0:
                return replace(item, state="dropped", why="its time was over before it was sent")
            body = replace(body, ttl_ms=left_ms)
        if self._is_limited or body.to in self._full:
            return item
        marked = self._marked(item)
        try:
            await self._deliver(body)
        except (InboxFull, RateLimited) as problem:
            # An answer: it was not stored, and nobody has to look for it later.
            if marked is not item:
                self._store.update(item)
            self._full.add(body.to)
            self._is_limited = isinstance(problem, RateLimited)
            log.info("message_waits", item=item.id, what=what.words, problem=problem.message)
            return item
        return replace(marked, state="held")


def _lost(items: list[OutboxItem]) -> set[Part | None]:
    """What was dropped and is not coming: a job may have been kept again since."""
    lost: set[Part | None] = set()
    for one in items:
        if one.state == "dropped":
            lost.add(one.part_of())
        elif isinstance(one.what, Submit):
            lost.discard(one.part_of())
    return lost


RUN_DROPPED: Final = "what the run made before was dropped"
_ONE_TIMESTAMP: Final = (
    "another item has the same timestamp: was the state directory copied, or restored?"
)
_HELD: Final = {"state": "held"}
_CONTENT_GONE: Final = {
    "state": "asks",
    "why": "its content is not in the outbox any more: store the file again, and drop this",
}
_MAYBE_READ: Final = (
    "it was sent and no answer came; by now its receiver may have read it and forgotten that"
)
_BY_THE_CLOCK: Final = frozenset(verdict.value for verdict in ABOUT_TIME)
"""Nobody refuses what was meant: it waits until this machine's clock is right."""
