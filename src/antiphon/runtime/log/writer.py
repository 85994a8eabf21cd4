"""How an op is written to the log: draft, commit, look again after a conflict, read back, judge.

The code that writes passes a list of intents, and a policy that says what to do if another node
writes first. It gets back the result of each: its sequence, its verdict, the lane after it.
`Session.commit` is the lower half, which resolves unknown outcomes. Nobody else calls it or
`Session.send`: who has many intents at one moment (`write_turns`, `bulk_submission`) begins them
here with `sign_together` and `send_together`, and goes on with each by itself.

- An op is signed again for every try: its predecessor is part of what is signed.
- The intents of a list are independent of one another. They may reach the log in any order, and of
  two on one subject the second finds that another record came first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.grant_tree import trace
from antiphon.core.clock.hlc import ZERO
from antiphon.core.family import Lane
from antiphon.core.record.op import Op, subject_of
from antiphon.core.record.verdict import ABOUT_TIME, LACKS_AUTHORITY, Verdict
from antiphon.errors import AntiphonError, EngineDenied, LostRace, NotPermitted, Rejected
from antiphon.runtime.log import acting
from antiphon.runtime.log.author import Author, Draft
from antiphon.runtime.log.clock_check import HINT

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session

TRIES: Final = 8
"""How often an op is drafted when other records keep arriving first."""
AT_ONCE: Final = 4
"""Intents of one list that are written at the same time: as many as a gate accepts per member."""


class Intent(Struct, frozen=True):
    """An op to be written, and where."""

    op: type[Op]
    body: Struct
    lane: Lane | None = None
    """The lane that it belongs to, as far as it is known; None: a control op."""
    deps: tuple[tuple[int, str], ...] = ()
    prev: int | None = None
    """The record that it follows; None: the last one on its subject by `lane` or known control."""
    by: Author | None = None
    """The author that signs it; None: the session's own."""


class Written(Struct, frozen=True):
    """The result of an intent."""

    intent: Intent
    """As it was last tried."""
    seq: int = 0
    """Its place on the log; 0: not known to be there."""
    verdict: Verdict | None = None
    """The log's verdict; where `seq` is 0, the one it would get. None without a problem: another
    record came first, and the intent was no longer wanted."""
    lane: Any = None
    """The lane as it is now, of its family's own type."""
    view: Any = None
    """The same with its records, where the whole lane was read."""
    problem: AntiphonError | None = None

    def check(self) -> Written:
        """This result, or its problem raised."""
        if self.problem is not None:
            raise self.problem
        return self


Look = Callable[["Session", Draft, Written], Awaitable[Written]]
"""Reads the state after an op was sent, whether it was stored or not."""
Again = Callable[[Written], Intent | None]
"""Given the state after another record came first: what is wanted now, or None."""


def give_up(_now: Written) -> None:
    """Another record came first: do not try again."""


def go_behind(now: Written) -> Intent:
    """Another record came first: write it after that one."""
    return now.intent if now.intent.lane is None else replace(now.intent, lane=now.lane)


async def whole_lane(session: Session, draft: Draft, sent: Written) -> Written:
    """Read the lane, at least as far as it is already known."""
    place = draft.opened.place
    if place is None:
        raise TypeError(f"{draft.subject} does not belong to a lane")
    known = max(sent.intent.lane.tails) if sent.intent.lane is not None else 0
    if session.is_archived_since(known):
        known = 0  # it may be purged
    view = await session.read(place.key, at_least=sent.seq or known)
    verdict = None
    if sent.seq:
        # A reader forgets some of the rejected records, and none of the accepted ones.
        verdict = view.verdict_of(draft.op_id) or Verdict.MALFORMED
    return replace(sent, verdict=verdict, lane=view.lane, view=view)


async def own_record(session: Session, draft: Draft, sent: Written) -> Written:
    """Read only the record, and judge it on the intent's lane, which was read before."""
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


async def unread(_session: Session, _draft: Draft, sent: Written) -> Written:
    """Read nothing back: the code that writes does it, for many at a time."""
    return sent


class Policy(Struct, frozen=True, kw_only=True):
    """What to do when another record comes first, or the verdict is a rejection."""

    again: Again | None = None
    """Asked when another record came first; None: raise `LostRace`."""
    tries: int = TRIES
    """After this many, `LostRace` is raised in any case."""
    foresees: bool = False
    """Whether an op on a lane is not written at all if it would be rejected."""
    look: Look = in_place
    """How to read back."""
    insists: bool = True
    """Whether a rejection is raised, as `Rejected`."""
    what: str = ""
    """How error messages name it; empty: the op's type."""
    timeout_s: float = 5.0
    """How long the engine has to answer one write."""
    is_sure: bool = False
    """Whether the op is made of nothing but what was read strictly and what this process made of
    it, and is no different from others of its type and kind. Then of those in one turn the first
    stands for all: it is read again as it was encoded, and its verdict is foreseen."""
    before: Callable[[Draft], None] | None = None
    """Told of every draft before it is sent, for who has to find it again after a crash."""


