"""`/v1` for programs: jobs and everything else, within what a token permits."""

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest

from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.state import EMPTY
from antiphon.core.families.mesh.ops import MeshPause, PauseBody
from antiphon.guard import Who
from antiphon.interfaces.http import api_routes, openapi
from antiphon.interfaces.http.endpoints import ENDPOINTS
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.executors.handler_call import JobContext
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.replica.replica import Replica
from antiphon.sdk.http.job_content import JobContent
from antiphon.sdk.http.node_api import NodeApi
from tests.guard_limits import limited
from tests.interfaces.http.client import OPERATOR, connected, request, served
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars
from tests.patience import NEVER_S, PATIENCE_S
from tests.runtime.by_hand import completed
from tests.runtime.meshes import CALM, call
from tests.runtime.plans.plan_meshes import grant

pytestmark = pytest.mark.processes

ANSWERS = {one.name: one.answer for one in ENDPOINTS}


async def post(node, path, body=None, token=OPERATOR, **headers):
    sent = request(path, token, method="POST", body=json.dumps(body or {}).encode())
    head, _, rest = sent.partition(b"\r\n\r\n")
    more = "".join(f"\r\n{name.replace('_', '-')}: {value}" for name, value in headers.items())
    async with connected(node.port) as line:
        line.send(head + more.encode() + b"\r\n\r\n" + rest)
        return await line.answer()


async def submitted(node, kind="build.app", **body) -> str:
    answer = await post(node, "/v1/jobs", {"kind": kind, **body})
    assert answer.status == 201, answer
    return answer.json["id"]


def checked(answer, name):
    """The answer, if it is what the document says."""
    assert answer.status in {200, 201}, answer
    return msgspec.json.decode(answer.body, type=ANSWERS[name])


async def test_a_forgotten_job_says_by_whom_and_when_and_shows_nothing_else():
    async with served() as node:
        session = node.program.connection.session
        job = await completed(session, session, "build.app")
        await node.node.reached((await session.log.last()).seq)
        before = await node.ask(f"/v1/jobs/{job.id}", OPERATOR)
        assert checked(before, "job").forgotten_by == ""
        order = await forget(session, "build.app", job.id)
        await node.node.reached(order.seq)
        after = await node.ask(f"/v1/jobs/{job.id}", OPERATOR)
        shown = checked(after, "job")
        assert (shown.forgotten_by, shown.forgotten_ms) == (order.by, order.at_ms)
        (listed,) = checked(await node.ask("/v1/jobs", OPERATOR), "jobs").items
        assert listed == shown
        for path in ("outputs", "proof", "bundle"):
            refused = await node.ask(f"/v1/jobs/{job.id}/{path}", OPERATOR)
            assert (refused.status, refused.json["reason"]) == (410, "erased"), path
        async with connected(node.port) as line:
            line.send(request(f"/v1/jobs/{job.id}/events", OPERATOR))
            stream = Stream(line)
            for _ in range(2):  # as it is now, and its end: no record in between
                event = await stream.next()
                assert event["event"] == "job"
                assert json.loads(event["data"])["forgotten_by"] == order.by


async def test_a_job_is_submitted_listed_shown_cancelled_and_retried():
    async with served() as node:
        job = await submitted(node, args=[1, {"a": None}], kwargs={"options": 2, "what": 3})
        shown = checked(await node.ask(f"/v1/jobs/{job[:12]}", OPERATOR), "job")
        assert (shown.id, shown.state, shown.ended_ms) == (job, "pending", None)
        listed = checked(await node.ask("/v1/jobs?state=pending&kind=build", OPERATOR), "jobs")
        assert [one.id for one in listed.items] == [job]
        counts = checked(await node.ask("/v1/counts?kind=build", OPERATOR), "counts")
        assert counts.jobs == {"pending": 1}
        ended = await post(node, f"/v1/jobs/{job}/cancel", {"reason": "not wanted"})
        assert checked(ended, "cancel").outcome == "cancelled"
        found = checked(await node.ask("/v1/jobs?text=not+wanted", OPERATOR), "jobs")
        assert [one.id for one in found.items] == [job]
        again = await post(node, f"/v1/jobs/{job}/retry")
        assert (again.status, checked(again, "retry").is_new) == (201, True)
        assert again.headers["location"] == f"/v1/jobs/{again.json['id']}"
        assert (await post(node, f"/v1/jobs/{job}/retry")).status == 200, "it is there already"


