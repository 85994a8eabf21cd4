"""What waits for the person at this machine: questions, conflicts of documents, other items.

For every question it is said beforehand whether the key that signs here may answer it, and if not,
why: by the same rules by which every node judges the answer.
"""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.parties import party_of
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.questions import claim_fault
from antiphon.core.families.jobs.state import Job, job_key
from antiphon.core.family import At
from antiphon.core.party_turns import shared
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from antiphon.core.reducer import author_fault
from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, Malformed, Rejected
from antiphon.runtime.caller.answers import is_taken
from antiphon.runtime.coordinator.quorum_children import QuorumChildren
from antiphon.runtime.replica.job_pages import EVERYTHING
from antiphon.runtime.replica.lane_lists import Lists
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.dashboard.node_names import aliases
from antiphon.sdk.memory.memory_space import DOCUMENTS_IN_CONFLICT
from antiphon.sdk.queries.attention import CONFLICTS, QUESTIONS, needed, resolved_by, shown
from antiphon.sdk.queries.attention import JOBS as DEAD
from antiphon.sdk.queries.many_jobs import retry_each, retryable
from antiphon.sdk.questions.namespace import OPEN_QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antiphon.runtime.attention.attention_table import Attention
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.memory.memory_space import Document, Sibling
    from antiphon.sdk.mesh import Mesh

QUESTIONS_LISTED: Final = 50
CONFLICTS_LISTED: Final = 10
ITEMS_LISTED: Final = 50
RETRIED_AT_ONCE: Final = 100
VALUE_LETTERS: Final = 4_000
ASKS: Final = "{party} asks this, and whoever asks cannot answer: somebody else has to."
EXCLUDED: Final = "The question excludes {party}, so somebody else has to answer."
NO_RIGHT: Final = (
    "The key that signs here has no right to answer {kind}. Where the mesh is hosted:"
    " antiphon invite --can answer --kind {kind}"
)
_NO_END: Final = 2**53


class Asked(Struct, frozen=True, kw_only=True):
    """A question that nobody has answered yet."""

    kind: str
    id: str
    text: str
    choices: tuple[str, ...]
    needs: str
    """The one choice with which its job succeeds; empty: any."""
    schema: Any
    """The JSON Schema of the answer; None without one."""
    asked_by: str
    asked_ms: int
    until_ms: int
    asking: tuple[str, str]
    """Kind and id of the job that waits for the answer; empty if a program asks."""
    people: int
    quorum: int
    answered: list[str]
    """Of several people, those who have answered already."""
    is_taken: bool
    party: str
    """For whom the key that signs here would answer."""
    refusal: str
    """Why it may not; empty if it may."""


class Value(Struct, frozen=True, kw_only=True):
    """One of the values of a document with a conflict."""

    id: str
    """A sibling's; empty: the one that is there."""
    text: str
    """As JSON; empty: it was deleted."""
    is_cut: bool
    revision: int
    """Of the one that is there; of another, the one that it was made from."""
    by: str
    agent: str


class Conflicting(Struct, frozen=True, kw_only=True):
    """A document with several values."""

    space: str
    key: str
    values: list[Value]
    """The one that is there first."""
    problem: str = ""
    """Why they cannot be shown; empty if they can."""


class Item(Struct, frozen=True, kw_only=True):
    """Something else that needs attention."""

    service: str
    words: str
    job: str
    """The id of the job that it is about; empty if it is about none."""
    reason: str
    since_ms: int
    whose: str
    command: str
    """What to type about it."""
    kind: str = ""
    """Of dead jobs: their kind, with which they can be retried and dismissed here."""
    error: str = ""
    """Of several dead jobs: how they ended."""


class ForYouView(Struct, frozen=True, kw_only=True):
    """The page."""

    key: str
    """The end of the id of the key that signs here."""
    questions: list[Asked]
    conflicts: list[Conflicting]
    items: list[Item]
    can_dismiss: bool
    """Whether this node can dismiss something for everybody."""
    is_cut: bool
    """Whether there is more than is shown."""


async def waiting(mesh: Mesh) -> int:
    """How many questions are open, and documents have conflicts, as far as one page shows them."""
    async with mesh.replica() as replica:
        lists = Lists(replica, mesh.connection.session.control)
        asked = lists.shared(OPEN_QUESTIONS, limit=QUESTIONS_LISTED)
        return len(asked.rows) + len(
            lists.shared(DOCUMENTS_IN_CONFLICT, limit=CONFLICTS_LISTED).rows
        )


