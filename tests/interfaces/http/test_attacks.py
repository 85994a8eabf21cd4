"""What somebody may try from a web page, with an old token, or with a slow or large request."""

import json

import pytest

from antiphon.interfaces.http import door
from antiphon.interfaces.http.endpoints import ENDPOINTS, SIGNED
from tests.interfaces.http.client import OPERATOR, connected, request, served
from tests.interfaces.http.test_api import checked, post, submitted
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars
from tests.interfaces.http.test_questions_and_messages import asked, member

pytestmark = pytest.mark.processes


def path_of(one, job) -> str:
    return one.path.format(
        job=job, space="notes", reason="paused", name="result", message="0" * 32, hook="h"
    )


async def test_no_path_does_anything_for_another_sites_page_or_name():
    """A browser sends forms and simple requests anywhere, and says where its page is from."""
    async with served() as node:
        job = await submitted(node)
        before = node.node.applied
        for one in ENDPOINTS:
            for header, status in (
                (b"Host: localhost\r\nOrigin: https://attacker.example", 403),
                (b"Host: localhost\r\nOrigin: null", 403),
                (b"Host: rebound.attacker.example", 421),
            ):
                body = b'{"kind": "build.app", "answer": "yes"}' if one.method == "POST" else b""
                sent = request(path_of(one, job), OPERATOR, method=one.method, body=body)
                async with connected(node.port) as line:
                    line.send(sent.replace(b"Host: localhost", header, 1))
                    assert (await line.answer()).status == status, (one, header)
        assert node.node.applied == before, "nothing was written"


async def test_what_a_browser_sends_by_itself_is_no_token():
    async with served() as node:
        for header in (f"Cookie: token={OPERATOR}", f"Authorization: Basic {OPERATOR}"):
            for one in ENDPOINTS:
                sent = request(path_of(one, "ffff"), method=one.method).removesuffix(b"\r\n")
                async with connected(node.port) as line:
                    line.send(sent + f"{header}\r\n\r\n".encode())
                    assert (await line.answer()).status == 401, one


async def test_a_token_that_was_copied_is_worth_nothing_after_its_bars():
    async with served(CLOSED, long_bars) as node:
        job = await submitted(node)
        holder = await Holder(node, long_bars).granted(can="all")
        now = holder.token(role="all")
        assert (await node.ask("/v1/jobs", now)).status == 200
        old = holder.token(role="all", bars_ago=2)
        before = node.node.applied
        for one in ENDPOINTS:
            if one.under == SIGNED:
                continue
            refused = await node.ask(path_of(one, job), old, method=one.method, body=b"{}")
            assert (refused.status, refused.json["reason"]) == (401, "late"), one
        assert node.node.applied == before


async def test_a_cursor_leads_nobody_to_what_they_may_not_see():
    """A cursor is of a query and of the kinds that its party may read; it permits nothing."""
    async with served(CLOSED, long_bars) as node:
        _, theirs = await member(node)
        for number in range(2):
            await submitted(node, "build.app", args=[number])
            await submitted(node, "bank.pay", args=[number])
            await asked(node, theirs, kind="build.ask", text=f"{number}?")
            await asked(node, theirs, kind="bank.ask", text=f"{number}?")
        reader = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        token = reader.token(project="build")
        for path in ("/v1/jobs", "/v1/kinds", "/v1/questions", "/v1/attention"):
            every = (await node.ask(f"{path}?limit=1", OPERATOR)).json["next"]
            assert every, path
            refused = await node.ask(f"{path}?limit=1&after={every}", token)
            assert (refused.status, refused.json["reason"]) == (400, "cursor"), path
            mine = (await node.ask(f"{path}?limit=1", token)).json["next"]
            rest = await node.ask(f"{path}?after={mine}", token)
            assert "bank" not in rest.body.decode(), path
            for wrong in ("x", "AAAA", mine[:-2], mine + "AA", "%ff"):
                answer = await node.ask(f"{path}?after={wrong}", token)
                assert answer.status == 400, (path, wrong)


async def test_a_request_that_comes_slowly_ends_and_does_nothing(monkeypatch):
    async with served() as node:
        body = json.dumps({"kind": "build.app"}).encode()
        with monkeypatch.context() as hasty:
            hasty.setattr(door, "ARRIVING_S", 0.2)
            for path in ("/v1/jobs", "/v1/hooks/ship", "/v1/verify", "/v1/messages"):
                async with connected(node.port) as line:
                    line.send(request(path, OPERATOR, method="POST", body=body)[:-4])
                    assert (await line.answer()).status == 408, path
        listed = checked(await node.ask("/v1/jobs", OPERATOR), "jobs")
        assert listed.items == []


async def test_no_path_reads_more_than_its_limit():
    async with served() as node:
        for one in ENDPOINTS:
            if one.method != "POST":
                continue
            most = one.limits.request_bytes
            path = path_of(one, "ffff")
            sent = request(path, OPERATOR, method="POST", body=b" " * (most + 1))
            async with connected(node.port) as line:
                line.send(sent)
                assert (await line.answer()).status in {413, 404, 400}, one
        large = await post(node, "/v1/jobs", {"kind": "build.app", "args": ["x" * 70_000]})
        assert (large.status, large.json["reason"]) == (413, "too_large")