async def test_the_same_key_is_the_same_job_for_its_party_alone():
    async with served(CLOSED, long_bars) as node:
        holder = await Holder(node, long_bars).granted(can="schedule")
        body, key = {"kind": "build.app", "args": [1]}, {"Idempotency_Key": "order-7"}
        first = await post(node, "/v1/jobs", body, **key)
        second = await post(node, "/v1/jobs", body, **key)
        assert (first.status, second.status) == (201, 200)
        assert first.json["id"] == second.json["id"]
        other = await post(node, "/v1/jobs", body, holder.token(role="schedule"), **key)
        assert (other.status, other.json["id"] != first.json["id"]) == (201, True)
        without = await post(node, "/v1/jobs", body)
        assert without.json["is_new"]


async def test_pages_go_on_by_a_cursor_that_belongs_to_its_query():
    async with served() as node:
        jobs = [await submitted(node, args=[number]) for number in range(3)]
        first = checked(await node.ask("/v1/jobs?limit=2", OPERATOR), "jobs")
        second = await node.ask(f"/v1/jobs?limit=2&after={first.next}", OPERATOR)
        second = checked(second, "jobs")
        assert [one.id for one in (*first.items, *second.items)] == jobs[::-1]
        assert second.next == ""
        wrong = await node.ask(f"/v1/jobs?kind=build&after={first.next}", OPERATOR)
        assert (wrong.status, wrong.json["type"]) == (400, "/v1/problems/cursor")


WRONG = {
    "/v1/jobs?limit=0": 400,
    "/v1/jobs?limit=501": 400,
    "/v1/jobs?limit=x": 400,
    "/v1/jobs?state=done": 400,
    "/v1/jobs?since=yesterday": 400,
    "/v1/jobs?since=2026-11-18": 400,
    "/v1/jobs?text=%22": 400,
    f"/v1/counts?kind={'k' * 1_001}": 400,
    "/v1/jobs?by=nobody": 404,
    "/v1/jobs/ffff": 404,
    "/v1/jobs/not-an-id": 400,
    "/v1/jobs/ffff/bundle": 404,
    "/v1/jobs/ffff/events": 404,
    "/v1/problems/nothing": 404,
    "/v1/nothing": 404,
}
WRONG_BODIES = (
    *(b"[]", b"{", b'{"kind": 1}', b'{"kind": "a", "more": 1}', b"\xff"),
    b'{"kind": "Not A Kind"}',
    b'{"kind": "a", "delay": "soon"}',
    b'{"kind": "a", "requires": ["not a label"]}',
)


async def test_what_is_wrong_with_a_request_is_a_problem_of_a_type():
    async with served() as node:
        for path, status in WRONG.items():
            answer = await node.ask(path, OPERATOR)
            assert (answer.status, answer.json["status"]) == (status, status), (path, answer)
            assert answer.headers["content-type"] == "application/problem+json"
        for body in WRONG_BODIES:
            answer = await node.ask("/v1/jobs", OPERATOR, method="POST", body=body)
            assert answer.status in {400, 422}, (body, answer)


async def test_every_list_is_what_the_document_says_and_nothing_answers_without_a_token():
    async with served() as node:
        await submitted(node)
        owner = (await node.mesh.connection(node.mesh.owner)).session
        written = await write_one(owner, Intent(MeshPause, PauseBody(is_paused=True, kind="zoo")))
        await node.node.reached(written.seq)
        for one in ENDPOINTS:
            path = one.path.format(
                job="ffff", space="notes", reason="paused", name="out", message="0" * 32, hook="h"
            )
            refused = await node.ask(path, method=one.method)
            assert refused.status == 401, one
            if one.method == "GET" and "{job}" not in one.path:
                checked(await node.ask(path, OPERATOR), one.name)
        pauses = checked(await node.ask("/v1/pauses", OPERATOR), "pauses")
        assert [pause.kind for pause in pauses.items] == ["zoo"]