async def open_question(mesh: Mesh, job: str, *, kind: str = "") -> Asked:
    """A question by its whole id, listed or not; `Rejected` if it is open no more.

    A job of another kind may have the same id, so the page that shows a question says its kind.
    """
    kinds = (kind,) if kind else EVERYTHING
    async with mesh.replica() as replica:
        replica.flush()
        named = replica.ask(ReplicaJobs).find(job, kinds=kinds) if _is_id(job) else []
        found = [one for one in named if one.question is not None and not one.is_terminal]
        if len(found) != 1:
            raise Rejected("this question is not open any more", reason="finished")
        asked = _asked(mesh.connection.session, replica, found[0])
    names = await aliases(mesh, {asked.asked_by, asked.party, *asked.answered})
    return _with_names(asked, partial(_called, names))


async def for_you_view(mesh: Mesh) -> ForYouView:
    """What waits for somebody; where there is no room for all of it, parties take turns."""
    session = mesh.connection.session
    async with mesh.replica() as replica:
        lists = Lists(replica, session.control)
        asked = lists.shared(OPEN_QUESTIONS, limit=QUESTIONS_LISTED)
        questions = [_asked(session, replica, one.state) for one in asked.rows]
        documents = lists.shared(DOCUMENTS_IN_CONFLICT, limit=CONFLICTS_LISTED)
        other = await needed(mesh.connection, replica, but=frozenset({QUESTIONS, CONFLICTS}))
    conflicts = [await _conflicting(mesh, one.kind, one.state.key) for one in documents.rows]
    other.sort(key=lambda one: one.key)
    items = [_item(one.item) for one in shared(other, lambda one: one.party, ITEMS_LISTED)]
    nodes = {name for one in questions for name in (one.asked_by, one.party, *one.answered)}
    nodes |= {value.by for one in conflicts for value in one.values}
    nodes |= {one.whose for one in items}
    called = partial(_called, await aliases(mesh, nodes))
    return ForYouView(
        key=short_node(mesh.did),
        questions=[_with_names(one, called) for one in questions],
        conflicts=[
            replace(one, values=[replace(value, by=called(value.by)) for value in one.values])
            for one in conflicts
        ],
        items=[replace(one, whose=called(one.whose)) for one in items],
        can_dismiss=mesh.dismissals.can_be_made,
        is_cut=asked.is_cut or documents.is_cut or len(other) > ITEMS_LISTED,
    )


def _called(names: Mapping[str, str], node: str) -> str:
    return names.get(node) or (short_node(node) if node else "")


def _with_names(asked: Asked, called: Callable[[str], str]) -> Asked:
    party = called(asked.party)
    return replace(
        asked,
        asked_by=called(asked.asked_by),
        answered=[called(one) for one in asked.answered],
        party=party,
        refusal=asked.refusal.format(party=party or "the party of this key", kind=asked.kind),
    )


def _item(one: Attention) -> Item:
    is_dead = one.service == DEAD
    return Item(
        service=one.service,
        words=_short_ids(shown(one)),
        kind=one.item.partition(" ")[0] if is_dead else "",
        error=one.error,
        job=_job_in(one.item),
        reason=one.reason,
        since_ms=one.since_ms,
        whose=one.whose,
        command=resolved_by(one),
    )


async def retry_dead(mesh: Mesh, kind: str, *, job: str = "", error: str = "") -> str:
    """Retry a dead job, or those of a kind that ended alike; what came of it, in words."""
    if job:
        handle = await mesh.job(kind, job).retry()
        return f"{kind} {job[:8]} is retried as {handle.id[:8]}"
    chosen = await retryable(mesh, limit=RETRIED_AT_ONCE, kind=kind, error=error)
    dones = await retry_each(mesh, [one for one in chosen.jobs if one.kind == kind])
    problems = [one.problem for one in dones if one.problem is not None]
    words = f"{len(dones) - len(problems)} jobs of {kind} are retried"
    if problems:
        words += f", {len(problems)} are not: {problems[0].message}"
    return words + (", and there are more" if chosen.has_more else "")


async def dismiss_dead(mesh: Mesh, kind: str, *, job: str = "", error: str = "") -> str:
    """Take a dead job, or those of a kind that ended alike, off the list; in words."""
    if job:
        await mesh.dismissals.jobs([(kind, job)])
        return f"{kind} {job[:8]} is dismissed: antiphon dismiss --undo {job[:8]} lists it again"
    count = await mesh.dismissals.group(kind=kind, error=error)
    again = f"antiphon dismiss --undo --kind {kind} --error {shlex.quote(error)}"
    return f"{count} jobs are dismissed: {again} lists them again"


# --- questions ------------------------------------------------------------------------------------


