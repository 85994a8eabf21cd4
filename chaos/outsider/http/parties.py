"""What the outsider has a node do over HTTP that its keys may not do themselves.

A member makes as many keys as it likes; together they are one party. So none of them vouches for
another, none may do more through a node than at the engine, and none has a turn of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from antiphon.core.bar_tokens.bar_token import Role
from antiphon.core.bus.http_request import Asked
from antiphon.core.clock import hlc
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import (
    CancelBody,
    ClaimBody,
    CompleteBody,
    JobCancel,
    JobClaim,
    JobComplete,
)
from antiphon.core.proof.output import Output, Stored
from antiphon.ports import Keyring
from antiphon.runtime.executors.proof_writer import Run, prove, python_runner
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.mesh import Mesh
from chaos.cluster.delegating import chain_of, pass_on, token_by
from chaos.network.http_wire import Answer, Wire, bearer
from chaos.outsider.attacks.blobs import others_blob
from chaos.outsider.attacks.forgeries import Forger
from chaos.outsider.attempt import Attempt, Outcome
from chaos.outsider.http.doors import ASKED, SPACE, open_doors, set_out, somewhere
from chaos.outsider.http.routes import REFUSED, signed
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh, canaries_in

PROJECT: Final = "render"
CREATED: Final = 201
FORBIDDEN: Final = 403
OK: Final = 200
MANY: Final = 30
PAGE: Final = 10
"""Rows of a page: fewer than one party fills."""


class Client(Struct, frozen=True):
    """Asks the target's node with tokens."""

    port: int
    target: TargetMesh

    async def ask(
        self, key: Keyring, role: Role, method: str, path: str, body: Any = None
    ) -> Answer:
        """One request with a token of this key and role."""
        session = self.target.host.node.session
        await session.sync_control()
        chain = chain_of(session, key.did, project=PROJECT, role=role)
        token = token_by(key, chain, mesh=session.mesh, project=PROJECT, role=role)
        return await self.send(bearer(token), method, path, body)

    async def ask_as_operator(self, path: str) -> list[Any]:
        """The rows that the operator of the node is shown."""
        text = (self.target.owner.home.path / "http-token").read_text().strip()
        answer = await self.send(bearer(text), "GET", path)
        if answer.status != OK:
            raise Breach(f"the operator is answered {answer.status}: {answer.body[:200]!r}")
        rows: list[Any] = answer.fields["items"]
        return rows

    async def send(self, header: str, method: str, path: str, body: Any = None) -> Answer:
        """One request, from an address of its own."""
        wire, said = Wire(self.port, source=somewhere()), b""
        if body is not None:
            said = json.dumps(body).encode()
        try:
            return await wire.ask(method, path, said, authorization=header)
        finally:
            wire.close()


@asynccontextmanager
async def _node(target: TargetMesh) -> AsyncIterator[Client]:
    async with open_doors(target) as routes:
        yield Client(next(one.port for one in routes if one.door == "node"), target)


# --- content --------------------------------------------------------------------------------------


async def _lie(worker: Mesh, job: str, content: Stored) -> None:
    """Complete a job by naming content that was not made there."""
    session = worker.connection.session
    await session.sync_control()
    view = await session.read_lane(RENDER, job)
    if view.submitted_with is None:
        raise Breach("this shows nothing, since the job is not there")
    lease_ms = session.control.rules.lease_ms
    claim = ClaimBody(kind=RENDER, job=job, lease_ms=lease_ms, begin=True)
    draft = session.draft(JobClaim, claim, prev=view.lane.job_tail)
    seq = await session.commit(draft)
    body = CompleteBody(
        kind=RENDER,
        job=job,
        fence=hlc.pack(draft.op.hlc),
        status="succeeded",
        exit=0,
        outputs=(Output(name="result", stored=content),),
    )
    run = Run(manifest=view.submitted_with.manifest, usage=Usage(wall_ms=1), runner=python_runner())
    end = await session.commit(session.draft(JobComplete, prove(session, body, run), prev=seq))
    after = await session.read_lane(RENDER, job, at_least=end)
    if after.lane.job is None or after.lane.job.outcome != "succeeded":
        raise Breach("this shows nothing, since its completion was not accepted")


async def _siblings_vouch(target: TargetMesh) -> Outcome:
    """One key completes a job and names others' content; its siblings ask for it."""
    content = await others_blob(target)
    job = (await target.owner.submit(RENDER, "frame")).id
    home, third = target.contractor.path, SeedKeyring(os.urandom(32))
    async with Mesh.open(home=home, role="client") as first:
        await pass_on(first.connection.session, first.connection.keyring, third.did)
        async with Mesh.open(home=home, role="worker") as second:
            await _lie(second, job, content)
            seq = (await target.read_log())[-1].seq
            await target.host.node.reached(seq)
            keys = (first.connection.keyring, second.connection.keyring, third)
            async with _node(target) as node:
                path = f"/v1/jobs/{job}/outputs/result"
                answers = [await node.ask(key, "claim", "GET", path) for key in keys]
    for answer in answers:
        if canaries_in(answer.body) or answer.status != FORBIDDEN:
            raise Breach(f"{answer.status} with {len(answer.body)} bytes of others'")
    return Outcome("door", f"{len(answers)} keys of one party: {answers[0].reason}")


