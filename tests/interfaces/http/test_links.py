"""A link to one job opens that job until its end, and nothing else."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from antiphon.core.bar_tokens import job_link
from antiphon.core.bar_tokens.job_link import JobLink, issue_link
from antiphon.errors import Malformed, Rejected
from antiphon.guard import Who
from antiphon.interfaces.http import api_routes
from antiphon.interfaces.http.endpoints import ENDPOINTS
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.http.job_content import JobContent
from antiphon.sdk.http.job_links import make_link
from antiphon.sdk.http.node_api import NodeApi
from antiphon.sdk.jobs.job_lookup import one_job
from tests.guard_limits import limited
from tests.interfaces.http.client import OPERATOR, as_mesh, connected, request, served
from tests.interfaces.http.test_api import Stream, checked, ended, post, submitted, working
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars
from tests.interfaces.http.test_questions_and_messages import asked, member
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes


async def linked(node, job, **body):
    made = await post(node, f"/v1/jobs/{job}/links", body)
    assert made.status == 201, made
    return made.json["token"]


def path_of(one, job) -> str:
    return one.path.format(
        job=job, space="notes", reason="paused", name="result", message="0" * 32, hook="h"
    )


async def test_a_link_opens_its_jobs_story_and_proof_and_its_outputs_if_asked():
    async def work() -> str:
        return "what it wrote"

    async with served() as node, working(node, work):
        job = await submitted(node)
        await ended(node, job)
        story, whole = await linked(node, job), await linked(node, job, outputs=True)
        for one in ENDPOINTS:
            if not one.linked or "stream" in str(one.answer):
                continue
            path = path_of(one, job)
            everything = await node.ask(path, OPERATOR)
            assert (await node.ask(f"{path}?link={whole}")).body == everything.body, one
            shown = await node.ask(f"{path}?link={story}")
            expected = everything.status if one.linked == "story" else 403
            assert shown.status == expected, one
        async with connected(node.port) as line:
            line.send(request(f"/v1/jobs/{job}/events?link={story}"))
            assert json.loads((await Stream(line).next())["data"])["id"] == job


async def test_a_link_to_the_story_of_a_question_does_not_tell_its_answer():
    async with served(CLOSED, long_bars) as node:
        _, theirs = await member(node)
        job = await asked(node, theirs)
        await post(node, f"/v1/questions/{job}/answer", {"answer": "yes"})
        story, whole = await linked(node, job), await linked(node, job, outputs=True)
        assert (await node.ask(f"/v1/jobs/{job}?link={story}")).status == 200
        for path in ("proof", "events"):
            refused = await node.ask(f"/v1/jobs/{job}/{path}?link={story}")
            assert (refused.status, refused.json["reason"]) == (403, "role"), path
            assert "--outputs" in refused.json["hint"]
        assert (await node.ask(f"/v1/jobs/{job}/proof?link={whole}")).status == 200
        async with connected(node.port) as line:
            line.send(request(f"/v1/jobs/{job}/events?link={whole}"))
            async with asyncio.timeout(PATIENCE_S):
                assert b"answered: " in await line.reader.readuntil(b"0\r\n\r\n")


async def test_a_link_opens_no_other_job_and_no_other_path():
    async with served() as node:
        job, other = await submitted(node, args=[1]), await submitted(node, args=[2])
        link = await linked(node, job, outputs=True)
        refused = await node.ask(f"/v1/jobs/{other}?link={link}")
        assert (refused.status, refused.json["reason"]) == (404, "no_job")
        assert (await node.ask(f"/v1/jobs/{job[:12]}?link={link}")).status == 404
        for one in ENDPOINTS:
            path = path_of(one, job)
            as_token = await node.ask(path, link, method=one.method)
            assert as_token.status == 401, (one, "a link is not a token")
            if not one.linked:
                assert (await node.ask(f"{path}?link={link}", method=one.method)).status == 401, one
        for path in ("/metrics", "/v1/status", "/v1/tempo"):
            assert (await node.ask(f"{path}?link={link}")).status == 401
        refused = await node.ask(f"/v1/jobs/{job}?link={link}", method="POST")
        assert refused.status == 405


async def test_a_link_ends_and_one_that_was_changed_is_none():
    async with served() as node:
        job = await submitted(node)
        found = one_job(node.node.replica, job)
        now_ms = node.mesh.wall.now_ms()
        link = JobLink(kind=found.kind, job=job, until_ms=now_ms + 3_600_000)
        owner = node.mesh.owner

        async def opened(link, key=owner, mesh=node.mesh.mesh):
            token = issue_link(link, (key.did, key.sign), mesh=mesh)
            answer = await node.ask(f"/v1/jobs/{job}?link={token}")
            return answer.status, answer.json.get("reason")

        assert await opened(link) == (200, None)
        assert await opened(replace(link, until_ms=now_ms - 1)) == (401, "late")
        far = replace(link, until_ms=now_ms + 2 * job_link.MAX_MS)
        assert await opened(far) == (401, "late"), "longer than any link"
        assert await opened(link, mesh="another") == (401, "mesh")
        stranger = SeedKeyring(node.mesh.entropy.token(32))
        assert await opened(link, stranger) == (401, "no_chain")
        token = await linked(node, job)
        broken = token[:-9] + ("A" if token[-9] != "A" else "B") + token[-8:]
        assert (await node.ask(f"/v1/jobs/{job}?link={broken}")).status == 401
        for text in ("x", "%00", "A" * 5_000):
            assert (await node.ask(f"/v1/jobs/{job}?link={text}")).status == 401


async def test_a_stream_ends_with_its_link(monkeypatch):
    monkeypatch.setattr(api_routes, "HEARTBEAT_S", 0.01)
    async with served() as node:
        job = await submitted(node)
        found = one_job(node.node.replica, job)
        now_ms = node.mesh.wall.now_ms()
        link = JobLink(kind=found.kind, job=job, until_ms=now_ms + 3_600_000)
        token = issue_link(link, (node.mesh.owner.did, node.mesh.owner.sign), mesh=node.mesh.mesh)
        async with connected(node.port) as line, asyncio.timeout(PATIENCE_S):
            line.send(request(f"/v1/jobs/{job}/events?link={token}"))
            await line.reader.readuntil(b"event: job")
            monkeypatch.setattr(NodeApi, "now_ms", lambda _: link.until_ms)
            await line.reader.readuntil(b"0\r\n\r\n")


async def test_streams_end_when_the_right_of_a_link_or_a_token_ends(monkeypatch):
    monkeypatch.setattr(api_routes, "HEARTBEAT_S", 0.01)
    async with served(CLOSED, long_bars) as node:
        job = await submitted(node, "build.app")
        holder = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        mesh = await as_mesh(node.mesh, holder.key)
        await mesh.connection.session.sync_control()
        made = make_link(mesh, one_job(node.node.replica, job), lasts="2h")
        path = f"/v1/jobs/{job}/events"
        async with connected(node.port) as by_link, connected(node.port) as by_token:
            by_link.send(request(f"{path}?link={made.token}"))
            by_token.send(request(path, holder.token(project="build")))
            async with asyncio.timeout(PATIENCE_S):
                for line in (by_link, by_token):
                    await line.reader.readuntil(b": still here\n\n")
                await holder.revoked()
                for line in (by_link, by_token):
                    await line.reader.readuntil(b"0\r\n\r\n")


async def test_streams_of_the_machine_itself_last_without_a_delegation(monkeypatch):
    """Its operator and its own key need none; what was delegated to that key still ends."""
    monkeypatch.setattr(api_routes, "HEARTBEAT_S", 0.01)
    async with served(CLOSED, long_bars) as node:
        job = await submitted(node, "build.app")
        holder = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        mesh = await as_mesh(node.mesh, holder.key)
        await mesh.connection.session.sync_control()
        made = make_link(mesh, one_job(node.node.replica, job), lasts="2h")
        node.access.own_key = holder.key.did
        path = f"/v1/jobs/{job}/events"
        async with (
            connected(node.port) as operators,
            connected(node.port) as own,
            connected(node.port) as by_delegation,
        ):
            operators.send(request(path, OPERATOR))
            own.send(request(f"{path}?link={made.token}"))
            by_delegation.send(request(path, holder.token(project="build")))
            async with asyncio.timeout(PATIENCE_S):
                for line in (operators, own, by_delegation):
                    await line.reader.readuntil(b": still here\n\n")
                await holder.revoked()
                await by_delegation.reader.readuntil(b"0\r\n\r\n")
                for line in (operators, own):
                    for _ in range(3):
                        await line.reader.readuntil(b": still here\n\n")


async def test_a_download_breaks_off_when_its_link_ends(monkeypatch, capfd):
    begun, rest = asyncio.Event(), asyncio.Event()

    async def pieces(*_):
        yield b"0123"
        begun.set()
        await rest.wait()
        yield b"4567"

    async def work() -> str:
        return "01234567"

    async with served(CLOSED, long_bars) as node:
        connection = await node.mesh.connection(node.mesh.owner)
        await node.mesh.worker(work, kind="build.app", connection=connection)
        job = await submitted(node, "build.app")
        await ended(node, job)
        holder = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        mesh = await as_mesh(node.mesh, holder.key)
        await mesh.connection.session.sync_control()
        made = make_link(mesh, one_job(node.node.replica, job), lasts="2h", outputs=True)
        monkeypatch.setattr(JobContent, "content", pieces)
        async with connected(node.port) as line:
            line.send(request(f"/v1/jobs/{job}/outputs/result?link={made.token}"))
            async with asyncio.timeout(PATIENCE_S):
                await line.reader.readuntil(b"0123")
                await begun.wait()
                await holder.revoked()
                rest.set()
                assert b"4567" not in await line.reader.read()
        assert "http_request_failed" not in capfd.readouterr().err, "that is no bug"


async def test_all_links_of_one_signer_have_the_streams_of_one_party(monkeypatch):
    limited(monkeypatch, "http streams", of_party=1)
    async with served() as node:
        jobs = [await submitted(node, args=[number]) for number in range(2)]
        links = [await linked(node, job) for job in jobs]
        async with connected(node.port) as line, connected(node.port) as own:
            line.send(request(f"/v1/jobs/{jobs[0]}/events?link={links[0]}"))
            await Stream(line).next()
            refused = await node.ask(f"/v1/jobs/{jobs[1]}/events?link={links[1]}")
            assert (refused.status, refused.json["reason"]) == (429, "rate")
            own.send(request(f"/v1/jobs/{jobs[1]}/events", OPERATOR))
            await Stream(own).next()


async def test_all_links_of_one_signer_have_the_time_of_one_party():
    async with served() as node:
        job = await submitted(node)
        links = [await linked(node, job) for _ in range(2)]
        signer = f"links of {node.program.connection.did}"
        assert (await node.ask(f"/v1/jobs/{job}?link={links[0]}")).status == 200
        node.node.guard.spend(Who(party=signer), 60.0)
        for link in links:
            assert (await node.ask(f"/v1/jobs/{job}?link={link}")).status == 429
        assert (await node.ask(f"/v1/jobs/{job}", OPERATOR)).status == 200


async def test_a_member_signs_its_own_link_which_ends_with_its_right():
    async with served(CLOSED, long_bars) as node:
        job, hidden = await submitted(node, "build.app"), await submitted(node, "bank.pay")
        holder = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        token = holder.token(project="build")
        refused = await post(node, f"/v1/jobs/{job}/links", {}, token)
        assert (refused.status, refused.json["reason"]) == (403, "own_key")
        assert (await post(node, f"/v1/jobs/{hidden}/links", {}, token)).status == 404
        mesh = await as_mesh(node.mesh, holder.key)
        await mesh.connection.session.sync_control()
        found = one_job(node.node.replica, job)
        made = make_link(mesh, found, lasts="2h")
        assert checked(await node.ask(made.path), "job").id == job
        with pytest.raises(Rejected):
            make_link(mesh, one_job(node.node.replica, hidden), lasts="2h")
        with pytest.raises(Malformed):
            make_link(mesh, found, lasts="31d")
        forged = JobLink(
            delegation=holder.chain, kind="bank.pay", job=hidden, until_ms=made.until_ms
        )
        text = issue_link(forged, (holder.key.did, holder.key.sign), mesh=node.mesh.mesh)
        refused = await node.ask(f"/v1/jobs/{hidden}?link={text}")
        assert (refused.status, refused.json["reason"]) == (401, "project")
        lying = JobLink(
            delegation=holder.chain, kind="build.app", job=hidden, until_ms=made.until_ms
        )
        text = issue_link(lying, (holder.key.did, holder.key.sign), mesh=node.mesh.mesh)
        assert (await node.ask(f"/v1/jobs/{hidden}?link={text}")).status == 404
        await holder.revoked()
        refused = await node.ask(made.path)
        assert (refused.status, refused.json["reason"]) == (401, "ended")


async def test_a_link_is_in_no_log_line(caplog, capsys):
    async with served() as node:
        job = await submitted(node)
        link = await linked(node, job)
        await node.ask(f"/v1/jobs/{job}?link={link}")
        await node.ask(f"/v1/jobs/{job}?link={link[:-4]}")
        answer = await node.ask(f"/v1/jobs/{job}?link={link}")
        assert answer.headers["referrer-policy"] == "no-referrer"
    shown = capsys.readouterr()
    assert link[:40] not in caplog.text + shown.out + shown.err
