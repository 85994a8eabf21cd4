"""The tempo over HTTP: everybody with a token sees it, the owner and the operator change it."""

import json

import pytest

from antiphon.core.bar_tokens.bar_token import BarToken, issue
from antiphon.core.tempo.policy import DEFAULT_POLICY, policy_hash
from antiphon.interfaces.http import door
from tests.interfaces.http.client import OPERATOR, connected, request, served
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars

pytestmark = pytest.mark.processes

CHANGES = [("PUT", "/v1/tempo"), ("POST", "/v1/tempo/freeze"), ("POST", "/v1/tempo/unfreeze")]
POLICY = {"initial_bpm": 12, "bar_len_beats": 4}


def put(fields) -> dict:
    return {"method": "PUT", "body": json.dumps(fields).encode()}


def owners_token(node, **fields) -> str:
    now_ms = node.mesh.wall.now_ms()
    fields = {"project": "*", "role": "tempo", "downbeat_ms": now_ms, **fields}
    owner = node.mesh.owner
    return issue(BarToken(**fields), (owner.did, owner.sign), mesh=node.mesh.mesh)


async def test_a_reader_of_one_project_sees_the_tempo_of_the_mesh():
    async with served(CLOSED, long_bars) as node:
        holder = await Holder(node, long_bars).granted(kinds="build.*")
        answer = await node.ask("/v1/tempo", holder.token(project="build"))
        assert answer.status == 200
        told = answer.json
        assert (told["bpm"], told["bar_len"], told["mode"]) == (15, 8, "local")
        assert told["phases"] == {"plan": 2, "work": 4, "review": 2}
        assert 1 <= told["beat"]["index"] <= 8
        assert told["degraded"]
        assert told["policy_hash"] == policy_hash(DEFAULT_POLICY)
        assert (await node.ask("/v1/tempo")).status == 401
        other = await Holder(node, long_bars).granted(can="cancel")
        assert (await node.ask("/v1/tempo", other.token(role="cancel"))).status == 403


@pytest.mark.parametrize("token", ["operator", "owner"])
async def test_the_operator_and_the_owner_set_freeze_and_unfreeze_it(token):
    async with served(CLOSED, long_bars) as node:
        bearer = OPERATOR if token == "operator" else owners_token(node)
        answer = await node.ask("/v1/tempo", bearer, **put(POLICY))
        assert (answer.status, answer.json["initial_bpm"]) == (200, 12)
        policy = (await node.ask("/v1/tempo", OPERATOR)).json["policy"]
        assert (policy["initial_bpm"], policy["bar_len_beats"]) == (12, 4)
        frozen = await node.ask("/v1/tempo/freeze", bearer, method="POST")
        assert (frozen.status, frozen.json["adaptation"]["frozen"]) == (200, True)
        assert (await node.ask("/v1/tempo", OPERATOR)).json["policy"]["adaptation"]["frozen"]
        again = await node.ask("/v1/tempo/unfreeze", bearer, method="POST")
        assert again.status == 200
        assert again.json["initial_bpm"] == 12
        assert not again.json["adaptation"]["frozen"]


@pytest.mark.parametrize("method, path", CHANGES)
async def test_nobody_else_changes_it_whatever_they_hold(method, path):
    """A node writes with the owner's key: it must not do so for those who could not do it."""
    async with served(CLOSED, long_bars) as node:
        how = {"method": method, "body": json.dumps(POLICY).encode()}
        assert (await node.ask(path, **how)).status == 401
        reader = await Holder(node, long_bars).granted()
        assert (await node.ask(path, reader.token(), **how)).json["reason"] == "role"
        holder = await Holder(node, long_bars).granted(can="all")
        refused = await node.ask(path, holder.token(role="tempo"), **how)
        assert (refused.status, refused.json["reason"]) == (403, "not_owner")
        refused = await node.ask(path, owners_token(node, role="read"), **how)
        assert (refused.status, refused.json["reason"]) == (403, "role")
        assert (await node.ask("/v1/tempo", OPERATOR)).json["bpm"] == 15


@pytest.mark.parametrize(
    "body, status, reason",
    [
        (b"", 400, "malformed"),
        (b"[]", 400, "malformed"),
        (b"{" * 1000, 400, "malformed"),
        (b'{"initial_bpm": 900}', 422, "tempo"),
        (b'{"initial_bpm": 15.5}', 422, "type"),
        (b'{"tempo": 15}', 422, "tempo"),
        (b'{"initial_bpm": 25}', 422, "tempo"),
        (b'{"cluster_id": "' + b"x" * 70_000 + b'"}', 413, "too_large"),
    ],
)
async def test_what_is_no_policy_is_refused(body, status, reason):
    async with served(CLOSED) as node:
        answer = await node.ask("/v1/tempo", OPERATOR, method="PUT", body=body)
        assert (answer.status, answer.json["reason"]) == (status, reason)


async def test_a_body_that_never_comes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(door, "ARRIVING_S", 0.1)
    async with served(CLOSED) as node, connected(node.port) as line:
        head = request("/v1/tempo", OPERATOR, method="PUT").replace(b"Length: 0", b"Length: 10")
        line.send(head + b"{")
        assert (await line.answer()).status == 408
