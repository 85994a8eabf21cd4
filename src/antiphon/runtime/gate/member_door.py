"""What members without a login at the engine ask of a node: jobs to claim, and to store records.

Each request is signed (`core/bus/http_request.py`), so there is no secret to share and nothing to
send again. The door adds no right and decides nothing: it shows what the asker's scope lets it
read, and stores what the gate would store, or what a login would let the asker write itself
(`relay_rules`). Whatever it stores is judged by every node like anybody's record.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from antiphon.core import opened_record
from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.authority.scope import NOTHING, Scope, scope_of
from antiphon.core.bus.http_request import Asked, SeenRequests, open_request
from antiphon.core.bus.signed_message import Refused
from antiphon.core.families.jobs.ops import ClaimBody, CompleteBody, JobClaim, JobComplete
from antiphon.core.families.jobs.state import Job, JobLane, job_key
from antiphon.core.family import Needs
from antiphon.core.messages.send_right import rights_of
from antiphon.core.record.op import VERSION
from antiphon.core.record.verdict import Verdict
from antiphon.core.reducer import judge
from antiphon.errors import LostRace, RateLimited, Rejected, Unavailable
from antiphon.runtime.caller.erasure import forgotten
from antiphon.runtime.gate.relay_rules import Asker, RelayRules
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_lane
from antiphon.runtime.rights_cache import RightsCache

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.runtime.node.full_node import FullNode

KEPT: Final = 4_096
RIGHTS_S: Final = 2.0
"""How long rights count that end by time alone; a revocation counts at once."""
WAIT_S: Final = 20.0
"""How long a request for offers waits at most."""
LOOK_EVERY_S: Final = 0.1
LOOK_AT_LEAST_S: Final = 1.0
"""A job can become claimable by time alone."""
LOOKED_AT: Final = 512
OFFERS: Final = 16
APPLIED_S: Final = 2.0
"""How long an answer waits until the node has read what it stored."""
_PAGE: Final = 128
_ANY_FENCE: Final = "0" * 16
_WORDS: Final = {
    Refused.MESH: "this request is signed for another mesh",
    Refused.SUBJECT: "this request is signed for another method or target",
    Refused.STALE: "this request is too old, or from the future: compare the clocks",
    Refused.SIGNATURE: "this request is not signed by the key that it names, or has another body",
}


class Member(Struct, frozen=True, kw_only=True):
    """Whoever signed a request."""

    key: str
    nonce: str
    party: str
    """For whom it counts."""
    scope: Scope
    chains: ChainChoice


class JobHead(Struct, frozen=True, kw_only=True):
    """What the next record about a job has to follow."""

    kind: str
    id: str
    state: str
    prev: int
    """The last sequence on the job's own subject: `prev` of the next record there."""
    hlc: tuple[int, int]
    """The next record's must be later."""
    claimer: str
    fence: str
    deadline_ms: int
    lease_ms: int
    lease_ms_max: int


class Offer(Struct, frozen=True, kw_only=True):
    """A job that the asker could claim now."""

    job: JobHead
    auth: dict[str, tuple[str, ...]]
    """By command: the delegations that its records name."""
    schedule: str
    """The record with which the job was submitted."""


class LaneRecord(Struct, frozen=True, kw_only=True):
    """A record of a job's lane, and the node's verdict on it; empty: not judged yet."""

    seq: int
    at_ms: int
    subject: str
    verdict: str
    record: str


class LanePage(Struct, frozen=True, kw_only=True):
    """A job, and records of its lane in the order of the log."""

    job: JobHead
    records: list[LaneRecord]
    next: int | None
    """Ask again `after` this one; None: there are no more."""


class Place(NamedTuple):
    """Where a record is to be stored, by its sender's words."""

    subject: str
    message_id: str
    prev: int


class Stored(Struct, frozen=True, kw_only=True):
    """Where a record was stored, and the node's verdict; empty: not judged yet."""

    seq: int
    verdict: str


