"""Servers with one stream, and clients of it: in its own account or another, at its leader or not.

The stream is as the log's, and it admits fast ingest as well.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import nats
from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import StreamConfig

from antiphon.engines.nats import LocalServer
from bench.meshes.local_cluster import running_servers

STREAM: Final = "BENCH"
CREATED_WITHIN_S: Final = 60.0
MEMBER: Final = ("member", "a-password-of-a-benchmark")
_OWN: Final = "  MESHES {\n    jetstream: enabled\n"
_BORDER: Final = f"""\
  MEMBERS {{
    users: [{{user: {MEMBER[0]}, password: "{MEMBER[1]}"}}]
    imports: [{{service: {{account: MESHES, subject: "ops.>"}}}}]
  }}
{_OWN}    exports: [{{service: "ops.>"}}]
"""
Account = Literal["own", "member"]
Place = Literal["leader", "other"]


class Case(Struct, frozen=True):
    """From where it is written."""

    replicas: int
    account: Account
    place: Place = "leader"

    @property
    def name(self) -> str:
        border = " across the account border" if self.account == "member" else ""
        follower = " at another server than the leader" if self.place == "other" else ""
        return f"R{self.replicas}{border}{follower}"


CASES: Final = (
    Case(1, "own"),
    Case(1, "member"),
    Case(3, "own"),
    Case(3, "own", "other"),
    Case(3, "member"),
)


def with_border(config: str) -> str:
    """A second account, which may publish to the first one's stream."""
    assert _OWN in config
    return config.replace(_OWN, _BORDER)


async def _connected(server: LocalServer, account: Account) -> Client:
    user, password = (server.user, server.password) if account == "own" else MEMBER
    return await nats.connect(server.url, user=user, password=password)


@asynccontextmanager
async def stream_on(replicas: int) -> AsyncIterator[list[LocalServer]]:
    """Running servers with an empty stream; the leader's first."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        async with running_servers(Path(place), replicas, change=with_border) as servers:
            client = await _connected(servers[0], "own")
            try:
                leader = await _create(client, replicas)
            finally:
                await client.close()
            yield sorted(servers, key=lambda one: _name_of(one) != leader) if leader else servers


def _name_of(server: LocalServer) -> str:
    lines = (server.directory / "server.conf").read_text(encoding="utf-8").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("server_name:"))


async def _create(client: Client, replicas: int) -> str:
    """Create the stream; the name of its leader, empty without a cluster."""
    config = StreamConfig(
        name=STREAM,
        subjects=["ops.>"],
        num_replicas=replicas,
        allow_atomic=True,
        allow_batched=True,
        allow_direct=True,
    )
    deadline_s = time.monotonic() + CREATED_WITHIN_S
    while True:
        try:
            created = await client.jetstream().add_stream(config)
        except Error:  # a new cluster elects its leader first
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.5)
            continue
        if replicas == 1:
            return ""
        if created.cluster is not None and created.cluster.leader:
            return created.cluster.leader


@asynccontextmanager
async def client_of(servers: list[LocalServer], case: Case) -> AsyncIterator[Client]:
    """A client in the case's account, at the case's server."""
    client = await _connected(servers[0 if case.place == "leader" else -1], case.account)
    try:
        yield client
    finally:
        await client.close()
