"""What the outsider signs: well-formed ops under its own key that claim what is not its own.

They lie on subjects that it may write on, so only the rules can refuse them. Each says which
reason it must be refused for, by the full node and by a light reader alike.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.authority.delegations import token_of
from antiphon.core.clock.hlc import pack
from antiphon.core.cost.usage import Usage
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.completion_proof import answer_statement_of, statement_of
from antiphon.core.families.jobs.ops import (
    CancelBody,
    ClaimBody,
    CompleteBody,
    ExpireBody,
    JobCancel,
    JobClaim,
    JobComplete,
    JobExpire,
    JobSchedule,
    JobYield,
    ScheduleBody,
    YieldBody,
)
from antiphon.core.families.jobs.state import job_key
from antiphon.core.inference.snapshot import SNAPSHOT_TYPE
from antiphon.core.proof.answer import Answered, answer_output
from antiphon.core.proof.output import Output
from antiphon.core.proof.statement import PAYLOAD_TYPE, UNSIGNED, Proof
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import digest
from antiphon.core.record.op import subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import Payload, Policy
from antiphon.errors import EngineDenied
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.hosting.strongest_key import with_authority
from chaos.network.raw_connection import RawConnection
from chaos.outsider.attacks.headers import own_subject, stored
from chaos.outsider.attempt import Attempt, Outcome
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh

QUESTION: Final = "may the outsider do this?"
NOWHERE: Final = "b" + "a" * 58
_ANY_TIME: Final = 2**62
_HOUR_MS: Final = 3_600_000
_YEAR_MS: Final = 366 * 24 * _HOUR_MS


class Signed(Struct, frozen=True):
    """A record, and where it belongs."""

    subject: str
    payload: bytes
    op_id: str


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def grants_of(target: TargetMesh, did: str) -> dict[str, str]:
    """The ids of the delegations to a key, by command; every member may read them."""
    book = target.host.node.session.control.grants
    return {link.payload.cmd: link.cid for link in book.given_to(did, before=_ANY_TIME)}


async def tail_of(target: TargetMesh, subject: str) -> int:
    """The newest record on a control subject."""
    session = target.host.node.session
    await session.sync_control()
    return session.history.tail(subject)


class Forger:
    """Signs whatever it is told with the contractor's machine key, or another."""

    def __init__(self, target: TargetMesh, key: SeedKeyring | None = None) -> None:
        self.target = target
        self.key = key or target.contractor.signer("machine")
        self.owner = target.host.node.session.control.owner
        self._count = 0

    def chain(self, command: str) -> tuple[str, ...]:
        """The chain that it really holds."""
        return (grants_of(self.target, self.key.did)[command],)

    def sign(self, type_: Callable[..., Any], body: Struct, **other: Any) -> Signed:
        """An op with any field set to anything."""
        self._count += 1
        fields: dict[str, Any] = {
            "v": 1,
            "mesh": self.target.mesh,
            "author": self.key.did,
            "hlc": (now_ms(), self._count),
            "prev": 0,
            "deps": (),
            "auth": (),
            **other,
        }
        op = type_(**fields, body=body)
        op_bytes = codec.encode(op)
        block = signing.Block(sig=self.key.sign(signing.OP_TYPE, op_bytes))
        return Signed(subject_of(op, op_bytes), signing.frame(op_bytes, block), digest(op_bytes))

    async def put(self, record: Signed, *, on: str = "") -> Verdict:
        """Write it on the log; the full node's verdict."""
        return await self.target.verdict(await self.store(record, on=on))

    async def store(self, record: Signed, *, on: str = "") -> int:
        """Write it on the log; its sequence."""
        return await stored(self.target, on or record.subject, b"", record.payload)

    async def post(self, record: Signed, connection: RawConnection | None = None) -> dict[str, Any]:
        """Hand it to the gate, as members do with revocations and evidence; its answer."""
        connection = connection or self.target.connection
        if not await connection.is_refused(record.subject, record.payload):
            raise Breach(f"the server took a record on {record.subject}")
        for _ in range(40):
            found = await connection.ask(
                f"apg.{self.target.mesh}.{connection.user}.post", record.payload
            )
            if not found:
                raise Breach("the gate did not answer")
            answer: dict[str, Any] = json.loads(found[0].data or b'{"again": ""}')
            if "again" not in answer:
                return answer
            await asyncio.sleep(0.25)  # it does not hear whoever floods it
        raise Breach("the gate does not hear it any more")

    def delegation(self, to: str, *, command: str = "/", **other: Any) -> Payload:
        """A delegation by this key."""
        fields: dict[str, Any] = {
            "iss": self.key.did,
            "aud": to,
            "sub": self.owner,
            "cmd": command,
            "pol": Policy([]),
            "nonce": os.urandom(12),
            "exp": None,
            "meta": UNSET,
            **other,
        }
        return Payload(**fields)

    async def delegate(self, to: str, **other: Any) -> tuple[str, Verdict]:
        """Have the gate put such a delegation on the log; its id, and the verdict."""
        made = self.key.delegate(self.delegation(to, **other))
        record = self.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
        answer = await self.post(record)
        if "refused" in answer:
            return made.cid, Verdict(answer["reason"])
        return made.cid, await self.target.verdict(answer["seq"])