async def test_a_token_shows_and_does_what_it_is_for_and_counts_nothing_else():
    async with served(CLOSED, long_bars) as node:
        mine, other = await submitted(node, "build.app"), await submitted(node, "bank.pay")
        holder = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        token = holder.token(project="build")
        listed = checked(await node.ask("/v1/jobs", token), "jobs")
        assert [one.id for one in listed.items] == [mine]
        assert checked(await node.ask("/v1/counts", token), "counts").jobs == {"pending": 1}
        kinds = checked(await node.ask("/v1/kinds", token), "kinds")
        assert [one.kind for one in kinds.items] == ["build.app"]
        for path in (f"/v1/jobs/{other}", f"/v1/jobs/{other}/events", f"/v1/jobs/{other}/bundle"):
            assert (await node.ask(path, token)).status == 404
        assert checked(await node.ask("/v1/jobs?kind=bank", token), "jobs").items == []
        for path in ("/v1/limits", "/v1/reports"):
            refused = await node.ask(path, token)
            assert (refused.status, refused.json["reason"]) == (403, "project")
        for path in ("/v1/jobs", f"/v1/jobs/{mine}/cancel", f"/v1/jobs/{mine}/retry"):
            refused = await post(node, path, token=token)
            assert (refused.status, refused.json["reason"]) == (403, "role")
        writer = await Holder(node, long_bars).granted(can="schedule", kinds="build.*")
        token = writer.token(project="build", role="schedule")
        refused = await post(node, "/v1/jobs", {"kind": "bank.pay"}, token)
        assert (refused.status, refused.json["reason"]) == (403, "project")
        assert (await post(node, "/v1/jobs", {"kind": "build.app"}, token)).status == 201
        assert (await node.ask("/v1/jobs", token)).json["reason"] == "role"


async def test_a_cursor_of_another_party_is_refused():
    async with served(CLOSED, long_bars) as node:
        for number in range(3):
            await submitted(node, "build.app", args=[number])
        every = checked(await node.ask("/v1/jobs?limit=1", OPERATOR), "jobs")
        holder = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        token = holder.token(project="build")
        refused = await node.ask(f"/v1/jobs?limit=1&after={every.next}", token)
        assert (refused.status, refused.json["reason"]) == (400, "cursor")


async def test_a_job_that_has_ended_has_a_tag_and_one_that_has_not_has_none():
    async with served() as node:
        job = await submitted(node)
        assert "etag" not in (await node.ask(f"/v1/jobs/{job}", OPERATOR)).headers
        await post(node, f"/v1/jobs/{job}/cancel")
        tag = (await node.ask(f"/v1/jobs/{job}", OPERATOR)).headers["etag"]
        async with connected(node.port) as line:
            asked = request(f"/v1/jobs/{job}", OPERATOR).removesuffix(b"\r\n")
            line.send(asked + f"If-None-Match: {tag}\r\n\r\n".encode())
            async with asyncio.timeout(PATIENCE_S):
                head = await line.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 304")


class Stream:
    """Events as they come."""

    def __init__(self, line) -> None:
        self._line = line

    async def next(self) -> dict[str, str]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                text = (await self._line.reader.readuntil(b"\n\n")).decode()
                fields = [row for row in text.splitlines() if ": " in row and row[0] != ":"]
                if fields:
                    return dict(row.split(": ", 1) for row in fields)


async def test_the_events_of_a_job_begin_with_what_it_is_and_end_with_it():
    async with served() as node:
        job = await submitted(node)
        async with connected(node.port) as line:
            line.send(request(f"/v1/jobs/{job}/events", OPERATOR))
            async with asyncio.timeout(PATIENCE_S):
                head = await line.reader.readuntil(b"\r\n\r\n")
            assert b"text/event-stream" in head
            assert b"x-accel-buffering: no" in head.lower()
            stream = Stream(line)
            snapshot = await stream.next()
            assert (snapshot["event"], json.loads(snapshot["data"])["state"]) == ("job", "pending")
            first = await stream.next()
            assert (first["event"], json.loads(first["data"])["op"]) == ("record", "job.schedule")
            session = (await node.mesh.connection()).session
            body = ClaimBody(kind="build.app", job=job, lease_ms=30_000, begin=True)
            await write_one(session, Intent(JobClaim, body, EMPTY))
            second = await stream.next()
            assert json.loads(second["data"])["op"] == "job.claim"
            assert int(second["id"]) > int(first["id"])
            await post(node, f"/v1/jobs/{job}/cancel")
            assert json.loads((await stream.next())["data"])["op"] == "job.cancel"
            last = await stream.next()
            assert (last["event"], json.loads(last["data"])["outcome"]) == ("job", "cancelled")
        async with connected(node.port) as line:
            asked = request(f"/v1/jobs/{job}/events", OPERATOR).removesuffix(b"\r\n")
            line.send(asked + f"Last-Event-ID: {second['id']}\r\n\r\n".encode())
            stream = Stream(line)
            assert (await stream.next())["event"] == "job"
            assert json.loads((await stream.next())["data"])["op"] == "job.cancel", "what is new"