# --- rights ---------------------------------------------------------------------------------------


async def _limited(target: TargetMesh, command: str, policy: list[Any]) -> SeedKeyring:
    """A key that the owner gave a command, but not with every argument."""
    key, owner = SeedKeyring(os.urandom(32)), target.owner.connection
    policy = [["==", ".kind", RENDER], *policy]
    await pass_on(owner.session, owner.keyring, key.did, command=command, policy=policy)
    return key


async def _arguments(target: TargetMesh) -> Outcome:
    """A policy about an argument, which a node's own key is not bound by."""
    key = await _limited(target, "/job/schedule", [["!=", ".priority", "high"]])
    async with _node(target) as node:
        body = {"kind": RENDER, "args": [os.urandom(4).hex()]}
        allowed = await node.ask(key, "schedule", "POST", "/v1/jobs", body)
        if allowed.status != CREATED:
            raise Breach(f"this shows nothing: what it may do is refused with {allowed.status}")
        high = {**body, "priority": "high"}
        refused = await node.ask(key, "schedule", "POST", "/v1/jobs", high)
        if refused.status != FORBIDDEN:
            raise Breach(f"a job that it may not submit is answered {refused.status}")
        retried = f"/v1/jobs/{allowed.fields['id']}/cancel"
        answer = await node.ask(key, "schedule", "POST", retried, {"reason": "x"})
        if answer.status < REFUSED:
            raise Breach("who may submit may cancel")
    return Outcome("door", f"{refused.reason}: {refused.fields.get('detail', '')[:60]}")


async def _other_lists(target: TargetMesh) -> Outcome:
    """What a right to claim or to answer does not show: documents and locks of its own kinds."""
    scope, name = f"{PROJECT}.notes", target.canary()
    await target.owner.memory[scope].put(name, 1)
    await target.owner.locks.hold(name, scope=scope, ttl=600).take()
    key = target.contractor.signer("machine")
    async with _node(target) as node:
        paths = (f"/v1/documents/{scope}", "/v1/locks", f"/v1/locks?scope={scope}")
        answers = [await node.ask(key, "claim", "GET", path) for path in paths]
    for path, answer in zip(paths, answers, strict=True):
        if answer.status != FORBIDDEN:
            raise Breach(f"a right to claim is answered {answer.status} on {path}")
    return Outcome("door", f"{len(paths)} lists: {answers[0].reason}")


async def _forged_record(target: TargetMesh) -> Outcome:
    """Hand a node a record about others' job, well signed, by a request that is well signed."""
    job = (await target.owner.submit(BUILD, target.canary())).id
    forger = Forger(target)
    body = CancelBody(kind=BUILD, job=job, reason="of somebody else")
    record = forger.sign(JobCancel, body, auth=forger.chain("/job/claim")).payload
    asked = Asked("POST", "/v1/records", record)
    async with _node(target) as node:
        wire = Wire(node.port, source=somewhere())
        try:
            answer = await wire.ask(
                asked.method, asked.target, record, authorization=signed(target, asked)
            )
        finally:
            wire.close()
    if answer.status < REFUSED:
        raise Breach(f"a node stores a record about others' job: {answer.body[:200]!r}")
    return Outcome("door", f"{answer.status} {answer.reason}")


# --- turns ----------------------------------------------------------------------------------------


async def _crowd_out(target: TargetMesh) -> Outcome:
    """Fill lists so that nobody sees what others have there: questions, and locks."""
    others = await set_out(target)
    homes = [await target.join(f"crowd-{os.urandom(2).hex()}", can=one) for one in CROWDED]
    async with (
        Mesh.open(home=homes[0].path, role="client") as asking,
        Mesh.open(home=homes[1].path, role="client") as holding,
    ):
        for number in range(MANY):
            await asking.questions.ask(f"And {number}?", kind=RENDER)
            await holding.locks.hold(f"k{number}", scope=RENDER, ttl=600).take()
        seq = (await target.read_log())[-1].seq
        await target.host.node.reached(seq)
        async with _node(target) as node:
            rows = await node.ask_as_operator(f"/v1/attention?limit={PAGE}")
            if others.question not in json.dumps(rows):
                raise Breach(f"{MANY} questions of one party hide the owner's from attention")
            rows = await node.ask_as_operator(f"/v1/questions?limit={PAGE}&kind={ASKED}")
            if others.question not in json.dumps(rows):
                raise Breach("questions of another kind hide the owner's")
            rows = await node.ask_as_operator(f"/v1/locks?limit={PAGE}&scope={SPACE}")
            if not rows:
                raise Breach(f"{MANY} locks of one party hide those of another scope")
    return Outcome("harmless", f"beside {MANY} of each, others' are on a page of {PAGE}")


CROWDED: Final = ("schedule", "lock")
HTTP_PARTIES: Final = [
    Attempt("read others' content over HTTP by a sibling key's word", _siblings_vouch),
    Attempt("submit over HTTP what its policy refuses", _arguments),
    Attempt("list documents and locks over HTTP with a right to claim", _other_lists),
    Attempt("write about others' job over HTTP", _forged_record),
    Attempt("hide others' rows from a node's lists", _crowd_out),
]