async def called(target: TargetMesh) -> str:
    """A job of the outsider's own kind that the owner calls."""
    return (await target.owner.submit(RENDER, f"frame {os.urandom(4).hex()}")).id


def a_claim(job_id: str, kind: str = RENDER, lease_ms: int = 10_000) -> ClaimBody:
    return ClaimBody(kind=kind, job=job_id, lease_ms=lease_ms)


async def agreed(
    target: TargetMesh, record: Signed, verdict: Verdict, expected: Verdict
) -> Outcome:
    """The full node's verdict is the one expected, and a light reader's is the same."""
    if verdict is not expected:
        raise Breach(f"the rules said {verdict.value!r}, not {expected.value!r}")
    lane = PROTOCOL.lane_of(record.subject)
    if lane is not None and lane.kind == RENDER:
        view = await target.owner.connection.session.read_lane(lane.kind, lane.name)
        light = view.verdict_of(record.op_id)
        if light not in {verdict, None}:
            raise Breach(f"a light reader says {light!r}, the full node {verdict.value!r}")
    return Outcome("rules", verdict.value)


def _forging(
    name: str, expected: Verdict, make: Callable[[Forger, str], Signed], *, elsewhere: bool = False
) -> Attempt:
    """Sign something about a job that was really called; `elsewhere`: on a subject of its own."""

    async def act(target: TargetMesh) -> Outcome:
        job = await called(target)
        record = make(Forger(target), job)
        verdict = await Forger(target).put(record, on=own_subject(target) if elsewhere else "")
        return await agreed(target, record, verdict, expected)

    return Attempt(name, act)


def _victims_chain(forger: Forger) -> tuple[str, ...]:
    target = forger.target
    return (grants_of(target, target.victim.signer("machine").did)["/job/claim"],)


def _scheduling(forger: Forger, _job: str) -> Signed:
    content = manifest.author(
        {"command": [f"@{RENDER}"], "args": [call_text(("x",), {})], "timeout": 60}
    )
    body = ScheduleBody(kind=RENDER, manifest=content)
    return forger.sign(JobSchedule, body, auth=forger.chain("/job/claim"))


def _claiming(**other: Any) -> Callable[[Forger, str], Signed]:
    def make(forger: Forger, job_id: str) -> Signed:
        fields = {name: one(forger) if callable(one) else one for name, one in other.items()}
        fields.setdefault("auth", forger.chain("/job/claim"))
        return forger.sign(JobClaim, a_claim(job_id), **fields)

    return make


