"""What needs no right at all: requests of strangers, and connections that are no requests.

They come from the address of everybody else on this machine, and of the probes.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Final

from antiphon.core.bar_tokens.bar_token import BarToken, issue
from antiphon.runtime.identity.key_files import SeedKeyring
from chaos.hostile.http.member import Steps
from chaos.network.http_wire import Wire, bearer, request

HELD_S: Final = 1.0
"""How long a connection is kept that says nothing, or half of something."""
SMALL_BUFFER: Final = 4_096
PIPELINED: Final = 300
BODY: Final = 60_000


class Strangers(Steps):
    """What somebody does without any right, or with nothing but a connection."""

    @cached_property
    def _requests(self) -> Iterator[bytes]:
        nobody, now_ms = SeedKeyring(os.urandom(32)), time.time_ns() // 1_000_000
        token = BarToken(project="*", role="all", downbeat_ms=now_ms)
        unknown = issue(token, (nobody.did, nobody.sign), mesh=self.member.mesh)
        junk = base64.urlsafe_b64encode(os.urandom(3_000)).decode()
        asked = [
            request("GET", "/v1/openapi.json"),
            request("GET", "/healthz"),
            request("GET", "/readyz"),
            request("GET", f"/v1/{junk[:40]}"),
            request("DELETE", "/v1/jobs"),
            request("GET", "/v1/jobs", authorization=bearer(junk)),
            request("GET", "/v1/jobs?limit=500", authorization=bearer(unknown)),
            request("GET", "/v1/offers?kind=x", authorization=f"Antiphon {junk}"),
            request("GET", f"/v1/jobs/{'0' * 64}?link={unknown}"),
            request("POST", "/v1/log", b"x" * BODY, f"Antiphon {junk}"),
            request("POST", "/v1/a2a/deliver", b'{"to":"%b"}' % (b"x" * BODY)),
            request("POST", "/v1/hooks/nobody", b"{" + b"x" * BODY),
            request("GET", "/v1/jobs", headers=(f"X-Large: {'x' * 15_000}",)),
        ]
        return itertools.cycle(asked)

    async def next_request(self, wire: Wire) -> None:
        """One request after the other, each answered."""
        await self._sent(wire, next(self._requests))

    async def document(self, wire: Wire) -> None:
        """What everybody may read, as fast as it comes."""
        await self._sent(wire, request("GET", "/v1/openapi.json"))

    async def probe(self, wire: Wire) -> None:
        """Probe the node, as fast as it answers."""
        await self._sent(wire, request("GET", "/readyz"))

    async def _sent(self, wire: Wire, data: bytes) -> None:
        await wire.send(data)
        await wire.answer()

    # --- connections --------------------------------------------------------------------------

    async def come_again(self, wire: Wire) -> None:
        """Connect, ask, and leave without the answer."""
        await wire.open()
        await wire.send(self._askable())
        await asyncio.sleep(0)
        wire.close()

    async def say_nothing(self, wire: Wire) -> None:
        """Connect, and stay."""
        await self._held(wire, b"")

    async def say_half(self, wire: Wire) -> None:
        """Half a head, or half a body."""
        head = request("GET", "/v1/jobs")[:-2]
        body = request("POST", "/v1/jobs", b"x" * BODY, self._authorization())[: -BODY // 2]
        await self._held(wire, head if self.member.number() % 2 else body)

    async def read_nothing(self, wire: Wire) -> None:
        """Ask hundreds of times, and never read an answer."""
        await wire.open(buffer=SMALL_BUFFER)
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_S):
                await wire.send(self._askable() * PIPELINED)
                await asyncio.sleep(HELD_S)
        wire.close()

    async def _held(self, wire: Wire, data: bytes) -> None:
        await wire.open()
        if data:
            await wire.send(data)
        await asyncio.sleep(HELD_S)
        wire.close()

    def _authorization(self) -> str:
        roles = self.member.roles
        return self.member.token(roles[0]) if roles else ""

    def _askable(self) -> bytes:
        """A request that the member may make, if it has any token; else one that anybody may."""
        header = self._authorization() if self.member.number() % 2 else ""
        return request("GET", "/v1/kinds?limit=500" if header else "/v1/openapi.json", b"", header)
