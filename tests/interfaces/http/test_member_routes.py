"""Members that sign each request: what they are shown, and what is stored for them."""

import asyncio
import secrets
from contextlib import asynccontextmanager

import msgspec
import pytest

from antiphon.core.bus.http_request import MAX_AGE_MS, Asked, SeenRequests, sign_request
from antiphon.core.clock.hlc import pack
from antiphon.core.cost.usage import Usage
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.ops import (
    CancelBody,
    ClaimBody,
    CompleteBody,
    JobCancel,
    JobClaim,
    JobComplete,
)
from antiphon.core.families.mesh.ops import MeshPause, PauseBody
from antiphon.core.manifest import NonceInput
from antiphon.core.policy.rate_limit import Allowance
from antiphon.core.proof.statement import UNSIGNED, Proof, Runner
from antiphon.guard import Who
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.executors.step import QuestionTerms
from antiphon.runtime.gate import member_door
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log import acting
from antiphon.runtime.log.writer import Intent, write_one
from tests.guard_limits import limited
from tests.interfaces.http import client
from tests.interfaces.http.client import Served, served
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import CALM, KIND, call, ops_on_lane
from tests.runtime.messages.post_office import grant, revoke

pytestmark = pytest.mark.processes
CLOSED = msgspec.structs.replace(CALM, authority="chain")
OTHER = "other.work"
RUNNER = Runner(name="test", version="1", platform="any")


class Member:
    """A key that reaches the mesh over HTTP alone. It reads the log beside that, for the test."""

    def __init__(self, node: Served, connection) -> None:
        self.node, self.session, self.keyring = node, connection.session, connection.keyring

    def header(self, asked: Asked, *, mesh: str = "", at_ms: int = 0, nonce: str = "") -> str:
        return sign_request(
            asked,
            (self.keyring.did, self.keyring.sign),
            mesh=mesh or self.session.mesh,
            at_ms=at_ms or self.session.wall.now_ms(),
            nonce=nonce or secrets.token_urlsafe(16),
        )

    async def send(self, asked: Asked, header: str) -> client.Answer:
        sent = client.request(asked.target, method=asked.method, body=asked.body)
        sent = sent.replace(b"\r\n", f"\r\nAuthorization: {header}\r\n".encode(), 1)
        async with client.connected(self.node.port) as line:
            line.send(sent)
            return await line.answer()

    async def ask(self, method: str, target: str, body: bytes = b"", **how) -> client.Answer:
        asked = Asked(method, target, body)
        return await self.send(asked, self.header(asked, **how))

    async def offers(self, kind: str = KIND, wait: int = 0) -> list:
        answer = await self.ask("GET", f"/v1/offers?kind={kind}&wait={wait}")
        assert answer.status == 200, answer.body
        return answer.json["items"]

    async def post(self, draft) -> client.Answer:
        return await self.ask("POST", "/v1/records", draft.payload)

    async def draft(self, op, body, prev: int):
        await self.session.sync_control()
        return self.session.draft(op, body, prev=prev)

    async def claim(self, job: str, kind: str = KIND, prev: int = 0, **fields):
        body = ClaimBody(kind=kind, job=job, lease_ms=CLOSED.lease_ms, **fields)
        return await self.draft(JobClaim, body, prev)


class World:
    def __init__(self, node: Served, owner) -> None:
        self.node, self.owner = node, owner

    async def member(self, *can: str, kinds=(KIND,)) -> Member:
        found = Member(self.node, await self.node.mesh.connection())
        if can:
            found.cids = await grant(self.node.mesh, self.owner, found.keyring.did, can, kinds)
            await self.read()
        return found

    async def submit(self, *args, kind: str = KIND) -> str:
        job = await call(self.owner.session, *args, kind=kind)
        await self.read()
        return job.id

    async def read(self) -> None:
        """Wait until the node has read everything."""
        newest = await self.owner.session.log.last()
        await self.node.node.reached(newest.seq)

    async def count(self) -> int:
        return (await self.owner.session.log.last()).seq


@asynccontextmanager
async def a_world(rules=CLOSED):
    async with served(rules) as node:
        yield World(node, await node.mesh.connection(node.mesh.owner))


