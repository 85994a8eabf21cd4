"""A webhook's request becomes a job or an answer, once, if it has the secret."""

import hmac
import json
from contextlib import asynccontextmanager
from hashlib import sha256

import pytest

from antiphon.core.families.jobs.state import State
from antiphon.guard import Who
from antiphon.sdk.jobs.job_lookup import one_job
from antiphon.sdk.webhooks.hook_file import HookFile
from antiphon.sdk.webhooks.signature import signed_header
from tests.interfaces.http.client import connected, request, served
from tests.interfaces.http.test_api import checked
from tests.interfaces.http.test_questions_and_messages import asked

pytestmark = pytest.mark.processes

SECRET = b"what-the-sender-knows"
FILE = f"""
[ship]
secret = "{SECRET.decode()}"
submit = "release.ship"
args = ["version"]

[paid]
secret = "{SECRET.decode()}"
answer = "payment"
plain = true
"""


@asynccontextmanager
async def hooked(tmp_path):
    path = tmp_path / "webhooks.toml"
    path.write_text(FILE)
    path.chmod(0o600)
    async with served(hooks=HookFile(path)) as node:
        yield node


async def sent(node, name, body, **headers):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head, _, _ = request(f"/v1/hooks/{name}", method="POST", body=raw).partition(b"\r\n\r\n")
    more = "".join(f"\r\n{key.replace('_', '-')}: {value}" for key, value in headers.items())
    async with connected(node.port) as line:
        line.send(head + more.encode() + b"\r\n\r\n" + raw)
        return await line.answer()


def own(node, body, *, ago_s=0, same=""):
    at_s = node.mesh.wall.now_ms() // 1000 - ago_s
    return {"Antiphon_Signature": signed_header(SECRET, json.dumps(body).encode(), at_s, same)}


def github(body):
    mac = hmac.new(SECRET, json.dumps(body).encode(), sha256).hexdigest()
    return {"X_Hub_Signature_256": f"sha256={mac}", "X_GitHub_Delivery": "one-of-theirs"}


async def test_a_signed_request_becomes_one_job_however_often_it_comes(tmp_path):
    async with hooked(tmp_path) as node:
        body = {"version": 7, "more": "not an argument"}
        headers = own(node, body)
        first = await sent(node, "ship", body, **headers)
        assert (first.status, checked(first, "hook").kind) == (201, "release.ship")
        again = await sent(node, "ship", body, **headers)
        assert (again.status, again.json["id"]) == (200, first.json["id"]), "sent again: the same"
        later = await sent(node, "ship", body, **own(node, body, ago_s=5))
        assert (later.status, later.json["id"] != first.json["id"]) == (201, True)
        tries = [
            await sent(node, "ship", body, **own(node, body, ago_s=ago_s, same="their-job"))
            for ago_s in (20, 5)
        ]
        assert [one.status for one in tries] == [201, 200], "one that tries again says so"
        assert tries[0].json["id"] == tries[1].json["id"]
        old = await sent(node, "ship", body, **own(node, body, ago_s=600))
        assert (old.status, old.json["reason"]) == (401, "late")
        theirs = [await sent(node, "ship", body, **github(body)) for _ in range(2)]
        assert [one.status for one in theirs] == [201, 200]
        assert theirs[0].json["id"] == theirs[1].json["id"]
        job = one_job(node.node.replica, first.json["id"])
        assert job.scheduler == node.mesh.owner.did, "the node's program signs it"


async def test_without_the_secret_nothing_happens(tmp_path):
    async with hooked(tmp_path) as node:
        body = {"version": 7}
        for name, headers in (
            ("ship", {}),
            ("ship", {"Authorization": f"Bearer {SECRET.decode()}"}),
            ("ship", {"X_Gitlab_Token": SECRET.decode()}),
            ("ship", own(node, {"version": 8})),
            ("ship", github({"version": 8})),
            ("other", own(node, body)),
            ("paid", {"Authorization": "Bearer another"}),
        ):
            refused = await sent(node, name, body, **headers)
            assert (refused.status, refused.json["reason"]) == (401, "signature"), (name, headers)
        assert (await sent(node, "ship", b"{", **github(None))).status == 401
        wrong = {"other": 1}
        assert (await sent(node, "ship", wrong, **own(node, wrong))).status == 400
        large = {"version": "x" * 70_000}
        assert (await sent(node, "ship", large, **own(node, large))).status == 413
        assert node.node.replica.sizes.by_state() == {}


async def test_a_request_answers_a_question_of_the_hooks_kind_alone(tmp_path):
    async with hooked(tmp_path) as node:
        session = (await node.mesh.connection()).session
        mine = await asked(node, session, kind="payment.arrived")
        other = await asked(node, session, kind="approve.deploy")
        secret = {"Authorization": f"Bearer {SECRET.decode()}"}
        refused = await sent(node, "paid", {"question": other, "answer": "yes"}, **secret)
        assert (refused.status, refused.json["reason"]) == (404, "no_job")
        given = await sent(node, "paid", {"question": mine[:16], "answer": "yes"}, **secret)
        assert given.status == 201
        again = await sent(node, "paid", {"question": mine, "answer": "yes"}, **secret)
        assert (again.status, again.json["is_new"]) == (200, False)
        assert one_job(node.node.replica, mine).state is State.SUCCEEDED


async def test_a_webhook_has_the_time_of_one_party_and_strangers_use_nothing_of_it_up(tmp_path):
    async with hooked(tmp_path) as node:
        for _ in range(3):
            assert (await sent(node, "ship", {"version": 1})).status == 401
        for version, status in ((1, 201), (2, 429)):
            body = {"version": version}
            assert (await sent(node, "ship", body, **own(node, body))).status == status
            node.node.guard.spend(Who(party="webhook ship"), 60.0)
