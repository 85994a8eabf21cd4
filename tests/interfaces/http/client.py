"""A small HTTP client, and a node in memory that answers it on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from antiphon import Mesh
from antiphon.core.tempo.meter import Meter
from antiphon.interfaces.http.node_server import node_server
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
from antiphon.sdk.http.access import HttpAccess
from antiphon.sdk.http.deliveries import Deliveries
from antiphon.sdk.http.node_api import NodeApi
from antiphon.sdk.http.node_view import NodeView
from antiphon.sdk.http.operator_token import OperatorToken
from antiphon.sdk.http.tempo_admin import TempoAdmin
from antiphon.settings import HttpAddress
from tests.patience import PATIENCE_S
from tests.runtime.meshes import CALM, MeshUnderTest, a_mesh

OPERATOR = "operators-own-secret-42"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


async def answer_of(reader: asyncio.StreamReader) -> Answer:
    """The next answer on a connection."""
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
    return Answer(int(head[0].split()[1]), headers, body)


def request(path: str, token: str | None = None, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body or method in {"PUT", "POST"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Line(NamedTuple):
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, sent: bytes) -> None:
        self.writer.write(sent)

    async def answer(self) -> Answer:
        return await answer_of(self.reader)

    async def ends(self) -> None:
        """Wait until the other side closes it."""
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                while await self.reader.read(65_536):
                    pass


@asynccontextmanager
async def connected(port: int, *, source: str = "127.0.0.1") -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ask(port: int, path: str, token: str | None = None, **how) -> Answer:
    """One request on a connection of its own."""
    async with connected(port) as line:
        line.send(request(path, token, **how))
        return await line.answer()


class Served(NamedTuple):
    port: int
    mesh: MeshUnderTest
    node: object
    tempo: TempoMetrics
    access: HttpAccess
    program: Mesh
    """What signs the requests of `/v1`."""

    async def ask(self, path: str, token: str | None = None, **how) -> Answer:
        return await ask(self.port, path, token, **how)


@asynccontextmanager
async def served(rules=CALM, meter=Meter, hooks=None) -> AsyncIterator[Served]:
    """A full node of a mesh in memory, with its HTTP interface."""
    async with a_mesh("memory", rules) as mesh:
        node = await mesh.node()
        tempo = TempoMetrics()
        access = HttpAccess(node, OperatorToken(OPERATOR), meter)
        admin, deliveries = TempoAdmin(await as_mesh(mesh, mesh.owner)), Deliveries(node.session)
        program = await as_mesh(mesh, mesh.owner)
        access.own_key = program.connection.did
        shown = NodeView(node, tempo), access, admin, deliveries, NodeApi(program, node, hooks)
        async with node_server(*shown, HttpAddress("127.0.0.1", 0)) as port:
            yield Served(port, mesh, node, tempo, access, program)


async def as_mesh(mesh: MeshUnderTest, key: SeedKeyring) -> Mesh:
    """The mesh as a program with this key sees it."""
    opened = Mesh.open(engine="memory")
    opened.connection._opened = await mesh.connection(key)
    return opened