ONCE: Final = Policy()
BEHIND: Final = Policy(again=go_behind)
"""Write it after any record that comes first."""


async def write(
    session: Session, intents: Sequence[Intent], policy: Policy = ONCE
) -> list[Written]:
    """Write intents to the log; the result of each, in order, with its problem if any.

    All are tried, even if some fail.
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


class Begun(Struct, frozen=True, kw_only=True):
    """How far an intent has been written already, together with others."""

    draft: Draft | None = None
    """As it was signed; None: nothing has been done."""
    told: AntiphonError | None = None
    """What went wrong when the draft was sent, which says nothing final."""
    seq: int = 0
    """Where the draft was stored, as far as is known."""
    written: Written | None = None
    """The result of the first try."""
    turn: object | None = None
    """The turn that this write is, alone."""


NOT_BEGUN: Final = Begun()
SURE: Final = Begun()
"""The same for an op of which another in the turn stands for it (`Policy.is_sure`)."""


def sign_together(session: Session, wanted: Sequence[tuple[Intent, Policy]]) -> list[Begun]:
    """Draft several intents of one moment, many with one signature; how far each has come.

    One without a draft is settled, or has to be written alone.
    """
    acting.require_own()
    composed = _composed(session, wanted)
    ops: list[Op] = []
    sure: set[int] = set()
    for op, settled in composed:
        if op is not None:
            if settled is SURE:
                sure.add(len(ops))
            ops.append(op)
    signed = iter(session.author.sign(ops, sure))
    begun: list[Begun] = []
    for (intent, policy), (op, settled) in zip(wanted, composed, strict=True):
        if op is None:
            begun.append(settled)
        elif isinstance(draft := next(signed), Rejected):
            begun.append(Begun(written=Written(intent, problem=draft)))
        else:
            if policy.before is not None:
                policy.before(draft)
            begun.append(Begun(draft=draft))
    return begun


async def send_together(
    session: Session, drafts: Sequence[Draft], *, timeout_s: float = ONCE.timeout_s
) -> list[Begun]:
    """Send drafts in one request, each once; where each is stored, or what went wrong."""
    answers = await session.send(drafts, timeout_s=timeout_s)
    return [
        Begun(draft=draft, seq=told) if isinstance(told, int) else Begun(draft=draft, told=told)
        for draft, told in zip(drafts, answers, strict=True)
    ]


def _composed(
    session: Session, wanted: Sequence[tuple[Intent, Policy]]
) -> list[tuple[Op | None, Begun]]:
    """The ops that intents are now, unsigned; None if one is settled, or needs a path alone."""
    alone: tuple[Op | None, Begun] = (None, NOT_BEGUN)
    try:
        hlcs = session.author.ticks(len(wanted), session.author.mesh_time.now())
    except AntiphonError:
        return [alone] * len(wanted)  # such as a clock that is ahead: alone, each is told so
    found: list[tuple[Op | None, Begun]] = []
    seen: set[tuple[type[Op], str]] = set()
    for (intent, policy), hlc in zip(wanted, hlcs, strict=True):
        lane = intent.lane
        if lane is None or intent.by is not None or intent.prev is not None:
            found.append(alone)
            continue
        op = session.compose_behind(intent.op, intent.body, lane, hlc=hlc, deps=intent.deps)
        alike = (intent.op, getattr(intent.body, "kind", ""))
        if policy.is_sure and alike in seen:
            found.append((op, SURE))
            continue
        foreseen = session.foresee_op(op, lane) if policy.foresees else Verdict.OK
        if foreseen is Verdict.OK:
            seen.add(alike)
            found.append((op, NOT_BEGUN))
        else:
            # Whoever insists has control read again first.
            written = Written(intent, verdict=foreseen, lane=lane)
            found.append((None, NOT_BEGUN if policy.insists else Begun(written=written)))
    return found


async def write_one(
    session: Session, intent: Intent, policy: Policy = ONCE, begun: Begun = NOT_BEGUN
) -> Written:
    """Write one intent to the log, from where it stands; its problem is raised."""
    return (await _write(session, intent, policy, begun)).check()


async def _write(
    session: Session, intent: Intent, policy: Policy, begun: Begun = NOT_BEGUN
) -> Written:
    try:
        written = begun.written or await _try(session, intent, policy, begun)
    except AntiphonError as problem:
        return Written(intent, problem=problem)
    verdict = written.verdict
    if isinstance(written.problem, EngineDenied):
        return replace(written, problem=_not_admitted(session, written.problem, intent))
    if verdict is None or verdict.is_accepted or not policy.insists:
        return written
    fate = f"{policy.what or intent.op.type_name()} {'was' if written.seq else 'would be'} rejected"
    return replace(written, problem=_refusal(session, fate, verdict, intent))


async def _try(session: Session, intent: Intent, policy: Policy, begun: Begun) -> Written:
    for attempt in range(policy.tries):
        draft = begun.draft
        if draft is None:
            prev = _behind(session, intent)
            if policy.foresees and intent.lane is not None:
                insists = policy.insists
                foreseen = await _foresee(session, intent, intent.lane, prev, insists=insists)
                if foreseen is not Verdict.OK:
                    return Written(intent, verdict=foreseen, lane=intent.lane)
            draft = await _signed(session, intent, prev)
            if policy.before is not None:
                policy.before(draft)
        sent = Written(intent)
        try:
            await acting.count(draft, session.written)
            seq = begun.seq or await session.commit(
                draft, timeout_s=policy.timeout_s, told=begun.told
            )
            sent = Written(intent, seq)
            return await policy.look(session, draft, sent)
        except LostRace:
            if policy.again is None:
                raise
        except AntiphonError as problem:
            return replace(sent, problem=problem)
        begun = NOT_BEGUN
        if attempt:
            await session.pause(attempt - 1)
        now = await policy.look(session, draft, sent)
        wanted = policy.again(now)
        if wanted is None:
            return now
        intent = wanted
    where = f"on the subject of {policy.what or intent.op.type_name()}"
    raise LostRace(f"other records came first {policy.tries} times {where}", hint="try again")


async def _foresee(
    session: Session, intent: Intent, lane: Lane, prev: int, *, insists: bool
) -> Verdict:
    verdict = session.foresee(intent.op, intent.body, lane, prev=prev, deps=intent.deps)
    if verdict is not Verdict.OK and insists:
        # What permits it may have been written just now.
        await session.sync_control()
        verdict = session.foresee(intent.op, intent.body, lane, prev=prev, deps=intent.deps)
    return verdict


def _behind(session: Session, intent: Intent) -> int:
    """The last record on an intent's subject, as far as is known."""
    if intent.prev is not None:
        return intent.prev
    # The subject follows from the body alone: neither time nor authority matters for it.
    op = session.author.compose(intent.op, intent.body, prev=0, hlc=ZERO, auth=())
    subject = subject_of(op)
    place = session.protocol.place_of(subject)
    if intent.lane is not None and place is not None:
        return intent.lane.tails[place.slot]
    return session.history.tail(subject)