async def test_a_silent_stream_has_a_heartbeat_and_one_party_has_few_streams(monkeypatch):
    monkeypatch.setattr(api_routes, "HEARTBEAT_S", 0.01)
    limited(monkeypatch, "http streams", of_party=1)
    async with served() as node:
        job = await submitted(node)
        async with connected(node.port) as line:
            line.send(request(f"/v1/jobs/{job}/events", OPERATOR))
            async with asyncio.timeout(PATIENCE_S):
                await line.reader.readuntil(b": still here\n\n")
            refused = await node.ask(f"/v1/jobs/{job}/events", OPERATOR)
            assert (refused.status, refused.json["reason"]) == (429, "rate")


async def test_a_stream_has_heartbeats_while_others_write_all_the_time():
    async with served() as node:
        job, others = await submitted(node), 0
        session = (await node.mesh.connection()).session
        bearer = node.access.admit(OPERATOR)
        told = NodeApi(node.program, node.node).events(bearer, job, after=0, wait_s=0.3)
        async with asyncio.timeout(PATIENCE_S):
            while await anext(told) is not None:
                pass
            silent = asyncio.ensure_future(anext(told))
            while not silent.done():
                others += 1
                await call(session, others)
        assert silent.result() is None


async def test_a_bundle_that_is_none_is_refused_and_one_that_is_too_large_too():
    async with served() as node:
        refused = await node.ask("/v1/verify", OPERATOR, method="POST", body=b"{}")
        assert refused.status in {400, 422}
        large = b"x" * (1024 * 1024 + 1)
        assert (await node.ask("/v1/verify", OPERATOR, method="POST", body=large)).status == 413


SOURCES = {
    b"Host: localhost:7464": 200,
    b"Host: 127.0.0.1": 200,
    b"Host: [::1]:80": 200,
    b"Host: attacker.example": 421,
    b"Host: 127.0.0.1.attacker.example": 421,
    b"Host: ": 421,
    b"Host: localhost\r\nOrigin: http://localhost:7464": 200,
    b"Host: localhost\r\nOrigin: https://attacker.example": 403,
    b"Host: localhost\r\nOrigin: null": 403,
    b"Host: localhost\r\nOrigin: http://[": 403,
}


async def test_pages_of_other_sites_and_names_that_point_here_get_nothing():
    async with served(CALM) as node:
        for header, status in SOURCES.items():
            async with connected(node.port) as line:
                line.send(request("/v1/jobs", OPERATOR).replace(b"Host: localhost", header))
                assert (await line.answer()).status == status, header
                line.send(request("/healthz").replace(b"Host: localhost", header))
                assert (await line.answer()).status == 200, "probes are for everybody"


async def test_a_party_whose_answers_took_much_time_rests_and_others_do_not():
    async with served(CLOSED, long_bars) as node:
        greedy = await Holder(node, long_bars).granted()
        other = await Holder(node, long_bars).granted()
        assert (await node.ask("/v1/counts", greedy.token())).status == 200
        node.node.guard.spend(Who(party=greedy.key.did), 60.0)
        refused = await node.ask("/v1/counts", greedy.token())
        assert (refused.status, refused.json["reason"]) == (429, "rate")
        assert int(refused.headers["retry-after"]) > 1
        assert (await node.ask("/v1/kinds", greedy.token())).status == 429, "whatever it asks"
        assert (await node.ask("/v1/counts", other.token())).status == 200


async def test_a_stranger_who_used_up_its_share_keeps_nobody_from_an_answer():
    async with served() as node:
        node.node.guard.spend(Who(party="address 127.0.0.1", is_stranger=True), 60.0)
        assert (await node.ask("/v1/openapi.json")).status == 429
        assert (await node.ask("/healthz")).status == 200, "probes are always answered"
        assert (await node.ask("/v1/counts", OPERATOR)).status == 200, "from the same address"


