"""The task `http.post`: one request to a host on the list, and nothing else."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from antiphon import JobFailed, Mesh
from antiphon.sdk.webhooks import outgoing
from antiphon.sdk.webhooks.outgoing import KIND, offer_posts
from antiphon.sdk.webhooks.signature import OWN, check_sender

pytestmark = pytest.mark.processes

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere"


class Receiver:
    """A server that answers what it is told, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers = [OK]
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    async def take(self, reader, writer) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {key.lower(): value for key, _, value in (x.partition(": ") for x in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        self.seen.append((head[0], headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        writer.write(answer)
        writer.close()


@asynccontextmanager
async def posting(*more, secrets=None):
    """A mesh with a worker that posts to a receiver, and the receiver."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.take, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    mesh = Mesh.open(engine="memory")
    offer_posts(mesh, [f"http://127.0.0.1:{receiver.port}", *more], secrets=secrets)
    try:
        async with mesh, mesh.worker():
            yield mesh, receiver
    finally:
        server.close()


async def posted(mesh, url, *args, **options):
    return await (await mesh.submit(KIND, url, *args, options=options)).result()


async def failed(mesh, url, *args) -> str:
    with pytest.raises(JobFailed) as problem:
        await posted(mesh, url, *args)
    return str(problem.value)


async def test_a_body_is_sent_once_as_json_and_signed_with_the_hosts_secret(tmp_path):
    secret = tmp_path / f"{KIND}.127.0.0.1"
    secret.write_bytes(b"what-both-know-16\n")
    async with posting(secrets=tmp_path) as (mesh, receiver):
        url = f"http://127.0.0.1:{receiver.port}/hook?x=1"
        job = await mesh.submit(KIND, url, {"text": "built"}, {"X-Event": "build"})
        assert await job.result() == {"status": 200, "body": "there"}
        ((first, headers, body),) = receiver.seen
        assert first == "POST /hook?x=1 HTTP/1.1"
        assert body == b'{"text":"built"}'
        assert headers["host"] == f"127.0.0.1:{receiver.port}"
        assert headers["idempotency-key"] == job.id
        assert headers["x-event"] == "build"
        now = int(headers[OWN].split(",")[0].removeprefix("t="))
        assert headers[OWN].split(",")[1] == f"id={job.id}"
        assert check_sender(b"what-both-know-16", headers, body, now_s=now, plain=False)


async def test_hosts_addresses_and_headers_that_are_not_permitted_end_the_job():
    async with posting("http://inside.example:80") as (mesh, receiver):
        url = f"http://127.0.0.1:{receiver.port}/"
        assert "posts nothing to" in await failed(mesh, "http://127.0.0.1:1/")
        assert "posts nothing to" in await failed(mesh, "https://attacker.example/")
        assert "not an https" in await failed(mesh, "file:///etc/passwd")
        for name, value in (("Host", "x"), ("Transfer-Encoding", "chunked"), ("A", "b\r\nC: d")):
            assert "cannot be set" in await failed(mesh, url, None, {name: value})
        assert "at most" in await failed(mesh, url, "x" * outgoing.BODY_BYTES)
        many = {f"X-{number}": "" for number in range(outgoing.HEADERS + 1)}
        assert "at most" in await failed(mesh, url, None, many)
        assert receiver.seen == []


async def test_a_name_that_is_none_ends_the_job():
    async with posting("*.example") as (mesh, _):
        for name in ("a..example", f"{'a' * 64}.example"):
            assert "is no name of a host" in await failed(mesh, f"https://{name}/")


async def test_a_receiver_that_stops_reading_holds_no_connection(monkeypatch):
    """What it did not take would else be kept until it does."""
    monkeypatch.setattr(outgoing, "REQUEST_S", 0.2)
    monkeypatch.setattr(outgoing, "AGAIN_S", 0.01)
    opened = []
    real = asyncio.open_connection

    async def watched(*where, **how):
        reader, writer = await real(*where, **how)
        line = writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        opened.append(line)
        return reader, writer

    monkeypatch.setattr(asyncio, "open_connection", watched)
    over = asyncio.Event()

    async def deaf(_reader, writer) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with posting(url) as (mesh, _):
        assert "no answer in time" in await failed(mesh, url, "x" * (outgoing.BODY_BYTES - 9))
        assert len(opened) > 1
        assert {line.fileno() for line in opened} == {-1}
        over.set()
    server.close()


async def test_a_name_that_leads_inside_is_refused_however_it_is_looked_up(monkeypatch):
    looked_up = []
    async with posting("http://rebinding.example:80") as (mesh, receiver):
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def lookup(host, port, **how):
            if host != "rebinding.example":
                return await real(host, port, **how)
            looked_up.append(host)
            inside = ("10.0.0.1", port)
            public = ("93.184.215.14", port)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one) for one in (public, inside)]

        monkeypatch.setattr(loop, "getaddrinfo", lookup)
        assert "not a public address" in await failed(mesh, "http://rebinding.example/")
        assert looked_up == ["rebinding.example"]
        assert receiver.seen == []


async def test_a_redirect_is_not_followed_and_a_fault_of_the_other_side_is_tried_again(monkeypatch):
    monkeypatch.setattr(outgoing, "AGAIN_S", 0.01)
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    async with posting() as (mesh, receiver):
        url = f"http://127.0.0.1:{receiver.port}/"
        receiver.answers = [moved]
        assert "answered 302" in await failed(mesh, url)
        receiver.answers = [b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"]
        assert "answered 404" in await failed(mesh, url, 1)
        before = len(receiver.seen)
        receiver.answers = [busy, b"", OK]
        assert (await posted(mesh, url, 2))["status"] == 200
        keys = {headers["idempotency-key"] for _, headers, _ in receiver.seen[before:]}
        assert (len(receiver.seen) - before, len(keys)) == (3, 1)


LARGE = outgoing.ANSWER_BYTES
ANSWERS = {
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK: "there",
    b"HTTP/1.1 200 OK\r\n\r\nto the end": "to the end",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n": (
        "abcde"
    ),
    b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"y" * (2 * LARGE): "y" * LARGE,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n" + b"z" * (2 * LARGE): (
        "z" * LARGE
    ),
}


async def test_of_an_answer_a_bounded_part_is_the_result():
    async with posting() as (mesh, receiver):
        for number, (answer, text) in enumerate(ANSWERS.items()):
            receiver.answers = [answer]
            found = await posted(mesh, f"http://127.0.0.1:{receiver.port}/", number)
            assert found == {"status": 200, "body": text}


async def test_what_is_not_http_is_no_answer(monkeypatch):
    monkeypatch.setattr(outgoing, "AGAIN_S", 0.01)
    wrong = [
        b"SSH-2.0-x\r\n\r\n",
        b"x" * (2 * outgoing.HEAD_BYTES),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ]
    async with posting() as (mesh, receiver):
        receiver.answers = [*wrong, OK]
        await posted(mesh, f"http://127.0.0.1:{receiver.port}/")
        assert len(receiver.seen) == len(wrong) + 1