async def test_a_member_claims_renews_and_completes_with_records_of_its_own():
    async with a_world() as world:
        job, member = await world.submit("text"), await world.member("claim")
        (offer,) = await member.offers()
        assert (offer["job"]["id"], offer["job"]["prev"]) == (job, 0)
        assert offer["auth"]["/job/claim"]
        assert offer["auth"]["/job/complete"]
        assert '"job.schedule"' in offer["schedule"]

        claim = await member.claim(job, begin=True)
        claimed = await member.post(claim)
        assert (claimed.status, claimed.json["verdict"]) == (200, "ok")
        fence = pack(claim.op.hlc)
        again = await member.claim(job, fence=fence, prev=claimed.json["seq"])
        renewed = (await member.post(again)).json
        body = CompleteBody(kind=KIND, job=job, fence=fence, status="succeeded")
        proof = Proof(sig=UNSIGNED, ended=fence, runner=RUNNER, usage=Usage(wall_ms=1))
        body = member.session.author.prove(body, proof)
        ended = await member.post(await member.draft(JobComplete, body, renewed["seq"]))
        assert (ended.status, ended.json["verdict"]) == (200, "ok")

        page = (await member.ask("GET", f"/v1/lanes/{KIND}/{job}")).json
        assert (page["job"]["state"], page["job"]["prev"]) == ("succeeded", ended.json["seq"])
        assert [one["verdict"] for one in page["records"]] == ["ok"] * 4
        assert page["next"] is None
        told = [op for op, verdict in ops_on_lane(world.node.node, job) if verdict == "ok"]
        assert told == ["job.schedule", "job.claim", "job.claim", "job.complete"]
        assert await member.offers() == []


async def test_a_request_counts_for_its_method_target_body_mesh_and_moment():
    async with a_world() as world:
        member = await world.member("claim")
        asked, now_ms = Asked("GET", f"/v1/offers?kind={KIND}"), member.session.wall.now_ms()
        elsewhere = member.header(Asked("GET", f"/v1/offers?kind={OTHER}"))
        post, other = Asked("POST", "/v1/records", b"a"), Asked("POST", "/v1/records", b"b")
        for sent, header, reason in (
            (asked, "", "malformed"),
            (asked, "Antiphon !!", "malformed"),
            (asked, "Bearer x", "malformed"),
            (asked, elsewhere, "subject"),
            (asked, member.header(asked._replace(method="POST")), "subject"),
            (post, member.header(other), "signature"),
            (asked, member.header(asked, mesh="a" * 16), "mesh"),
            (asked, member.header(asked, at_ms=now_ms - 2 * MAX_AGE_MS), "stale"),
            (asked, member.header(asked, at_ms=now_ms + 2 * MAX_AGE_MS), "stale"),
        ):
            answer = await member.send(sent, header)
            assert (answer.status, answer.json["reason"]) == (401, reason)
        forger = await world.member()
        proof = forger.header(asked)
        assert (await member.send(asked, proof)).json["reason"] == "no_chain"


async def test_what_was_answered_is_not_answered_again():
    async with a_world() as world:
        member = await world.member("claim")
        asked = Asked("GET", f"/v1/offers?kind={KIND}")
        header = member.header(asked)
        assert (await member.send(asked, header)).status == 200
        again = await member.send(asked, header)
        assert (again.status, again.json["reason"]) == (401, "replay")


async def test_a_key_that_nobody_delegated_to_is_told_what_the_owner_types():
    async with a_world() as world:
        stranger = await world.member()
        answer = await stranger.ask("GET", f"/v1/offers?kind={KIND}")
        assert (answer.status, answer.json["reason"]) == (401, "no_chain")
        assert f"antiphon delegate {stranger.keyring.did}" in answer.json["hint"]


async def test_where_nobody_needs_delegations_nobody_is_known_by_a_signature():
    async with a_world(CALM) as world:
        anybody = await world.member()
        answer = await anybody.ask("GET", f"/v1/offers?kind={KIND}")
        assert (answer.status, answer.json["reason"]) == (401, "no_chain")