def _asked(session: Session, replica: Replica, job: Job) -> Asked:
    """A question, with nodes by their ids."""
    question = job.question
    if question is None:
        raise ValueError("only questions are asked")
    jobs = replica.ask(ReplicaJobs)
    asking = next(iter(jobs.followers(job.kind, job.id, limit=1)), None)
    quorum = QuorumChildren(replica, session)
    parent = quorum.parent(job.kind, job.id)
    party, refusal = _standing(session, job)
    return Asked(
        kind=job.kind,
        id=job.id,
        text=question.text,
        choices=question.choices,
        needs=question.needs or "",
        schema=None if question.schema is None else msgspec.json.decode(question.schema),
        asked_by=job.scheduler,
        asked_ms=job.scheduled_ms,
        until_ms=job.start_by_ms,
        asking=(asking.kind, asking.id) if asking is not None else ("", ""),
        people=job.replicas,
        quorum=job.quorum,
        answered=[
            one.claimer
            for one in (quorum.children(parent) if parent is not None else ())
            if one.is_terminal and one.claimer
        ],
        is_taken=is_taken(session, job),
        party=party,
        refusal=refusal,
    )


def _standing(session: Session, job: Job) -> tuple[str, str]:
    """For whom this process's key would answer a question, and why it may not."""
    control, now_ms, me = session.control, session.wall.now_ms(), session.author.did
    body = ClaimBody(kind=job.kind, job=job.id, lease_ms=job.lease_ms, answers=True, begin=True)
    claim = JobClaim(
        v=1,
        mesh=control.mesh,
        author=me,
        hlc=(now_ms, 0),
        prev=0,
        deps=(),
        auth=session.choose_auth(JobClaim, body),
        body=body,
    )
    at = At(_NO_END, now_ms, control, job_key(job.kind, job.id))
    party = party_of(control, me, claim.auth, before=_NO_END)
    fault = author_fault(JOBS, None, claim, at) or claim_fault(job, claim, at)
    if fault is None:
        return party, ""
    if fault is not Verdict.SELF:
        return party, NO_RIGHT
    excluded = job.question.not_by if job.question is not None else ()
    return party, EXCLUDED if {party, me} & set(excluded) else ASKS


# --- conflicts ------------------------------------------------------------------------------------


async def _conflicting(mesh: Mesh, space: str, key: str) -> Conflicting:
    """A document and what waits beside it, with nodes by their ids."""
    documents = mesh.memory[space]
    try:
        there, siblings = await documents.get(key), await documents.conflicts(key)
    except AntiphonError as problem:
        return Conflicting(space=space, key=key, values=[], problem=problem.message)
    values = [_DELETED if there is None else _value("", there, there.revision)]
    values += [_value(one.id, one, one.base) for one in siblings]
    return Conflicting(space=space, key=key, values=values)


_DELETED: Final = Value(id="", text="", is_cut=False, revision=0, by="", agent="")


def _value(sibling: str, of: Document | Sibling, revision: int) -> Value:
    text = msgspec.json.format(msgspec.json.encode(of.value), indent=2).decode()
    return Value(
        id=sibling,
        text=text[:VALUE_LETTERS],
        is_cut=len(text) > VALUE_LETTERS,
        revision=revision,
        by=of.author,
        agent=of.agent,
    )


async def resolve(  # noqa: PLR0913 - what a person saw and chose
    mesh: Mesh,
    space: str,
    key: str,
    *,
    chosen: str,
    written: str,
    siblings: Sequence[str],
    revision: int,
) -> str:
    """End a conflict as somebody decided who saw just these values; what came of it, in words.

    `chosen` is a sibling's id, `there` for the value that is there, or `written` for the JSON that
    was written instead.
    """
    documents = mesh.memory[space]
    if chosen == "written":
        try:
            value: Any = msgspec.json.decode(written)
        except UNREADABLE as wrong:
            raise Malformed(f"the third value is not JSON: {wrong}", reason="value") from None
    elif chosen == "there":
        there = await documents.get(key)
        value = None if there is None else there.value
    else:
        known = {one.id: one for one in await documents.conflicts(key)}
        if chosen not in known:
            raise Rejected(
                f"the value {chosen[:8]!r} does not wait beside {key!r} any more", reason="sibling"
            )
        value = known[chosen].value
    done = await documents.resolve(key, value, siblings=siblings, base=revision)
    if done.outcome == "written":
        return f"{key!r} in {space} has one value again"
    return f"{key!r} in {space} was changed meanwhile, so nothing was written: look at it again"


# --- words ----------------------------------------------------------------------------------------


def _job_in(item: str) -> str:
    last = item.rpartition(" ")[2]
    return last if _is_id(last) else ""


def _short_ids(item: str) -> str:
    return " ".join(part[:8] if _is_id(part) else part for part in item.split())


def _is_id(part: str) -> bool:
    return len(part) == 64 and not part.strip("0123456789abcdef")  # noqa: PLR2004 - a digest's digits
