"""One node's access to documents: reads lanes, writes puts, follows changes.

A lane that was read is kept, up to a number, and continued from there: reading it again costs one
read of what is new, and writing to it costs none. What to write follows from
`antiphon.core.families.memory.writing`; the log decides.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.memory_rights import WRITE
from antiphon.core.families.memory.ops import MEMO, MemoryBody, MemoryPut
from antiphon.core.families.memory.state import Document, DocumentLane, document_key
from antiphon.core.families.memory.writing import Wanted, put_body
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import name_of_key
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, NotPermitted, Rejected
from antiphon.runtime.log.breaker_guard import guarded
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.log.writer import Intent, Policy, Written, own_record, write_one

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from antiphon.ports import Record
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.session import Session

LANES_KEPT: Final = 1024
TRIES: Final = 32
"""How often a put is drafted while others write the same document."""

Outcome = Literal["written", "skipped", "conflict"]


class Settled(Struct, frozen=True):
    """What became of a put."""

    outcome: Outcome
    document: Document | None
    """The document as it is now."""
    op_id: str = ""
    """For a conflict: the sibling's id."""


class Deferred(Struct, frozen=True):
    """A value that waits beside a document."""

    op_id: str
    author: str
    body: MemoryBody


class Documents:
    """Documents of any space, as one session sees them."""

    def __init__(self, session: Session) -> None:
        """Nothing is read yet."""
        self.session = session
        self._lanes: dict[LaneKey, DocumentLane] = {}

    # --- reading ------------------------------------------------------------------------------

    async def read(self, space: str, key: str) -> Document | None:
        """The document as it is now; one that was deleted has no value."""
        return (await self._read(document_key(space, key))).state

    async def _read(self, key: LaneKey) -> DocumentLane:
        known = self._lanes.get(key)
        if known is None:
            view = await self.session.enter(key)
        else:
            view = (await self.session.read_on({key: known}))[key]
        return self._keep(key, cast("DocumentLane", view.lane))

    def _keep(self, key: LaneKey, lane: DocumentLane) -> DocumentLane:
        known = self._lanes.pop(key, None)
        if known is not None and known.tails > lane.tails:
            lane = known  # another task has read on meanwhile
        self._lanes[key] = lane
        if len(self._lanes) > LANES_KEPT:
            del self._lanes[next(iter(self._lanes))]
        return lane

    async def siblings(self, document: Document) -> list[Deferred]:
        """The values that wait beside a document, oldest first."""
        wanted = {one.seq: one.op for one in document.siblings}
        found = await self.session.log.fetch_many(list(wanted)) if wanted else []
        return [self._deferred(record, wanted[record.seq]) for record in found]

    def _deferred(self, record: Record, op_id: str) -> Deferred:
        opened = self.session.open(record)
        op = opened.op
        if not isinstance(op, MemoryPut) or opened.op_id != op_id:
            raise Corrupt(f"record {record.seq} is not the value that the document names")
        return Deferred(op_id, op.author, op.body)

    # --- writing ------------------------------------------------------------------------------

    async def put(self, wanted: Wanted, before: Callable[[Draft], None] | None = None) -> Settled:
        """Write a value by its strategy; what became of it, and the document as it is now.

        `before` is told of each record before it is sent.
        """
        with guarded(self.session):
            return await self._put(wanted, before)

    async def _put(self, wanted: Wanted, before: Callable[[Draft], None] | None) -> Settled:
        key = document_key(wanted.space, wanted.key)
        lane = self._lanes.get(key)
        if lane is None or _revision(lane) != wanted.base or wanted.resolves:
            try:
                lane = await self._read(key)
            except NotPermitted as denied:  # to write includes to read, so ask for both at once
                rights = self.session.protocol.rights
                raise NotPermitted(
                    f"this key may not write to {wanted.space}: it lacks the permission"
                    f" {rights.word_for(WRITE)}",
                    hint=f"the mesh's owner grants it: {rights.how_to_grant(WRITE, wanted.space)};"
                    " 'antiphon who' shows who may do what",
                ) from denied
        body = put_body(lane.state, wanted)
        if body is None:
            return Settled("skipped", lane.state)

        def again(now: Written) -> Intent | None:
            fresh = put_body(now.lane.state, wanted)
            return None if fresh is None else replace(now.intent, body=fresh, lane=now.lane)

        policy = Policy(
            again=again,
            tries=TRIES,
            foresees=True,
            look=self._look,
            what=f"the put of {wanted.key!r} in {wanted.space}",
            before=before,
        )
        try:
            written = await write_one(self.session, Intent(MemoryPut, body, lane), policy)
        except Rejected as refused:
            if refused.reason == Verdict.UNRESOLVED.value:
                raise Rejected(
                    refused.message,
                    reason=refused.reason,
                    hint=f"antiphon memory conflicts {wanted.space} lists them; resolve some",
                ) from refused
            raise
        after = self._keep(key, written.lane).state
        if written.verdict is None:
            return Settled("skipped", after)
        if written.intent.body.is_deferred:  # type: ignore[attr-defined]
            siblings = written.lane.state.siblings
            return Settled("conflict", after, siblings[-1].op)
        return Settled("written", written.lane.state)

    async def _look(self, session: Session, draft: Draft, sent: Written) -> Written:
        """Read the record that was written, or what came before it: never the whole lane again."""
        lane, place = sent.intent.lane, draft.opened.place
        if sent.seq or lane is None or place is None:
            return await own_record(session, draft, sent)
        view = (await session.read_on({place.key: lane}))[place.key]
        return replace(sent, lane=view.lane)

    # --- following ----------------------------------------------------------------------------

    @asynccontextmanager
    async def watch(
        self, space: str, key: str | None = None
    ) -> AsyncIterator[AsyncIterator[Document]]:
        """One document, or all of a space, after each change from now on.

        While nothing is written there, nothing is read.
        """
        name = "*" if key is None else name_of_key(key)
        newest = await self.session.log.last()
        after = newest.seq if newest is not None else 0
        subject = MEMO.subject(self.session.mesh, space, name)
        async with aclosing(self._changes(subject, after)) as changes:
            yield changes

    async def _changes(self, subject: str, after: int) -> AsyncGenerator[Document]:
        while True:  # a follower ends when this node may read other things than before
            async with self.session.log.follow(after, subject=subject) as batches:
                async for batch in batches:
                    for record in batch:
                        after = record.seq
                        change = await self._judged(record)
                        if change is not None:
                            yield change

    async def _judged(self, record: Record) -> Document | None:
        """The document after an accepted record; None for one that took no effect."""
        session = self.session
        opened = open_stored(session.protocol, session.mesh, record)
        if opened.place is None:
            return None
        key, op = opened.place.key, opened.op
        await session.confirm(record.seq)
        lane = self._lanes.get(key)
        if lane is None:
            view = await session.enter(key)
            lane = self._keep(key, cast("DocumentLane", view.lane))
            if lane.tails[0] == record.seq and isinstance(op, MemoryPut) and lane.state is not None:
                is_new = view.verdict_of(opened.op_id) is Verdict.OK
                return lane.state if is_new else None
        if lane.tails[0] >= record.seq or lane.tails[0] != (op.prev if op else -1):
            # Already read beyond it, or something is missing: judge it where it stands.
            lane = cast("DocumentLane", await session.lanes.before(key, record.seq))
        outcome = await session.judge(opened, lane)
        lane = cast("DocumentLane", outcome.lane)
        self._keep(key, lane)
        return lane.state if outcome.changed else None


def _revision(lane: DocumentLane) -> int:
    return lane.state.revision if lane.state is not None else 0