_CLAIMS: Final = [
    _forging("claim under the victim's chain", Verdict.NO_CHAIN, _claiming(auth=_victims_chain)),
    _forging("claim under nothing", Verdict.NO_CHAIN, _claiming(auth=())),
    _forging("claim under an invented chain", Verdict.NO_CHAIN, _claiming(auth=(NOWHERE,))),
    _forging(
        "claim under the right to complete",
        Verdict.COMMAND,
        _claiming(auth=lambda forger: forger.chain("/job/complete")),
    ),
    _forging(
        "claim as of yesterday",
        Verdict.STALE,
        _claiming(hlc=lambda _: (now_ms() - 24 * _HOUR_MS, 0)),
    ),
    _forging(
        "claim as of last year", Verdict.TOO_OLD, _claiming(hlc=lambda _: (now_ms() - _YEAR_MS, 0))
    ),
    _forging(
        "claim as of next hour", Verdict.DRIFT, _claiming(hlc=lambda _: (now_ms() + _HOUR_MS, 0))
    ),
    _forging("claim behind a record that is not there", Verdict.PREV, _claiming(prev=1)),
    _forging("claim on another mesh", Verdict.MESH, _claiming(mesh="a" * 16), elsewhere=True),
    _forging(
        "claim in the victim's name",
        Verdict.SIGNATURE,
        _claiming(author=lambda forger: forger.target.victim.signer("machine").did),
    ),
    _forging(
        "claim for ever",
        Verdict.LEASE,
        lambda forger, job: forger.sign(
            JobClaim, a_claim(job, lease_ms=_YEAR_MS), auth=forger.chain("/job/claim")
        ),
    ),
    _forging(
        "claim of the victim's kind, on its own subject",
        Verdict.SUBJECT,
        lambda forger, job: forger.sign(
            JobClaim, a_claim(job, BUILD), auth=forger.chain("/job/claim")
        ),
        elsewhere=True,
    ),
    _forging("claim on another job's subject", Verdict.SUBJECT, _claiming(), elsewhere=True),
    _forging("call a job", Verdict.COMMAND, _scheduling),
    _forging(
        "cancel the owner's job",
        Verdict.COMMAND,
        lambda forger, job: forger.sign(
            JobCancel,
            CancelBody(kind=RENDER, job=job, reason="x"),
            auth=forger.chain("/job/complete"),
        ),
    ),
]


def _interfering(
    name: str, expected: Verdict, kind: Any, body: Callable[[str, str], Struct]
) -> Attempt:
    """Write on a job that the owner's own machine holds, with the fence that is on the log."""

    async def act(target: TargetMesh) -> Outcome:
        job_id = await called(target)
        holder = target.owner.connection.session
        draft = holder.draft(JobClaim, a_claim(job_id), prev=0)
        held_at = await holder.commit(draft)
        view = await holder.read_lane(RENDER, job_id, at_least=held_at)
        fence = view.lane.job.fence if view.lane.job is not None else ""
        forger = Forger(target)
        chain = forger.chain("/job/complete")
        record = forger.sign(kind, body(job_id, fence), prev=held_at, auth=chain)
        return await agreed(target, record, await forger.put(record), expected)

    return Attempt(name, act)


_INTERFERING: Final = [
    _interfering(
        "complete under somebody's fence",
        Verdict.NOT_CLAIMER,
        JobComplete,
        lambda job, fence: CompleteBody(kind=RENDER, job=job, fence=fence, status="failed"),
    ),
    _interfering(
        "give back somebody's job",
        Verdict.NOT_CLAIMER,
        JobYield,
        lambda job, fence: YieldBody(kind=RENDER, job=job, fence=fence, reason="other"),
    ),
    _interfering(
        "expire a lease before its time",
        Verdict.EARLY,
        JobExpire,
        lambda job, fence: ExpireBody(kind=RENDER, job=job, fence=fence),
    ),
]


# --- answers of others --------------------------------------------------------------------------