async def _signed(session: Session, intent: Intent, prev: int) -> Draft:
    try:
        return _drafted(session, intent, prev)
    except Rejected as refused:
        if refused.reason not in LACKS_AUTHORITY or acting.acting() is None:
            raise
    await session.sync_control()  # what permits it may have been written just now
    return _drafted(session, intent, prev)


def _drafted(session: Session, intent: Intent, prev: int) -> Draft:
    if intent.by is None:
        return session.draft(intent.op, intent.body, prev=prev, deps=intent.deps)
    acting.require_own()
    return intent.by.draft(intent.op, intent.body, prev=prev, auth=(), deps=intent.deps)


def _member(session: Session) -> str:
    """What the owner calls this machine."""
    tree = trace(session.control, session.wall.now_ms() // 1000)
    return tree.member(session.author.did)


def _not_admitted(session: Session, denied: EngineDenied, intent: Intent) -> EngineDenied:
    """What the server did not let this login write, by its permission instead of its subject."""
    command, kind = intent.op.command_of(intent.body), getattr(intent.body, "kind", "")
    if not kind or not command or isinstance(denied, NotPermitted):
        return denied
    rights = session.protocol.rights
    typed = rights.how_to_grant(command, kind, _member(session))
    error = NotPermitted(
        f"the mesh's server does not let this login {rights.word_for(command)} {kind}",
        hint=f"if it was granted just now, open the mesh again; else the mesh's owner grants it:"
        f" {typed}; 'antiphon who' shows who may do what",
    )
    error.__cause__ = denied
    return error


def _refusal(session: Session, what: str, verdict: Verdict, intent: Intent) -> Rejected:
    """Why, and what to do about it. For verdicts about time, say whether our own clock is wrong."""
    why = hint = ""
    if verdict in ABOUT_TIME:
        why = session.author.mesh_time.fault(session.author.clock.max_drift_ms)
        hint = HINT if why else "'antiphon doctor' compares the clocks"
    elif verdict in LACKS_AUTHORITY:
        hint = "'antiphon who' shows who may do what"
        command, kind = intent.op.command_of(intent.body), getattr(intent.body, "kind", "")
        if kind and command and verdict in (Verdict.NO_CHAIN, Verdict.COMMAND, Verdict.POLICY):
            rights, node = session.protocol.rights, _member(session)
            why = f"{verdict.in_words}; this key may not {rights.word_for(command)} {kind}"
            hint += f"; the owner grants it: {rights.how_to_grant(command, kind, node)}"
    return Rejected(f"{what}: {why or verdict.in_words}", reason=verdict.value, hint=hint)
