"""What a node writes for somebody over HTTP: judged and counted as if that party had written it."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest
from msgspec import UNSET
from starlette.responses import PlainTextResponse

from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.policy import write_pace
from antiphon.core.policy.rate_limit import Allowance
from antiphon.core.ucan import Payload, Policy
from antiphon.errors import Rejected
from antiphon.guard import Who
from antiphon.interfaces.http.askers import Anybody, Token
from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.route import REQUESTS, Route
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.coordinator.coordinator import Coordinator
from antiphon.runtime.gate.pace_watch import PaceWatch
from antiphon.runtime.log import acting
from antiphon.sdk.http.job_content import JobContent
from antiphon.settings import HttpAddress
from tests.interfaces.http.client import OPERATOR, ask, connected, request, served
from tests.interfaces.http.test_api import post, submitted
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars
from tests.interfaces.http.test_questions_and_messages import asked, member
from tests.patience import PATIENCE_S
from tests.runtime.by_hand import completed

pytestmark = pytest.mark.processes

SECRET = b"top secret" * 2_000
LOW = [["!=", ".priority", "high"]]


class Delegated(Holder):
    """A key with delegations that no word of `antiphon delegate` grants."""

    async def given(self, command, policy=(), *, by=None, chain=()):
        """A delegation by the owner, or by another key under its chain."""
        mesh = self._node.mesh
        giver = by or mesh.owner
        self._session = (await mesh.connection(mesh.owner)).session
        payload = Payload(
            iss=giver.did,
            aud=self.key.did,
            sub=mesh.owner.did,
            cmd=command,
            pol=Policy(list(policy)),
            nonce=mesh.entropy.token(12),
            exp=None,
            meta=UNSET,
        )
        signed = giver.delegate(payload)
        await self._write(UcanDelegate, DelegateBody(token=token_of(signed.raw)))
        self.chain = (*chain, signed.cid)
        return self


async def sibling_of(node, first, command="/job/schedule"):
    """Another key of the same member."""
    second = Delegated(node, long_bars)
    return await second.given(command, by=first.key, chain=first.chain)


@pytest.mark.req("B20")
async def test_every_policy_of_a_delegation_counts_over_http_as_in_a_record():
    async with served(CLOSED, long_bars) as node:
        holder = await Delegated(node, long_bars).given("/job/schedule", LOW)
        token = holder.token(role="schedule")
        allowed = await post(node, "/v1/jobs", {"kind": "build.app"}, token)
        assert allowed.status == 201
        before = node.node.applied
        for path, body in (
            ("/v1/jobs", {"kind": "build.app", "priority": "high"}),
            ("/v1/jobs", {"kind": "build.app", "args": [1], "priority": "high"}),
        ):
            refused = await post(node, path, body, token)
            assert (refused.status, refused.json["reason"]) == (403, "policy")
            assert holder.key.did[-8:] in refused.json["detail"]
        assert node.node.applied == before
        high = await submitted(node, priority="high")
        await post(node, f"/v1/jobs/{high}/cancel")
        refused = await post(node, f"/v1/jobs/{high}/retry", token=token)
        assert (refused.status, refused.json["reason"]) == (403, "policy"), "also of a retry"


async def test_an_answer_and_a_message_are_judged_by_every_policy_too():
    async with served(CLOSED, long_bars) as node:
        _, theirs = await member(node)
        question = await asked(node, theirs)
        holder = await Delegated(node, long_bars).given("/job/answer", [["==", ".lease_ms", 1]])
        path = f"/v1/questions/{question}/answer"
        refused = await post(node, path, {"answer": "yes"}, holder.token(role="answer"))
        assert (refused.status, refused.json["reason"]) == (403, "policy")
        to = f"{node.mesh.owner.did}/desk"
        sender = await Delegated(node, long_bars).given("/message/send", [["==", ".priority", 0]])
        token = sender.token(role="message")
        assert (await post(node, "/v1/messages", {"to": to}, token)).status == 200
        refused = await post(node, "/v1/messages", {"to": to, "priority": 1}, token)
        assert (refused.status, refused.json["reason"]) == (403, "policy")


async def test_a_revoked_delegation_ends_what_was_begun_under_a_token():
    async with served(CLOSED, long_bars) as node:
        holder = await Delegated(node, long_bars).given("/job/schedule")
        token = holder.token(role="schedule")
        bearer = node.access.admit(token)
        await holder.revoked()
        with (
            node.node.guard.admit(REQUESTS, acting_who(node, bearer)) as visit,
            pytest.raises(Rejected, match="revoked"),
        ):
            await visit.work(node.program.submit("build.app"))


def acting_who(node, bearer):
    return Who(party=bearer.party, acts=node.access.acting(bearer))


@asynccontextmanager
async def behind_a_new_route(node, asker):
    """Somebody added a route that writes, and did not think of whom it writes for."""

    async def careless(*_):
        await node.program.submit("build.app")
        return PlainTextResponse("done")

    route = Route(
        path="/v1/new", answer=careless, asker=asker, limits=REQUESTS, methods=("GET", "POST")
    )
    async with serving(Door((route,), node.node.guard), HttpAddress("127.0.0.1", 0)) as port:
        yield port


async def test_a_route_that_does_not_say_for_whom_it_writes_cannot_write(capfd):
    async with served(CLOSED, long_bars) as node:
        before = node.node.applied
        async with behind_a_new_route(node, Anybody("nothing")) as port:
            assert (await ask(port, "/v1/new")).status == 500
        assert node.node.applied == before
    assert "http_request_failed" in capfd.readouterr().out


async def test_the_same_route_behind_a_token_writes_what_the_party_may_write():
    async with served(CLOSED, long_bars) as node:
        writer = await Delegated(node, long_bars).given("/job/schedule")
        other = await Delegated(node, long_bars).given("/job/schedule", [["==", ".kind", "x.y"]])
        asker = Token(node.access, ("/job/schedule",))
        async with behind_a_new_route(node, asker) as port:
            assert (await ask(port, "/v1/new", writer.token(role="schedule"))).status == 200
            assert (await ask(port, "/v1/new", other.token(role="schedule"))).status == 403
            assert (await ask(port, "/v1/new", OPERATOR)).status == 200


# --- parties --------------------------------------------------------------------------------------


@pytest.mark.req("M29")
async def test_a_sibling_key_does_not_vouch_for_content_that_a_member_may_not_have(
    tmp_path, monkeypatch
):
    """One key of a member signs the token, another completes a job and names the digest."""

    async def read(*_):
        yield SECRET

    monkeypatch.setattr(JobContent, "content", read)
    async with served(CLOSED, long_bars) as node:
        owner = (await node.mesh.connection(node.mesh.owner)).session
        (tmp_path / "secret").write_bytes(SECRET)
        secret = await Artifacts(owner.engine.blobs).keep(tmp_path / "secret", "result")
        first = await Delegated(node, long_bars).given("/job", [["==", ".kind", "build.app"]])
        second = await sibling_of(node, first, "/job")
        stranger = await Delegated(node, long_bars).given("/job", [["==", ".kind", "build.app"]])
        token = first.token(role="claim", project="build.app")
        for key, status in ((first.key, 403), (second.key, 403), (stranger.key, 200)):
            worker = (await node.mesh.connection(key)).session
            await worker.sync_control()
            job = await completed(owner, worker, "build.app", secret)
            await node.node.reached((await owner.log.last()).seq)
            answer = await node.ask(f"/v1/jobs/{job.id}/outputs/result", token)
            assert answer.status == status, "its own word" if status == 403 else "another's"


async def test_what_is_written_for_a_party_counts_for_all_of_its_keys(monkeypatch):
    monkeypatch.setattr(acting, "ALLOWED", Allowance(0.001, 3.0))
    async with served(CLOSED, long_bars) as node:
        first = await Delegated(node, long_bars).given("/job/schedule")
        second = await sibling_of(node, first)
        other = await Delegated(node, long_bars).given("/job/schedule")

        async def submits(holder, number):
            token = None if holder is None else holder.token(role="schedule")
            body = {"kind": "build.app", "args": [number]}
            return (await post(node, "/v1/jobs", body, token or OPERATOR)).status

        assert [await submits(first, 1), await submits(second, 2), await submits(first, 3)] == [
            201
        ] * 3
        assert [await submits(first, 4), await submits(second, 5)] == [429] * 2
        assert [await submits(other, 6), await submits(None, 7)] == [201] * 2


async def test_large_records_count_as_several(monkeypatch):
    monkeypatch.setattr(acting, "ALLOWED", Allowance(0.001, 3.0))
    async with served(CLOSED, long_bars) as node:
        token = (await Delegated(node, long_bars).given("/job/schedule")).token(role="schedule")
        large = {"kind": "build.app", "args": ["x" * 20_000]}
        assert (await post(node, "/v1/jobs", large, token)).status == 201
        assert (await post(node, "/v1/jobs", {**large, "args": [1]}, token)).status == 429


async def test_an_idempotency_key_is_its_partys():
    async with served(CLOSED, long_bars) as node:
        first = await Delegated(node, long_bars).given("/job/schedule")
        second = await sibling_of(node, first)
        other = await Delegated(node, long_bars).given("/job/schedule")

        async def submits(holder):
            token, body = holder.token(role="schedule"), b'{"kind": "build.app"}'
            sent = request("/v1/jobs", token, method="POST", body=body)
            async with connected(node.port) as line:
                line.send(sent.replace(b"\r\n", b"\r\nIdempotency-Key: monday\r\n", 1))
                return (await line.answer()).json["id"]

        mine = await submits(first)
        assert await submits(second) == mine
        assert await submits(other) != mine


class NoGate:
    """Nobody has a login that could be ended."""

    def is_member(self, _):
        return False

    async def pause(self, *_):
        return None


async def test_a_party_that_writes_too_fast_over_http_is_paused_and_others_are_not(monkeypatch):
    monkeypatch.setattr(write_pace, "BEHIND_MS", -60_000)
    monkeypatch.setattr(write_pace, "LEAST_RECORDS", 10)
    async with served(CLOSED, long_bars) as node:
        greedy = await Delegated(node, long_bars).given("/job/schedule")
        sibling = await sibling_of(node, greedy)
        other = await Delegated(node, long_bars).given("/job/schedule")
        watching = asyncio.ensure_future(PaceWatch(node.node, NoGate()).run())
        try:

            async def submits(holder, number):
                body = {"kind": "build.app", "args": [holder.key.did, number]}
                return await post(node, "/v1/jobs", body, holder.token(role="schedule"))

            async with asyncio.timeout(PATIENCE_S):
                for number in count():
                    answer = await submits(greedy, number)
                    if answer.status == 429 and "paused" in answer.json["detail"]:
                        break
            assert "paused" in (await submits(sibling, 0)).json["detail"], "it is one party"
            assert (await submits(other, 0)).status == 201
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def test_waiting_jobs_have_the_turns_of_the_party_that_they_are_for():
    async with served(CLOSED, long_bars) as node:
        holder = await Delegated(node, long_bars).given("/job/schedule")
        coordinator = Coordinator(node.node)
        body = {"kind": "build.app", "label": "slow"}
        made = (await post(node, "/v1/jobs", body, holder.token(role="schedule"))).json["id"]
        own = await submitted(node, label="slow")
        waiting = await coordinator._load()
        assert waiting._jobs["build.app", made].party == holder.key.did
        assert waiting._jobs["build.app", own].party == node.mesh.owner.did
