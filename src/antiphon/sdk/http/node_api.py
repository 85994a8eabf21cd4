"""What programs can ask of a node over HTTP, and have it do: as one party, within its kinds.

Reading goes through the query layer with the kinds of the token. What is written, the node signs
with the key of its own program, after it was judged as if the party had written it
(`runtime.log.acting`); the log's rules judge it once more.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from blake3 import blake3
from msgspec import structs

from antiphon.assembly.mesh_connection import member_log
from antiphon.core.authority.job_rights import ANSWERS, READ_BY, SEND_BY
from antiphon.core.authority.lock_rights import LOCKS_READ_BY
from antiphon.core.authority.memory_rights import READ_BY as DOCUMENTS_READ_BY
from antiphon.core.authority.scope import EVERY_KIND
from antiphon.core.bar_tokens.bar_token import Bearer
from antiphon.core.bus.http_request import Asked
from antiphon.core.families.jobs.ops import JobComplete
from antiphon.core.families.jobs.state import job_key
from antiphon.core.history.story import tell
from antiphon.core.proof.answer import answer_in
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.gate.member_door import Member, MemberDoor, Place
from antiphon.runtime.replica.job_pages import is_visible
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.sdk.durations import seconds
from antiphon.sdk.http import models
from antiphon.sdk.http.job_content import JobContent
from antiphon.sdk.http.job_links import make_link
from antiphon.sdk.http.node_inbox import NodeInbox
from antiphon.sdk.jobs.job_lookup import handle_on
from antiphon.sdk.many.bound_calls import Call
from antiphon.sdk.proofs import bundles
from antiphon.sdk.queries.namespace import Queries
from antiphon.sdk.questions.namespace import Asker, Questions
from antiphon.sdk.webhooks.hook_file import HookFile
from antiphon.sdk.webhooks.incoming import Incoming, Wanted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from antiphon.core.families.jobs.state import Job
    from antiphon.engines.http import LogService as LogService  # noqa: PLC0414 - for its routes
    from antiphon.guard.metered import Turn
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.replica.replica import StoredRecord
    from antiphon.sdk.costs.cost_report import CostBy
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.mesh import Mesh

SCHEDULE, CANCEL = "/job/schedule", "/job/cancel"
SCHEDULE_BY, CANCEL_BY, ANSWER_BY = (SCHEDULE,), (CANCEL,), (ANSWERS,)
LOOKS: Final = 4
"""Of one page: some ten thousand jobs are examined."""
APPLIED_S: Final = 2.0
"""How long an answer waits until the node has read what it wrote."""
STORY_MOST: Final = 1_000
EVENTS_AT_ONCE: Final = 64
"""Records of a job that are read at a time for a stream."""
MOST_LINES: Final = 500
_TIMES: Final = ("since", "until")


class NodeApi:
    """One node, for programs that ask over HTTP."""

    def __init__(self, mesh: Mesh, node: FullNode, hooks: HookFile | None = None) -> None:
        """`mesh` signs what is written; `node` knows what is on the log."""
        self._mesh = mesh
        self._node = node
        self._connection = mesh.connection.beside(node.replica)
        self.inbox = NodeInbox(mesh)
        self.members = MemberDoor(node)
        """For members that sign each request themselves."""
        self.member_log = member_log(node.session)
        self._incoming = Incoming(hooks or HookFile(None))
        self.guard = node.guard
        """Counts everybody whom this node answers."""

    def now_ms(self) -> int:
        """What the node's clock says."""
        return self._node.session.wall.now_ms()

    # --- reading ----------------------------------------------------------------------------------

    def queries(self, bearer: Bearer) -> Queries:
        """What a party may see."""
        return Queries(self._connection, scope=bearer.scope)

    async def jobs(self, bearer: Bearer, asked: Mapping[str, Any]) -> models.JobList:
        """A page of jobs."""
        given = {name: _moment(one) if name in _TIMES else one for name, one in asked.items()}
        page = await self.queries(bearer).jobs(looks=LOOKS, **given)
        orders = self._node.replica.ask(ReplicaErasures).orders(page)
        views = [models.job_view(job, orders.get(job.id)) for job in page]
        return models.JobList(items=views, next=page.next)

    async def one_job(self, bearer: Bearer, text: str) -> tuple[models.JobView, int]:
        """One job as it is shown, and the record that said the last of it; 0 before its end."""
        job = await self.job(bearer, text)
        order = self._node.replica.ask(ReplicaErasures).orders([job]).get(job.id)
        last = order.seq if order is not None else job.ended_seq
        return models.job_view(job, order), last if job.is_terminal else 0

    async def job(self, bearer: Bearer, text: str) -> Job:
        """One job; `Rejected` if there is none that the party may see."""
        return await self.queries(bearer).job(text)

    async def nodes(self, bearer: Bearer, **how: Any) -> models.NodeList:
        """A page of nodes; of their kinds, those that the party may see."""
        page, kinds = await self.queries(bearer).nodes(**how), bearer.scope.of(*READ_BY)
        return models.NodeList(
            items=[
                models.NodeView(
                    node=one.card.node,
                    alias=one.card.alias,
                    role=one.card.role,
                    version=one.card.version,
                    agent=one.card.agent,
                    kinds=tuple(k for k in one.card.kinds if is_visible(k, kinds)),
                    labels=one.card.labels,
                    silent_ms=one.silent_ms,
                    level=one.level,
                )
                for one in page
            ],
            next=page.next,
        )

    async def plans(self, bearer: Bearer, **how: Any) -> models.PlanList:
        """A page of plans."""
        page = await self.queries(bearer).plans(**how)
        return models.PlanList(
            items=[
                models.PlanView(
                    name=one.name,
                    kind=one.kind,
                    when=one.when,
                    author=one.author,
                    problem=one.problem,
                    next=[tick.isoformat() for tick in one.next],
                )
                for one in page
            ],
            next=page.next,
        )

    async def locks(self, bearer: Bearer, **how: Any) -> models.LockList:
        """A page of locks."""
        page = await self.queries(bearer).locks(**how)
        names = models.LockView.__struct_fields__
        items = [models.LockView(**{name: getattr(one, name) for name in names}) for one in page]
        return models.LockList(items=items, next=page.next)

    async def limits(self, bearer: Bearer, **how: Any) -> models.LimitList:
        """A page of limits."""
        page = await self.queries(bearer).limits(**how)
        return models.LimitList(
            items=[
                models.LimitView(
                    label=one.label,
                    at_once=one.limit.at_once if one.limit is not None else None,
                    open=one.open,
                    waiting=one.waiting,
                )
                for one in page
            ],
            next=page.next,
        )

    async def attention(self, bearer: Bearer, **how: Any) -> models.AttentionList:
        """A page of what needs attention."""
        from antiphon.sdk.queries.attention import ends_with

        page = await self.queries(bearer).attention(**how)
        return models.AttentionList(
            items=[
                models.AttentionView(
                    service=one.service,
                    item=one.item,
                    reason=one.reason,
                    since_ms=one.since_ms,
                    tries=one.tries,
                    by=one.by,
                    ends_with=ends_with(one),
                    count=one.count,
                    error=one.error,
                )
                for one in page
            ],
            next=page.next,
        )

    async def reports(self, bearer: Bearer, **how: Any) -> models.ReportList:
        """A page of bar reports."""
        page = await self.queries(bearer).reports(**how)
        return models.ReportList(
            items=[
                models.ReportView(
                    start_ms=one.start_ms,
                    end_ms=one.end_ms,
                    kpis=dict(one.report.kpis),
                    alarms=[str(alarm.name) for alarm in one.alarms],
                )
                for one in page
            ],
            next=page.next,
        )

    async def questions(self, bearer: Bearer, **how: Any) -> models.QuestionList:
        """A page of questions that nobody has answered."""
        page = await self.queries(bearer).questions(**how)
        return models.QuestionList(items=list(page), next=page.next)

    async def question(self, bearer: Bearer, text: str) -> models.QuestionView:
        """One question, with its answer if there is one."""
        job = await self.job(bearer, text)
        shown = await Questions(self._connection).find(job.id, kinds=(job.kind,))
        answer, by = None, ""
        if job.is_terminal:
            for stored in self._node.replica.lane_records(job_key(job.kind, job.id)):
                op = self._node.session.open(stored.record).op
                if stored.verdict is Verdict.OK and isinstance(op, JobComplete):
                    said = answer_in(op.body.outputs)
                    answer = None if said is None else msgspec.json.decode(said)
                    by = op.author if op.body.answered is not None else ""
        return models.QuestionView(
            **structs.asdict(shown), state=job.state, answer=answer, answered_by=by
        )

    async def cost(
        self, bearer: Bearer, *, by: CostBy, since: str = "", kind: str = ""
    ) -> models.CostView:
        """What jobs cost that the party may see."""
        moment = _moment(since) if since else None
        if isinstance(moment, str):
            ago_ms = self._connection.session.wall.now_ms() - round(seconds(moment) * 1000)
            moment = datetime.fromtimestamp(max(ago_ms, 0) / 1000, UTC)
        found = await self.queries(bearer).cost(by=by, since=moment, kind=kind)
        names = models.CostLineView.__struct_fields__
        lines = [
            models.CostLineView(**{name: getattr(one, name) for name in names})
            for one in (found.total, *found.lines[:MOST_LINES])
        ]
        return models.CostView(by=by, total=lines[0], lines=lines[1:])

    def pauses(self, bearer: Bearer) -> models.PauseList:
        """The pauses that are about jobs which the party may see."""
        kinds = bearer.scope.of(*READ_BY)
        return models.PauseList(
            items=[
                models.PauseView(
                    kind=one.kind,
                    label=one.label,
                    plan=one.plan,
                    by=one.by,
                    since_ms=one.since_ms,
                    reason=one.reason,
                )
                for one in self._node.session.control.pauses
                if EVERY_KIND in kinds or (one.kind and is_visible(one.kind, kinds))
            ]
        )

    async def content(self, bearer: Bearer, text: str) -> JobContent:
        """What a job wrote and prints."""
        return JobContent(self._mesh.connection, await self.job(bearer, text), bearer)

    async def bundle(self, bearer: Bearer, text: str) -> bytes:
        """The bundle of a job that ended and is sealed."""
        job = await self.job(bearer, text)
        made = await bundles.bundle_bytes(self._node.replica, job_key(job.kind, job.id))
        if made is None:
            raise Rejected(
                "no seal covers this job yet",
                reason="not_sealed",
                hint="a seal follows within a bar, about half a minute; ask again",
            )
        return made

    def verify(self, data: bytes, turn: Turn) -> models.Verified:
        """Check a bundle; `Rejected` with the reason if it is not valid. Calls `turn` often."""
        report = bundles.open_bundle(data, turn=turn)
        return models.Verified(
            mesh=report.mesh,
            owner=report.owner,
            kind=report.key.kind,
            name=report.key.name,
            records=report.records,
            story=[line.words for line in report.story()[:STORY_MOST]],
        )

    async def events(
        self, bearer: Bearer, text: str, *, after: int, wait_s: float
    ) -> AsyncIterator[models.JobView | models.JobEvent | None]:
        """A job as it is now, and its records from a sequence on; None when nothing came for long.

        Ends with the job.
        """
        job = await self.job(bearer, text)
        replica, orders = self._node.replica, self._node.replica.ask(ReplicaErasures)
        yield models.job_view(job, orders.about(job))
        key, seen = job_key(job.kind, job.id), after
        while True:
            with self._node.watching(job.id) as news:
                page = replica.lane_records(key, after=seen, limit=EVENTS_AT_ONCE)
                is_forgotten = orders.about(job) is not None
                for stored in page:
                    seen = stored.record.seq
                    if stored.erased is None and not is_forgotten:
                        yield self._told(stored)
                if len(page) == EVENTS_AT_ONCE:
                    continue
                now = await self.job(bearer, job.id)
                if now.is_terminal:
                    yield models.job_view(now, orders.about(now))
                    return
                try:
                    async with asyncio.timeout(wait_s):
                        await news.wait()
                except TimeoutError:
                    yield None

    def _told(self, stored: StoredRecord) -> models.JobEvent:
        (line,) = tell([(self._node.session.open(stored.record), stored.verdict)])
        return models.JobEvent(
            seq=line.seq,
            at_ms=line.commit_ms,
            op=line.op,
            author=line.author,
            verdict=line.verdict.value,
            words=line.words,
        )

    # --- writing ----------------------------------------------------------------------------------

    async def submit(
        self, bearer: Bearer, body: models.SubmitBody, *, key: str = ""
    ) -> models.Submitted:
        """Submit a job; with a key, the same again is the same job."""
        options: dict[str, Any] = {"priority": body.priority}
        if body.delay is not None:
            options["delay"] = body.delay
        if body.timeout is not None:
            options["timeout"] = body.timeout
        if body.attempts is not None:
            options["attempts"] = body.attempts
        if body.requires:
            options["requires"] = body.requires
        if body.label is not None:
            options["concurrency"] = body.label
        if key:
            # A key is its party's: nobody finds out about another's jobs by guessing keys.
            options["idempotency_key"] = blake3(f"{bearer.party} {key}".encode()).hexdigest()
        given: Any = options
        call = Call.of(body.kind, tuple(body.args), body.kwargs, given)
        handle: JobHandle[Any] = await self._mesh.submit(call)
        await self._read_back()
        return models.Submitted(id=handle.id, kind=handle.kind, is_new=handle.is_new)

    async def cancel(self, bearer: Bearer, text: str, reason: str) -> models.JobView:
        """Cancel a job that has not ended; the job afterwards."""
        job = await self.queries(bearer).job(text, to=CANCEL)
        ended = await handle_on(self._mesh.connection, job.kind, job.id).cancel(reason)
        await self._read_back()
        return models.job_view(ended)

    async def retry(self, bearer: Bearer, text: str) -> models.Submitted:
        """Submit a job again that ended without a result."""
        job = await self.queries(bearer).job(text, to=SCHEDULE)
        handle = await handle_on(self._mesh.connection, job.kind, job.id).retry()
        await self._read_back()
        return models.Submitted(id=handle.id, kind=handle.kind, is_new=handle.is_new)

    async def link(self, bearer: Bearer, text: str, body: models.LinkBody) -> models.LinkMade:
        """A link to a job, for the operator. Others sign theirs with their own keys.

        A bar-bound token ends in a minute: it must not be worth more than that to whoever has it.
        """
        job = await self.job(bearer, text)
        if bearer.holder.startswith("did:"):
            raise Rejected(
                "a link is signed by whoever answers for it, and this node does not for you",
                reason="own_key",
                hint=f"on your own machine: antiphon link {job.id[:8]} --for 2h",
            )
        made = make_link(self._mesh, job, lasts=body.lasts, outputs=body.outputs, is_node=True)
        return models.LinkMade(
            job=made.job, token=made.token, path=made.path, until_ms=made.until_ms
        )

    async def answer(self, bearer: Bearer, text: str, value: Any) -> models.AnswerGiven:
        """Answer a question with the key of the node's program, if it and the party may.

        The answer is that key's. So a party cannot answer here what it asks itself, or is excluded
        from, and where several people are asked each of them has to sign with an own key.
        """
        job = await self.queries(bearer).job(text, to=ANSWERS)
        asker = Asker(bearer.holder, bearer.auth) if bearer.holder.startswith("did:") else None
        given = await Questions(self._mesh.connection).answer_once(
            job.kind, job.id, value, asker=asker
        )
        await self._read_back()
        return models.AnswerGiven(
            id=given.job.id,
            kind=given.job.kind,
            outcome=given.job.outcome,
            signed_by=given.signed_by,
            is_new=given.is_new,
        )

    def wanted(self, name: str, headers: Mapping[str, str], body: bytes) -> Wanted:
        """What a webhook's request asks for; `Rejected` if nobody with its secret sent it."""
        return self._incoming.wanted(name, headers, body, now_s=self.now_ms() // 1000)

    async def hook(self, name: str, wanted: Wanted) -> models.HookDone:
        """Do it, in the name of the node's program."""
        if wanted.answer is None:
            call = models.SubmitBody(kind=wanted.hook.submit, args=list(wanted.args))
            bearer = Bearer(holder=f"hook {name}", command=SCHEDULE, kinds=(EVERY_KIND,))
            made = await self.submit(bearer, call, key=wanted.key)
            return models.HookDone(id=made.id, kind=made.kind, is_new=made.is_new)
        kind = wanted.hook.answer
        kinds = (kind, f"{kind}.>")
        bearer = Bearer(holder=f"hook {name}", command=ANSWERS, kinds=kinds)
        given = await self.answer(bearer, wanted.answer.question, wanted.answer.answer)
        return models.HookDone(id=given.id, kind=given.kind, is_new=given.is_new)

    async def _read_back(self) -> None:
        """Wait until the node has read what was just written, so that the next answer has it."""
        newest = await self._mesh.connection.session.log.last()
        with suppress(TimeoutError):
            async with asyncio.timeout(APPLIED_S):
                await self._node.reached(newest.seq if newest is not None else 0)


def _moment(text: str) -> Any:
    """A time as a query says it: ISO 8601 with its zone, or how long ago."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    if found.tzinfo is None:
        raise Malformed(
            f"{text} has no time zone", reason="time", hint="write 2026-11-18T08:00Z, or 2h"
        )
    return found


__all__ = [
    "ANSWER_BY",
    "CANCEL_BY",
    "DOCUMENTS_READ_BY",
    "LOCKS_READ_BY",
    "READ_BY",
    "SCHEDULE_BY",
    "SEND_BY",
    "Asked",
    "Member",
    "MemberDoor",
    "NodeApi",
    "Place",
]