def _answer(
    forger: Forger, job: str, fence: str, *, signed_by: SeedKeyring | None = None
) -> Struct:
    """A yes to the owner's question."""
    key = signed_by or forger.key
    body = CompleteBody(
        kind=RENDER,
        job=job,
        fence=fence or "0" * 16,
        status="succeeded",
        outputs=(answer_output('"yes"'),),
    )
    said = Answered(text=QUESTION, at="0" * 16, sig=UNSIGNED)
    payload = codec.encode(answer_statement_of(forger.target.mesh, key.did, body, said))
    return replace(body, answered=replace(said, sig=key.sign(PAYLOAD_TYPE, payload)))


def _answering(
    name: str,
    expected: Verdict,
    make: Callable[[Forger, str, str], Signed],
    *,
    is_held: bool = False,
) -> Attempt:
    """Try to answer what the owner asks people, of a kind that the outsider may run jobs of."""

    async def act(target: TargetMesh) -> Outcome:
        handle = await target.owner.questions.ask(QUESTION, kind=RENDER, choices=("yes", "no"))
        fence, prev = "", 0
        if is_held:
            home = await target.join(f"person-{os.urandom(2).hex()}", can="answer")
            async with assembly.join(home, "client") as person:
                session = person.session
                await session.sync_control()
                claim = replace(a_claim(handle.id), answers=True)
                prev = await session.commit(session.draft(JobClaim, claim, prev=0))
                view = await session.read_lane(RENDER, handle.id, at_least=prev)
                fence = view.lane.job.fence if view.lane.job is not None else ""
        record = make(Forger(target), handle.id, fence)
        if is_held and not fence:
            raise Breach("a person who may answer could not take the question")
        verdict = await Forger(target).put(record)
        return await agreed(target, record, verdict, expected)

    return Attempt(name, act)


async def _set_audit(target: TargetMesh, is_on: bool) -> None:  # noqa: FBT001 - on or off
    async with with_authority(target.owner_home.path) as owner:
        await owner.authority.set_rules({"audit_inference": is_on})


def _unaccounted(name: str, *, audited: bool, outputs: int = 0, **says: Any) -> Attempt:
    """Complete a job of its own with a true proof and a false account of its model calls."""

    async def act(target: TargetMesh) -> Outcome:
        job_id, forger = await called(target), Forger(target)
        await _set_audit(target, audited)
        try:
            at = (now_ms(), 0)
            claim = forger.sign(JobClaim, a_claim(job_id), auth=forger.chain("/job/claim"), hlc=at)
            held_at = await forger.store(claim)
            await target.verdict(held_at)
        finally:
            await _set_audit(target, False)
        made_up = [
            Output(name=f"snapshot-{number}", type=SNAPSHOT_TYPE, text="{}")
            for number in range(outputs)
        ]
        body = CompleteBody(
            kind=RENDER,
            job=job_id,
            fence=pack(at),
            status="succeeded",
            outputs=tuple(made_up),
            **says,
        )
        proof = Proof(sig=UNSIGNED, ended=pack(at), runner=python_runner(), usage=Usage(wall_ms=1))
        said = codec.encode(statement_of(target.mesh, forger.key.did, body, proof))
        proved = replace(body, proof=replace(proof, sig=forger.key.sign(PAYLOAD_TYPE, said)))
        chain = forger.chain("/job/complete")
        record = forger.sign(JobComplete, proved, prev=held_at, auth=chain)
        return await agreed(target, record, await forger.put(record), Verdict.AUDIT)

    return Attempt(name, act)