async def test_the_document_is_made_once_and_not_sent_twice(monkeypatch):
    async with served() as node:
        first = await node.ask("/v1/openapi.json")
        monkeypatch.setattr(openapi, "document", None)
        again = await node.ask("/v1/openapi.json")
        assert (again.status, again.body) == (200, first.body)
        async with connected(node.port) as line:
            asked = request("/v1/openapi.json").removesuffix(b"\r\n")
            line.send(asked + f"If-None-Match: {first.headers['etag']}\r\n\r\n".encode())
            assert b" 304 " in await line.reader.readline()


async def test_a_streams_work_is_for_its_own_lane_alone(monkeypatch):
    """Records of other jobs, and those that the client has, are not read for it."""
    async with served() as node:
        job, session = await submitted(node), (await node.mesh.connection()).session
        read, lane_records = [], Replica.lane_records

        def counted(self, key, **how):
            found = lane_records(self, key, **how)
            read.append(len(found))
            return found

        monkeypatch.setattr(Replica, "lane_records", counted)
        told = NodeApi(node.program, node.node).events(
            node.access.admit(OPERATOR), job, after=0, wait_s=NEVER_S
        )
        assert (await anext(told)).id == job
        assert (await anext(told)).op == "job.schedule"
        waiting = asyncio.ensure_future(anext(told))
        for number in range(5):
            await call(session, number)
        await node.node.reached((await session.log.last()).seq)
        body = ClaimBody(kind="build.app", job=job, lease_ms=30_000, begin=True)
        await write_one(session, Intent(JobClaim, body, EMPTY))
        assert (await waiting).op == "job.claim"
        assert sum(read) == 2, "each record once"
        await told.aclose()