async def test_a_member_sees_and_writes_its_kinds_alone():
    async with a_world() as world:
        job, theirs = await world.submit("mine"), await world.submit("theirs", kind=OTHER)
        member, reader = await world.member("claim"), await world.member("read")
        assert await member.offers(OTHER) == []
        assert await reader.offers() == [], "it may read, and not claim"
        assert (await reader.ask("GET", f"/v1/lanes/{KIND}/{job}")).status == 200
        before = await world.count()
        shown = await member.ask("GET", f"/v1/lanes/{OTHER}/{theirs}")
        assert (shown.status, shown.json["reason"]) == (403, "policy")
        for draft, by, status, reason in (
            (await member.claim(theirs, OTHER), member, 403, "policy"),
            (await reader.claim(job), reader, 403, "policy"),
            (await member.claim(job), reader, 403, "author"),
            (
                await member.draft(JobCancel, CancelBody(kind=KIND, job=job), 0),
                member,
                403,
                "command",
            ),
            (await member.draft(MeshPause, PauseBody(is_paused=True), 0), member, 422, "op"),
            (await member.claim("f" * 64), member, 404, "no_job"),
        ):
            answer = await by.post(draft)
            assert (answer.status, answer.json["reason"]) == (status, reason)
        assert await world.count() == before, "nothing of it is on the log"
        assert (await member.ask("POST", "/v1/records", b"no record")).status == 422
        missing = await member.ask("GET", f"/v1/lanes/{KIND}/{'f' * 64}")
        assert (missing.status, missing.json["reason"]) == (404, "no_job")


async def test_a_record_that_is_sent_again_is_stored_once_and_who_comes_second_is_told():
    async with a_world() as world:
        job, member, other = await world.submit(1), await world.member("claim"), None
        other = await world.member("claim")
        first, second = await member.claim(job), await other.claim(job)
        stored = await member.post(first)
        assert (await member.post(first)).json == stored.json
        lost = await other.post(second)
        assert (lost.status, lost.json["reason"]) == (409, "prev")


async def test_offers_wait_until_there_is_something_to_claim():
    async with a_world() as world:
        member = await world.member("claim")
        waiting = asyncio.ensure_future(member.offers(wait=20))
        await asyncio.sleep(0.2)
        job = await world.submit("late")
        assert [one["job"]["id"] for one in await waiting] == [job]


async def test_jobs_that_cannot_be_claimed_hide_none_behind_them(monkeypatch):
    monkeypatch.setattr(member_door, "_PAGE", 2)
    monkeypatch.setattr(member_door, "LOOKED_AT", 4)
    async with a_world() as world:
        pause = PauseBody(is_paused=True, kind=KIND)
        await write_one(world.owner.session, Intent(MeshPause, pause))
        for number in range(9):
            await world.submit(number)
        job = await world.submit(kind="test.other")
        member = await world.member("claim", kinds=("test.*",))
        assert await member.offers("test") == []
        assert [one["job"]["id"] for one in await member.offers("test", wait=20)] == [job]


async def test_open_questions_are_no_offers(monkeypatch):
    monkeypatch.setattr(member_door, "_PAGE", 2)
    monkeypatch.setattr(member_door, "LOOKED_AT", 2)
    async with a_world() as world:
        session = world.owner.session
        for number in range(2):
            terms = QuestionTerms.of(f"is it {number}?", kind=KIND, choices=("yes", "no"))
            nonce = NonceInput(nonce=f"{number:032x}", origin="random")
            await submission.submit(session, terms.body(nonce, session.wall.now_ms()))
        job, member = await world.submit("text"), await world.member("claim")
        assert [one["job"]["id"] for one in await member.offers()] == [job]


async def test_one_party_does_not_keep_the_node_busy():
    """Looks that took long are paid for with rests, whatever it asks, and others go on."""
    async with a_world() as world:
        member, other = await world.member("claim"), await world.member("claim")
        assert await member.offers() == []
        world.node.node.guard.spend(Who(party=member.keyring.did), 60.0)
        assert (await member.ask("GET", f"/v1/offers?kind={KIND}")).status == 429
        assert await other.offers() == []