async def _answers_nothing_else(target: TargetMesh) -> Outcome:
    """What a key that may answer tries beside: to run a job, and to ask."""
    home = await target.join(f"person-{os.urandom(2).hex()}", can="answer")
    job_id = await called(target)
    async with assembly.join(home, "client") as person:
        session = person.session
        await session.sync_control()
        said = []
        for answers in (False, True):
            lane = (await session.read_lane(RENDER, job_id)).lane
            claim = replace(a_claim(job_id), answers=answers)
            seq = await session.commit(session.draft(JobClaim, claim, prev=lane.job_tail))
            said.append(await target.verdict(seq))
        if said != [Verdict.COMMAND, Verdict.QUESTION]:
            raise Breach(f"the rules said {said}")
        try:
            body = ScheduleBody(
                kind=RENDER,
                manifest=manifest.author({"command": ["true"], "args": [], "timeout": 1}),
            )
            await session.commit(session.draft(JobSchedule, body, prev=0))
        except EngineDenied:
            return Outcome("rules", "command and question; the server takes no schedule of it")
    raise Breach("a key that may answer could submit a job")


_ANSWERS: Final = [
    _answering(
        "take a question with the right to run jobs",
        Verdict.COMMAND,
        lambda forger, job, _: forger.sign(
            JobClaim, replace(a_claim(job), answers=True), auth=forger.chain("/job/claim")
        ),
    ),
    _answering(
        "take a question as a job",
        Verdict.QUESTION,
        lambda forger, job, _: forger.sign(JobClaim, a_claim(job), auth=forger.chain("/job/claim")),
    ),
    _answering(
        "answer under the fence of somebody who may",
        Verdict.COMMAND,
        lambda forger, job, fence: forger.sign(
            JobComplete,
            _answer(forger, job, fence),
            prev=_claimed_at(forger, job),
            auth=forger.chain("/job/complete"),
        ),
        is_held=True,
    ),
    _answering(
        "answer with the victim's signature",
        Verdict.COMMAND,
        lambda forger, job, fence: forger.sign(
            JobComplete,
            _answer(forger, job, fence, signed_by=forger.target.victim.signer("machine")),
            prev=_claimed_at(forger, job),
            auth=forger.chain("/job/complete"),
        ),
        is_held=True,
    ),
    _answering(
        "complete a question as a job",
        Verdict.NOT_CLAIMER,
        lambda forger, job, fence: forger.sign(
            JobComplete,
            CompleteBody(kind=RENDER, job=job, fence=fence, status="succeeded"),
            prev=_claimed_at(forger, job),
            auth=forger.chain("/job/complete"),
        ),
        is_held=True,
    ),
    Attempt("run a job with the right to answer", _answers_nothing_else),
]


def _claimed_at(forger: Forger, job: str) -> int:
    """The newest record on a job's own subject, as a full node has it."""
    node = forger.target.host.node
    lane = node.replica.lane(job_key(RENDER, job))
    return lane.tails[-1]


_UNACCOUNTED: Final = [
    _unaccounted("complete an audited job without a word about model calls", audited=True),
    _unaccounted("name fewer snapshots than model calls", audited=True, calls=2),
    _unaccounted("name a snapshot that was never stored", audited=True, calls=1, outputs=1),
    _unaccounted("claim model calls where nobody asked", audited=False, calls=1, outputs=1),
]


async def leaked_lane(target: TargetMesh) -> list[bytes]:
    """The records of a job of the victim's without a canary, as if they had leaked."""
    text = f"nothing worth hiding {os.urandom(4).hex()}"
    handle = await target.owner.submit(BUILD, text)
    await target.check_result(handle, text)
    log = await target.read_log()
    return [one.payload for one in log if one.subject.endswith(handle.id)]


async def _replay(target: TargetMesh) -> Outcome:
    """Records of the victim's on a subject of its own."""
    leaked = await leaked_lane(target)
    verdicts = set()
    for payload in leaked:
        seq = await stored(target, own_subject(target), b"", payload)
        verdicts.add(await target.verdict(seq))
    if verdicts != {Verdict.SUBJECT}:
        raise Breach(f"the rules said {verdicts}")
    return Outcome("rules", f"{len(leaked)} records, each {Verdict.SUBJECT.value}")


FORGERIES: Final = [
    *_CLAIMS,
    *_INTERFERING,
    *_ANSWERS,
    *_UNACCOUNTED,
    Attempt("replay the victim's records on its own subject", _replay),
]