def test_the_document_has_every_path_and_names_only_what_it_has():
    made = openapi.document()
    assert {(path, method) for path, one in made["paths"].items() for method in one} == {
        (one.path, one.method.lower()) for one in ENDPOINTS
    }
    text = json.dumps(made)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= made["components"]["schemas"].keys()
    operations = [one["operationId"] for path in made["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations))


# --- what a job wrote and prints ------------------------------------------------------------------


@asynccontextmanager
async def working(node, function, kind="build.app"):
    """A worker beside the node, and a store of artifacts."""
    store = Artifacts(node.node.session.engine.blobs)
    node.program.connection._artifacts = store
    yield await node.mesh.worker(function, kind=kind)


async def ended(node, job):
    """Wait for a job's end by its events."""
    async with connected(node.port) as line:
        line.send(request(f"/v1/jobs/{job}/events", OPERATOR))
        stream = Stream(line)
        while True:
            event = await stream.next()
            if event.get("event") == "job" and json.loads(event["data"])["outcome"]:
                return json.loads(event["data"])


async def part(node, path, *headers):
    async with connected(node.port) as line:
        asked = request(path, OPERATOR).removesuffix(b"\r\n")
        line.send(asked + "".join(f"{one}\r\n" for one in headers).encode() + b"\r\n")
        return await line.answer()


async def test_the_outputs_of_a_job_are_read_whole_or_by_range_and_its_proof_is_there():
    async def work() -> str:
        return "0123456789" * 30_000

    async with served() as node, working(node, work):
        job = await submitted(node)
        assert (await ended(node, job))["state"] == "succeeded"
        (output,) = checked(await node.ask(f"/v1/jobs/{job}/outputs", OPERATOR), "outputs").items
        path = f"/v1/jobs/{job}/outputs/{output.name}"
        whole = await node.ask(path, OPERATOR)
        assert (whole.status, len(whole.body)) == (200, output.size)
        assert whole.headers["content-type"] == "application/octet-stream"
        assert whole.headers["etag"] == f'"{output.hash}"'
        size = output.size
        for asked, begin, end in (
            ("bytes=0-9", 0, 10),
            ("bytes=100000-", 100_000, size),
            ("bytes=-5", size - 5, size),
            (f"bytes=7-{size * 2}", 7, size),
        ):
            some = await part(node, path, f"Range: {asked}")
            assert (some.status, some.body) == (206, whole.body[begin:end]), asked
            assert some.headers["content-range"] == f"bytes {begin}-{end - 1}/{size}"
        for asked in ("bytes=0-1,5-6", "lines=1-2", "bytes=x-y", "bytes=-"):
            assert (await part(node, path, f"Range: {asked}")).status == 200, "no one range: all"
        none = await part(node, path, f"Range: bytes={size}-")
        assert (none.status, none.headers["content-range"]) == (416, f"bytes */{size}")
        changed = await part(node, path, "Range: bytes=0-1", 'If-Range: "another"')
        assert changed.status == 200
        missing = await node.ask(f"/v1/jobs/{job}/outputs/nothing", OPERATOR)
        assert (missing.status, missing.json["reason"]) == (404, "no_output")
        proof = checked(await node.ask(f"/v1/jobs/{job}/proof", OPERATOR), "proof")
        assert proof.payload_type.startswith("application/vnd.in-toto")


async def test_a_download_takes_a_place_of_its_party_until_it_ends(monkeypatch):
    limited(monkeypatch, "http streams", of_party=1)
    begun, rest = asyncio.Event(), asyncio.Event()
    plain = JobContent.content

    async def slow(self, *what):
        async for piece in plain(self, *what):
            begun.set()
            await rest.wait()
            yield piece

    async def work() -> str:
        return "what it wrote"

    async with served() as node, working(node, work):
        job = await submitted(node)
        await ended(node, job)
        (output,) = (await node.ask(f"/v1/jobs/{job}/outputs", OPERATOR)).json["items"]
        path = f"/v1/jobs/{job}/outputs/{output['name']}"
        for _ in range(2):
            assert (await node.ask(path, OPERATOR)).status == 200, "the one before gave it back"
        assert (await node.ask(f"{path}x", OPERATOR)).status == 404
        monkeypatch.setattr(JobContent, "content", slow)
        async with connected(node.port) as line:
            line.send(request(path, OPERATOR))
            await begun.wait()
            for other in (f"/v1/jobs/{job}/events", path):
                refused = await node.ask(other, OPERATOR)
                assert (refused.status, refused.json["reason"]) == (429, "rate"), other
            rest.set()
            assert (await line.answer()).status == 200
        assert (await node.ask(path, OPERATOR)).status == 200


async def test_nobody_has_content_shown_that_only_their_own_records_name(tmp_path):
    """A node may read every blob, and a completion can name any."""
    async with served(CLOSED, long_bars) as node:
        owner = (await node.mesh.connection(node.mesh.owner)).session
        worker, reader = [
            await Holder(node, long_bars).granted(can="read", kinds="build.*") for _ in range(2)
        ]
        await grant(owner, worker.key.did, can=("claim",), kinds=("build.*",))
        secret = tmp_path / "secret"
        secret.write_bytes(b"of another kind" * 10_000)
        store = node.program.connection._artifacts = Artifacts(owner.engine.blobs)
        named = await store.keep(secret, "result")
        there = (await node.mesh.connection(worker.key)).session
        job = await completed(owner, there, "build.app", named)
        await node.node.reached((await owner.log.last()).seq)
        path = f"/v1/jobs/{job.id}/outputs/result"
        refused = await node.ask(path, worker.token(project="build"))
        assert (refused.status, refused.json["reason"]) == (403, "own_content")
        for token in (reader.token(project="build"), OPERATOR):
            assert (await node.ask(path, token)).body == secret.read_bytes()


async def test_what_a_job_prints_and_how_far_it_is_are_told_while_it_runs():
    heard = asyncio.Event()

    async def work(ctx: JobContext) -> None:
        while not heard.is_set():
            ctx.progress(0.5, "half of it")
            await asyncio.sleep(0.01)

    async with served() as node, working(node, work):
        job = await submitted(node)
        early = await node.ask(f"/v1/jobs/{job}/outputs", OPERATOR)
        assert (early.status, early.json["reason"]) == (409, "not_ended")
        async with connected(node.port) as line:
            line.send(request(f"/v1/jobs/{job}/log", OPERATOR))
            stream = Stream(line)
            assert (await stream.next())["event"] == "job"
            piece = await stream.next()
            assert piece["event"] == "output"
            assert json.loads(piece["data"])["note"] == "half of it"
            heard.set()
            while (last := await stream.next())["event"] != "job":
                pass
            assert json.loads(last["data"])["state"] == "succeeded"