class MemberDoor:
    """Beside a full node that reaches the whole log."""

    def __init__(self, node: FullNode) -> None:
        self._node = node
        self._session = node.session
        self._seen = SeenRequests()
        self._members = RightsCache(self._session, self._look_up, most=KEPT, kept_s=RIGHTS_S)
        store = self._session.engine.messages
        self._rules = (
            None
            if store is None
            else RelayRules(self._session, self._asker, store, is_only_way=True)
        )

    async def close(self) -> None:
        """Write down what was counted."""
        if self._rules is not None:
            await self._rules.close()

    # --- who asks -----------------------------------------------------------------------------

    def identify(self, asked: Asked, header: str) -> Member:
        """Whoever signed a request; `Rejected` if nobody did, or nobody that is known."""
        session = self._session
        found = open_request(asked, header, mesh=session.mesh, now_ms=session.wall.now_ms())
        if isinstance(found, Refused):
            raise Rejected(_WORDS.get(found, "this is not a signed request"), reason=found)
        known = self._members.of(found.author)
        if known is None:
            raise Rejected(
                f"no delegations lead from the mesh's owner to {found.author}",
                reason=Verdict.NO_CHAIN.value,
                hint=f"on the owner's machine: antiphon delegate {found.author}"
                " --can claim --kind KIND (to submit: --can schedule)",
            )
        party, scope, chains = known
        nonce = found.body.nonce
        return Member(key=found.author, nonce=nonce, party=party, scope=scope, chains=chains)

    def take(self, member: Member) -> None:
        """Answer this request once; `Rejected` if it came before."""
        now_ms = self._session.wall.now_ms()
        noted = self._seen.note(member.party, member.key, member.nonce, now_ms)
        if noted == "seen":
            raise Rejected("this request was answered before: sign a new one", reason="replay")
        if noted == "full":
            raise RateLimited("too many requests within a minute", retry_s=30.0)

    def _look_up(self, did: str) -> tuple[str, Scope, ChainChoice] | None:
        """A key's party and scope. On an open mesh no key is known: there are no delegations."""
        control, now_s = self._session.control, self._session.wall.now_ms() // 1000
        if control.rules.authority == "open" and did != control.owner:
            return None
        scope = scope_of(control, self._session.protocol.branches, did, now_s)
        if scope == NOTHING:
            return None
        return rights_of(control, did).party, scope, ChainChoice(did)

    def _asker(self, did: str) -> Asker | None:
        known = self._members.of(did)
        return None if known is None else Asker(*known[:2])

    # --- reading ------------------------------------------------------------------------------

    async def offers(self, member: Member, kind: str, wait_s: float) -> list[Offer]:
        """Jobs of a kind, or below it, that the asker could claim; waits until there is one."""
        loop = asyncio.get_running_loop()
        until_s, after = loop.time() + min(wait_s, WAIT_S), 0
        while True:
            applied = self._node.applied
            found, after = self._claimable(member, kind, after)
            left_s = until_s - loop.time()
            if found or left_s <= 0:
                return found
            if not after:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, LOOK_AT_LEAST_S)):
                        await self._node.reached(applied + 1)
            await asyncio.sleep(LOOK_EVERY_S)  # others' records come often

    def _claimable(self, member: Member, kind: str, after: int) -> tuple[list[Offer], int]:
        """Offers behind a sequence, and where the next look begins: 0 if this one saw the end."""
        control, jobs = self._session.control, self._node.replica.ask(ReplicaJobs)
        found = list[Offer]()
        for _ in range(LOOKED_AT // _PAGE):
            page = jobs.pending(kind, limit=_PAGE, after=after)
            for job in page:
                if not member.scope.admits(job.kind, JobClaim.COMMAND):
                    continue
                offer = self._offer(member, control, job)
                if offer is not None:
                    found.append(offer)
                if len(found) == OFFERS:
                    return found, 0
            if len(page) < _PAGE:
                return found, 0
            after = page[-1].scheduled_seq
        return found, after

    def _offer(self, member: Member, control: Control, job: Job) -> Offer | None:
        """A job, if the rules would accept the asker's claim now."""
        lane = job_lane(self._node.replica, job.kind, job.id)
        if lane.job is None:
            return None
        now_ms = self._session.wall.now_ms()
        body = ClaimBody(kind=job.kind, job=job.id, lease_ms=job.lease_ms, begin=True)
        chosen = member.chains.choose(control, JobClaim, body, now_ms)
        claim = JobClaim(
            v=VERSION,
            mesh=self._session.mesh,
            author=member.key,
            hlc=max((now_ms, 0), (lane.job.hlc[0], lane.job.hlc[1] + 1)),
            prev=lane.job_tail,
            auth=chosen,
            body=body,
        )
        seq = max(self._node.applied, *lane.tails) + 1
        shown = opened_record.unsigned(self._session.protocol, claim, seq, now_ms)
        outcome = judge(control, lane, shown)
        if not isinstance(outcome, Needs) and outcome.verdict is not Verdict.OK:
            return None
        stored = self._node.replica.record(job.scheduled_seq)
        if stored is None:
            return None
        ends = CompleteBody(kind=job.kind, job=job.id, fence=_ANY_FENCE, status="succeeded")
        ending = member.chains.choose(control, JobComplete, ends, now_ms)
        auth = {JobClaim.COMMAND: chosen, JobComplete.COMMAND: ending}
        schedule = stored.record.payload.decode()
        return Offer(job=_head(lane, lane.job), auth=auth, schedule=schedule)

    async def lane(self, member: Member, kind: str, job: str, after: int) -> LanePage:
        """A job as it is, and a page of its records."""
        if not member.scope.admits(kind, *READ_BY):
            raise Rejected(f"this key may not read {kind!r}", reason=Verdict.POLICY.value)
        key, node, session = job_key(kind, job), self._node, self._session
        lane = job_lane(node.replica, kind, job)
        if lane.job is None:
            raise Rejected("there is no such job", reason=Verdict.NO_JOB.value)
        order = node.replica.ask(ReplicaErasures).about(lane.job)
        if order is not None and lane.job.is_terminal:
            raise forgotten(order, job)
        subjects, records = session.protocol.subjects_of(session.mesh, key), list[LaneRecord]()
        async for page in session.log.read_lane(subjects, after=after):
            for record in page:
                judged = node.replica.record(record.seq)
                records.append(
                    LaneRecord(
                        seq=record.seq,
                        at_ms=record.commit_ms,
                        subject=record.subject,
                        verdict="" if judged is None else judged.verdict.value,
                        record=record.payload.decode(errors="replace"),
                    )
                )
            break
        more = records[-1].seq if records and records[-1].seq < max(lane.tails) else None
        return LanePage(job=_head(lane, lane.job), records=records, next=more)

    # --- writing ------------------------------------------------------------------------------

    async def store(self, member: Member, payload: bytes, place: Place | None = None) -> Stored:
        """Store a record that the asker signed; `Rejected` with the verdict that it would get.

        With a `place`, that has to be its own, and its message id is taken.
        """
        if self._rules is None:
            raise Unavailable(
                "this node cannot store others' records: its login is for some kinds only",
                hint="ask a node on the machine where 'antiphon init' ran",
            )
        log, node = self._session.log, self._node
        try:
            subject, message_id, prev = await self._rules.accept(member.key, payload)
            if place is not None:
                if (place.subject, place.prev) != (subject, prev):
                    raise Rejected("the record belongs elsewhere", reason=Verdict.SUBJECT.value)
                message_id = place.message_id or message_id
            seq = await log.append(subject, payload, message_id=message_id, expected_last=prev)
        except LostRace:
            # Whoever got no answer sends the same bytes again.
            seq = await self._find(payload)
            if not seq:
                raise
        with suppress(TimeoutError):
            async with asyncio.timeout(APPLIED_S):
                await node.reached(seq)
        judged = node.replica.record(seq)
        return Stored(seq=seq, verdict="" if judged is None else judged.verdict.value)

    async def _find(self, payload: bytes) -> int:
        """Where exactly this record is stored; 0 if it is not.

        Its compare-and-set puts it directly behind its predecessor, or nowhere.
        """
        session = self._session
        shown = opened_record.open_anywhere(session.protocol, session.mesh, payload)
        if shown.op is None:
            return 0
        async for page in session.log.read_lane([shown.subject], after=shown.op.prev):
            return page[0].seq if page[0].payload == payload else 0
        return 0


def _head(lane: JobLane, job: Job) -> JobHead:
    return JobHead(
        kind=job.kind,
        id=job.id,
        state=job.state.value,
        prev=lane.job_tail,
        hlc=job.hlc,
        claimer=job.claimer,
        fence=job.fence,
        deadline_ms=job.deadline_ms,
        lease_ms=job.lease_ms,
        lease_ms_max=job.lease_ms_max,
    )