async def test_the_records_of_a_forgotten_job_are_not_shown():
    async with a_world() as world:
        job, member = await world.submit("secret"), await world.member("claim")
        await world.owner.session.sync_control()
        lane = f"/v1/lanes/{KIND}/{job}"
        assert (await member.ask("GET", lane)).status == 200
        await end(world.owner.session, job)
        await forget(world.owner.session, KIND, job)
        await world.read()
        refused = await member.ask("GET", lane)
        assert (refused.status, refused.json["reason"]) == (410, "erased")


async def test_one_party_waits_for_so_many_offers_alone(monkeypatch):
    limited(monkeypatch, "http offers", of_party=1)
    async with a_world() as world:
        member, other = await world.member("claim"), await world.member("claim")
        waiting = asyncio.ensure_future(member.offers(wait=20))
        refused = 0
        while refused != 429:  # until the other has begun to wait
            refused = (await member.ask("GET", f"/v1/offers?kind={KIND}")).status
            await asyncio.sleep(0.05)
        assert await other.offers() == []
        job = await world.submit("late")
        assert [one["job"]["id"] for one in await waiting] == [job]


async def test_what_cannot_be_remembered_is_not_answered(monkeypatch):
    """Else it could be sent again."""
    monkeypatch.setattr(SeenRequests.__init__, "__kwdefaults__", {"each": 1, "in_all": 9})
    async with a_world() as world:
        member, other = await world.member("claim"), await world.member("claim")
        assert await member.offers() == await other.offers() == []
        refused = await member.ask("GET", f"/v1/offers?kind={KIND}")
        assert (refused.status, refused.json["reason"]) == (429, "rate")


async def test_a_record_is_stored_where_it_says_and_nowhere_else():
    async with a_world() as world:
        jobs, member = [await world.submit(n) for n in range(2)], await world.member("claim")
        claim, other = await member.claim(jobs[0]), await member.claim(jobs[1])
        before = await world.count()
        target = f"/v1/records?subject={other.subject}&id={claim.op_id}&prev=0"
        refused = await member.ask("POST", target, claim.payload)
        assert (refused.status, refused.json["reason"]) == (422, "subject")
        assert await world.count() == before


async def test_a_paused_kind_is_not_offered():
    async with a_world() as world:
        await world.submit(1)
        member = await world.member("claim")
        await write_one(
            world.owner.session, Intent(MeshPause, PauseBody(is_paused=True, kind=KIND))
        )
        await world.read()
        assert await member.offers() == []


async def test_a_revocation_ends_everything_at_once():
    async with a_world() as world:
        await world.submit(1)
        member = await world.member("claim")
        assert await member.offers()
        for cid in member.cids:
            await revoke(world.owner, cid)
        await world.read()
        assert (await member.ask("GET", f"/v1/offers?kind={KIND}")).status == 401


async def test_a_party_that_writes_too_fast_is_told_when_to_go_on(monkeypatch):
    monkeypatch.setattr(acting, "ALLOWED", Allowance(0.001, 2.0))
    async with a_world() as world:
        jobs, member = [await world.submit(n) for n in range(4)], await world.member("claim")
        other = await world.member("claim")
        answers = [await member.post(await member.claim(job)) for job in jobs[:3]]
        assert [one.status for one in answers] == [200, 200, 429]
        assert int(answers[-1].headers["retry-after"]) > 1
        assert (await other.post(await other.claim(jobs[3]))).status == 200


async def test_what_goes_through_the_gate_goes_through_here_and_no_stranger_gets_in():
    async with a_world() as world:
        member, stranger = await world.member("claim"), SeedKeyring(b"s" * 32)
        body = _passed_on(world, member.keyring, stranger.did)
        answer = await member.post(await member.draft(UcanDelegate, body, 0))
        assert (answer.status, answer.json["verdict"]) == (200, "ok")
        nobody = await world.member()
        foreign = _passed_on(world, nobody.keyring, stranger.did)
        answer = await member.post(await member.draft(UcanDelegate, foreign, 0))
        assert answer.status in (403, 422)


def _passed_on(world, giver, to):
    from antiphon.core.authority import grant_terms
    from antiphon.core.authority.delegations import token_of

    payload = grant_terms.passing_on(
        issuer=giver.did,
        audience=to,
        mesh=world.node.mesh.mesh,
        alias="",
        nonce=world.node.mesh.entropy.token,
    )
    return DelegateBody(token=token_of(giver.delegate(payload).raw))
