"""The one way to write: draft, commit, look again after a conflict, read back, judge.

A caller says what it wants on the log, as a list of intents, and what is to happen if somebody else
writes first, as a policy. It gets back what became of each: its sequence, its verdict, the lane
behind it. `Session.commit` is the lower half, which resolves unknown outcomes.

- An op is signed anew for every try: its predecessor is part of what is signed.
- The intents of a list are independent of one another. They may reach the log in any order, and of
  two on one subject the second finds that somebody wrote first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.clock.hlc import ZERO
from antiphon.core.family import Lane
from antiphon.core.record.op import Op, subject_of
from antiphon.core.record.verdict import ABOUT_TIME, LACKS_AUTHORITY, Verdict
from antiphon.errors import AntiphonError, LostRace, Rejected
from antiphon.runtime.log.author import Author, Draft
from antiphon.runtime.log.clock_check import HINT

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session

TRIES: Final = 8
"""How often an op is drafted because somebody else wrote where it belongs first."""
AT_ONCE: Final = 4
"""Intents of one list that are under way at the same time: as many as a gate takes of a member."""


class Intent(Struct, frozen=True):
    """An op that somebody wants on the log, and where."""

    op: type[Op]
    body: Struct
    lane: Lane | None = None
    """The lane that it goes on, as far as it is known; None: it goes among control."""
    deps: tuple[tuple[int, str], ...] = ()
    prev: int | None = None
    """What it goes behind; None: what is last on its subject by `lane`, or by the known control."""
    by: Author | None = None
    """Who signs it; None: the peer's own author."""


class Written(Struct, frozen=True):
    """What became of an intent."""

    intent: Intent
    """As it was tried last."""
    seq: int = 0
    """Its place on the log; 0: it is not known to be there."""
    verdict: Verdict | None = None
    """The log's; where `seq` is 0, what it would be. None, unless there was a problem: somebody
    wrote first, and with that it was no longer wanted."""
    lane: Any = None
    """The lane as it stands by now, of its family's own type."""
    view: Any = None
    """The same with its records, where it was read as a whole."""
    problem: AntiphonError | None = None

    def check(self) -> Written:
        """Itself, or the problem raised."""
        if self.problem is not None:
            raise self.problem
        return self


Look = Callable[["Session", Draft, Written], Awaitable[Written]]
"""Finds out how things stand after an op was sent, and stored or not."""
Again = Callable[[Written], Intent | None]
"""Given how things stand since somebody else wrote: what is wanted now, or None."""


def give_up(_now: Written) -> None:
    """Somebody wrote first: leave it at that."""


def go_behind(now: Written) -> Intent:
    """Somebody wrote first: it is wanted all the same."""
    return now.intent if now.intent.lane is None else replace(now.intent, lane=now.lane)


async def whole_lane(session: Session, draft: Draft, sent: Written) -> Written:
    """Read the lane, at least as far as it is known already."""
    place = draft.opened.place
    if place is None:
        raise TypeError(f"{draft.subject} belongs to no lane")
    known = max(sent.intent.lane.tails) if sent.intent.lane is not None else 0
    view = await session.read(place.key, at_least=sent.seq or known)
    verdict = None
    if sent.seq:
        # A reader forgets some of what is refused, and nothing of what is accepted.
        verdict = view.verdict_of(draft.op_id) or Verdict.MALFORMED
    return replace(sent, verdict=verdict, lane=view.lane, view=view)


async def own_record(session: Session, draft: Draft, sent: Written) -> Written:
    """Read the record alone and judge it behind the intent's lane, which was read before."""
    if not sent.seq or sent.intent.lane is None:
        return await whole_lane(session, draft, sent)
    session.confirm_soon(sent.seq)
    opened = await session.fetch_opened(sent.seq, newest_on=draft.subject)
    await session.confirm(sent.seq)
    outcome = await session.judge(opened, sent.intent.lane)
    return replace(sent, verdict=outcome.verdict, lane=outcome.lane)


async def in_place(session: Session, draft: Draft, sent: Written) -> Written:
    """Read what the op belongs to: its lane, or control."""
    if sent.intent.lane is not None:
        return await whole_lane(session, draft, sent)
    if not sent.seq:
        await session.sync_control()
        return sent
    await session.confirm(sent.seq)
    return replace(sent, verdict=session.control_verdicts[sent.seq])


