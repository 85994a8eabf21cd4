"""Sends an op whose identity is not its content: a put, a release, what a run made (spec §10).

Two forms of one op would be two ops. So every form is noted on disk before it is sent, and the lane
is searched for all of them before another is signed. A form stands directly behind the record that
it names, or nowhere: one that is not there, while another record is, can never arrive.

An op is signed anew only while its meaning is the same: a put by its base and its strategy, a
release, an artifact and the end of a tenure while the lane shows their fence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.memory.ops import MemoryBody
from antiphon.core.families.memory.writing import put_body
from antiphon.core.record.ids import digest, short_node
from antiphon.core.record.verdict import ABOUT_TIME, Verdict
from antiphon.errors import LostRace, Unavailable
from antiphon.runtime.log.clock_check import HINT
from antiphon.runtime.log.writer import Intent, Policy, own_record, write_one
from antiphon.runtime.outbox.outbox_item import (
    Artifact,
    Complete,
    Form,
    LaneWrite,
    OutboxItem,
    Put,
    Release,
    Yield,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.families.memory.state import Document
    from antiphon.core.family import Lane
    from antiphon.ports import Record
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.session import Session

    Note = Callable[[OutboxItem], None]
    """Writes an item to disk."""

TRIES: Final = 8
"""How often it is begun anew while other records come first."""
MOST_FORMS: Final = 16
"""Forms that may still arrive: after so many, a person is asked."""


def form_of(draft: Draft) -> Form:
    """What is remembered of a signed op."""
    op = draft.op
    return Form(draft.subject, op.prev, (op.hlc[0], op.hlc[1]), digest(draft.payload))


class LaneWriter:
    """Brings one item to the log."""

    def __init__(self, session: Session, item: OutboxItem, what: LaneWrite, note: Note) -> None:
        """`note` is called with the item before each send."""
        self._session = session
        self._item = item
        self._what = what
        self._note = note

    async def write(self) -> OutboxItem:
        """What became of the item; `Unavailable`: it waits on."""
        for attempt in range(TRIES):
            if attempt:
                await self._session.pause(attempt - 1)
            await self._session.sync_control()
            lane = (await self._session.enter(self._what.lane)).lane
            found = await self._arrived(lane)
            if found is not None:
                return found
            body = _body_now(self._what, lane)
            if isinstance(body, str):
                return self._dropped(body)
            try:
                return await self._send(Intent(self._what.OP, body, lane))
            except LostRace:
                continue
        raise Unavailable(f"other records came first {TRIES} times: {self._what.words}")

    async def find(self) -> OutboxItem | None:
        """What became of the forms that were sent; None: none of them was accepted so far."""
        await self._session.sync_control()
        return await self._arrived((await self._session.enter(self._what.lane)).lane)

    def _dropped(self, why: str) -> OutboxItem:
        return replace(self._item, state="dropped", why=why)

    # --- what was sent before -----------------------------------------------------------------

    async def _arrived(self, lane: Lane) -> OutboxItem | None:
        """The end of an item of which a form took effect, or nobody knows; None: send it.

        What can never arrive is forgotten.
        """
        live: list[Form] = []
        for form in self._item.forms:
            record = await self._behind(form)
            if record is not None and digest(record.payload) == form.digest:
                opened = self._session.open(record)
                before = await self._session.lanes.before(self._what.lane, record.seq)
                if (await self._session.judge(opened, before)).verdict.is_accepted:
                    return replace(self._item, state="held", seq=record.seq)
            elif await self._may_be_archived(form):
                return self._item.unsure(MAYBE_ARCHIVED)
            elif record is None and form.prev in lane.tails:
                live.append(form)
            elif record is None and self._is_behind(lane, form):
                raise Unavailable(f"this copy of the log is behind: {self._what.words} waits")
        self._item = replace(self._item, forms=tuple(live))
        if len(live) >= MOST_FORMS:
            return self._item.unsure(f"it was sent {len(live)} times, and no answer came")
        return None

    def _is_behind(self, lane: Lane, form: Form) -> bool:
        """Whether a lane as it was read lacks what is known to be on it.

        The record before a form was read when that was signed. Only an archive takes it away, and
        none takes what is newer than itself.
        """
        newest = max(lane.tails, default=0)
        return form.prev > max(newest, self._session.control.archive.seq)

    async def _behind(self, form: Form) -> Record | None:
        """The record that stands where a form would."""
        async for page in self._session.log.read_lane([form.subject], after=form.prev):
            return page[0]
        return None

    async def _may_be_archived(self, form: Form) -> bool:
        """Whether an accepted form may have left the log since.

        A lane is purged from its beginning: where the record before it is, it would be, too.
        """
        archive = self._session.control.archive
        if form.hlc[0] > max(archive.limit_ms(is_asked_again=one) for one in (False, True)):
            return False
        before = replace(form, prev=form.prev - 1)
        found = await self._behind(before) if form.prev else None
        return found is None or found.seq != form.prev

    # --- sending ------------------------------------------------------------------------------

    async def _send(self, intent: Intent) -> OutboxItem:
        def before(draft: Draft) -> None:
            self._item = replace(self._item, forms=(*self._item.forms, form_of(draft)))
            self._note(self._item)

        policy = Policy(foresees=True, insists=False, look=own_record, before=before)
        written = await write_one(self._session, intent, policy)
        verdict = written.verdict or Verdict.MALFORMED
        if verdict.is_accepted:
            why = _beside(self._what, intent.body)
            return replace(self._item, state="held", seq=written.seq, why=why)
        if verdict in ABOUT_TIME:
            raise Unavailable(f"{self._what.words} waits: {verdict.in_words}", hint=HINT)
        return self._dropped(_refused(self._what, verdict))


def _body_now(what: LaneWrite, lane: Lane) -> Struct | str:
    """What is written behind a lane as it is now, or why nothing is."""
    match what:
        case Put(wanted=wanted):
            document = cast("Document | None", lane.state)
            body = put_body(document, wanted)
            if body is not None:
                return body
            if document is None or document.value is None:
                return "there is no such document any more"
            if document.value == wanted.value:
                return f"the document has this value already, at revision {document.revision}"
            by = f"{short_node(document.author)}/{document.agent}"
            return f"{by} wrote it meanwhile, and revision {document.revision} stays"
        case Release(body=release):
            return release
        case Artifact(body=made) | Complete(body=made) | Yield(body=made):
            return made


def _beside(what: LaneWrite, body: Struct) -> str:
    """What a person has to know of something that the mesh has."""
    if isinstance(what, Put) and isinstance(body, MemoryBody) and body.is_deferred:
        return f"beside a newer value: antiphon memory conflicts {what.wanted.space}"
    return ""


def _refused(what: LaneWrite, verdict: Verdict) -> str:
    """Why an op is not accepted, in words and by the verdict's name."""
    words = verdict.in_words
    if verdict is Verdict.NO_JOB:
        words = "the job has ended without it, and was archived: antiphon jobs --archived"
    if verdict in _TAKEN_OVER:
        words = "the hold had ended" if isinstance(what, Release) else "another worker took over"
    told = f"{words} ({verdict.value})"
    return f"{told}, so nothing of this run counts" if isinstance(what, Artifact) else told


_TAKEN_OVER: Final = frozenset({Verdict.FENCE, Verdict.NOT_CLAIMER, Verdict.NO_LOCK})
MAYBE_ARCHIVED: Final = (
    "it was sent and no answer came; since then its lane may have been archived, so nobody can tell"
    " here whether it was accepted"
)
