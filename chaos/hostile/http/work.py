"""Another member's job over HTTP, from its submission to its end: what a program does."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from antiphon.errors import Unavailable
from antiphon.sdk.http.bar_tokens import BarTokens
from antiphon.sdk.mesh import Mesh
from chaos.hostile.reader.tasks import KIND
from chaos.network.http_wire import Wire, bearer

PROJECT: Final = KIND.partition(".")[0]
BUSY: Final = frozenset({429, 503})


class HttpJobs:
    """Jobs of one member, over one connection as long as that lasts."""

    def __init__(self, port: int, victim: Mesh) -> None:
        self._wire = Wire(port)
        self._port = port
        self._submits = BarTokens(victim, project=PROJECT, role="schedule")
        self._reads = BarTokens(victim, project=PROJECT, role="claim")
        self.put_off = 0
        """How often it was told to come again."""

    def close(self) -> None:
        """Hang up."""
        self._wire.close()

    async def __call__(self, _: Mesh, number: int) -> None:
        """Submit a job, and follow it until it has ended."""
        body = json.dumps({"kind": KIND, "args": [number]}).encode()
        header = bearer(self._submits.token())
        try:
            answer = await self._wire.ask("POST", "/v1/jobs", body, authorization=header)
        except OSError as problem:
            raise Unavailable(f"the node does not answer: {problem!r}") from problem
        if answer.status in BUSY:
            self.put_off += 1
            await asyncio.sleep(float(answer.headers.get("retry-after", "0")))
            raise Unavailable(f"put off: {answer.body!r}")
        if answer.status not in (200, 201):
            raise SystemExit(f"another member's job was refused: {answer}")
        await self._followed(answer.fields["id"])

    async def _followed(self, job: str) -> None:
        stream, text = Wire(self._port), b""
        header = bearer(self._reads.token())
        try:
            head = await stream.begin(
                f"/v1/jobs/{job}/events", authorization=header, headers=("Connection: close",)
            )
            if head.status != 200:
                self.put_off += 1
                raise Unavailable(f"a stream was refused with {head.status}")
            while piece := await stream.piece():
                text += piece
        except OSError as problem:
            raise Unavailable(f"a stream broke off: {problem!r}") from problem
        finally:
            stream.close()
        if b'"state":"succeeded"' not in text:
            raise Unavailable("a stream ended before its job")