class Policy(Struct, frozen=True, kw_only=True):
    """What to do when things do not go as hoped."""

    again: Again | None = None
    """Asked when somebody wrote first; None: that is raised, as `LostRace`."""
    tries: int = TRIES
    """After so many it is raised in any case."""
    foresees: bool = False
    """Whether an op on a lane that would be refused is not written at all."""
    look: Look = in_place
    """How to read back."""
    insists: bool = True
    """Whether a verdict other than accepted is raised, as `Rejected`."""
    what: str = ""
    """What errors call it; empty: the op's type."""
    timeout_s: float = 5.0
    """How long the engine has to answer one write."""


ONCE: Final = Policy()
BEHIND: Final = Policy(again=go_behind)
"""Whatever others write there meanwhile."""


async def write(
    session: Session, intents: Sequence[Intent], policy: Policy = ONCE
) -> list[Written]:
    """Bring intents to the log; what became of each, in their order, with its problem if any.

    All are tried, whatever becomes of the others.
    """
    if len(intents) == 1:
        return [await _write(session, intents[0], policy)]
    free = asyncio.Semaphore(AT_ONCE)

    async def in_turn(intent: Intent) -> Written:
        async with free:
            return await _write(session, intent, policy)

    async with asyncio.TaskGroup() as tasks:
        begun = [tasks.create_task(in_turn(intent)) for intent in intents]
    return [task.result() for task in begun]


async def write_one(session: Session, intent: Intent, policy: Policy = ONCE) -> Written:
    """Bring one intent to the log; its problem is raised."""
    return (await _write(session, intent, policy)).check()


async def _write(session: Session, intent: Intent, policy: Policy) -> Written:
    try:
        written = await _try(session, intent, policy)
    except AntiphonError as problem:
        return Written(intent, problem=problem)
    verdict = written.verdict
    if verdict is None or verdict.is_accepted or not policy.insists:
        return written
    fate = f"{policy.what or intent.op.type_name()} {'was' if written.seq else 'would be'} rejected"
    return replace(written, problem=_refusal(session, fate, verdict))


async def _try(session: Session, intent: Intent, policy: Policy) -> Written:
    for attempt in range(policy.tries):
        prev = _behind(session, intent)
        if policy.foresees and intent.lane is not None:
            foreseen = await _foresee(session, intent, intent.lane, prev, insists=policy.insists)
            if foreseen is not Verdict.OK:
                return Written(intent, verdict=foreseen, lane=intent.lane)
        draft = _drafted(session, intent, prev)
        sent = Written(intent)
        try:
            sent = Written(intent, await session.commit(draft, timeout_s=policy.timeout_s))
            return await policy.look(session, draft, sent)
        except LostRace:
            if policy.again is None:
                raise
        except AntiphonError as problem:
            return replace(sent, problem=problem)
        if attempt:
            await session.pause(attempt - 1)
        now = await policy.look(session, draft, sent)
        wanted = policy.again(now)
        if wanted is None:
            return now
        intent = wanted
    where = f"where {policy.what or intent.op.type_name()} belongs"
    raise LostRace(f"others wrote first {policy.tries} times {where}", hint="try again")


async def _foresee(
    session: Session, intent: Intent, lane: Lane, prev: int, *, insists: bool
) -> Verdict:
    verdict = session.foresee(intent.op, intent.body, lane, prev=prev)
    if verdict is not Verdict.OK and insists:
        # Perhaps what allows it was only just written.
        await session.sync_control()
        verdict = session.foresee(intent.op, intent.body, lane, prev=prev)
    return verdict


def _behind(session: Session, intent: Intent) -> int:
    """What is last where an intent belongs, as far as is known."""
    if intent.prev is not None:
        return intent.prev
    # Where it belongs follows from what it says: neither time nor authority matters for that.
    op = session.author.compose(intent.op, intent.body, prev=0, hlc=ZERO, auth=())
    subject = subject_of(op)
    place = session.protocol.place_of(subject)
    if intent.lane is not None and place is not None:
        return intent.lane.tails[place.slot]
    return session.history.tail(subject)


def _drafted(session: Session, intent: Intent, prev: int) -> Draft:
    if intent.by is None:
        return session.draft(intent.op, intent.body, prev=prev, deps=intent.deps)
    return intent.by.draft(intent.op, intent.body, prev=prev, auth=(), deps=intent.deps)


def _refusal(session: Session, what: str, verdict: Verdict) -> Rejected:
    """Why, and what to do about it; where it is about time, whether our own clock is wrong."""
    why = hint = ""
    if verdict in ABOUT_TIME:
        why = session.author.mesh_time.fault(session.author.clock.max_drift_ms)
        hint = HINT if why else "'antiphon doctor' compares the clocks"
    elif verdict in LACKS_AUTHORITY:
        hint = "'antiphon who' shows who may do what"
    return Rejected(f"{what}: {why or verdict.in_words}", reason=verdict.value, hint=hint)
