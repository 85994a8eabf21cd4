"""What a job wrote and what it prints, for programs that ask a node over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.core.authority.scope import NOTHING
from antiphon.errors import Rejected
from antiphon.runtime.gate.blob_rights import BlobRights
from antiphon.sdk.http import models
from antiphon.sdk.jobs.job_lookup import handle_on
from antiphon.sdk.proofs.proof import proof_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from antiphon.core.bar_tokens.bar_token import Bearer
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.proof.output import Output
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.handle import JobHandle, OutputMessage

QUEUED: Final = 256
"""Pieces that wait for a slow reader; then the job's output goes on without it."""
LOOK_S: Final = 1.0
"""How soon the end of a job is noticed that prints nothing."""


class JobContent:
    """One job, found and permitted already."""

    def __init__(self, connection: Connection, job: Job, bearer: Bearer) -> None:
        self._connection = connection
        self._bearer = bearer
        self._job = job
        self._handle: JobHandle[Any] = handle_on(connection, job.kind, job.id)

    async def proof(self) -> models.Envelope:
        """The proof in its completion; `Rejected` if there is none."""
        found = await proof_of(self._handle)
        return msgspec.convert(msgspec.to_builtins(found), models.Envelope)

    async def outputs(self) -> models.OutputList:
        """What it wrote; `Rejected` while it has not ended."""
        found = await self._handle.outputs()
        names = models.OutputView.__struct_fields__
        return models.OutputList(
            items=[
                models.OutputView(**{name: getattr(one, name) for name in names}) for one in found
            ]
        )

    async def output(self, name: str) -> Output:
        """One of them; `Rejected` if it wrote nothing of this name."""
        for one in await self._handle.outputs():
            if one.name == name:
                await self._require_shown(one)
                return one
        raise Rejected(f"the job has no output {name[:80]!r}", reason="no_output")

    async def _require_shown(self, output: Output) -> None:
        """`Rejected` if only its own records name content that is stored outside the log.

        This node may read every blob: otherwise a party got any by completing a job that names it.
        """
        if output.text is not None or self._bearer.has_every_kind:
            return
        keys = (self._bearer.holder, self._bearer.member)
        rights = BlobRights(self._connection.session, lambda _: NOTHING, lambda _: keys, tuple)
        of = (self._job.kind, self._job.id)
        if await rights.vouches(self._bearer.holder, *of, output.hash) != "others":
            raise Rejected(
                "only records of this token's own party name this content",
                reason="own_content",
                hint="read it where it was stored",
            )

    async def content(self, output: Output, first: int, last: int) -> AsyncIterator[bytes]:
        """Its bytes from one to another, both included.

        The digest is verified at the end: who asks for a part compares the parts.
        """
        job, at = (self._job.kind, self._job.id), 0
        async for piece in self._connection.artifacts.stream(output, job=job):
            shown = piece[max(first - at, 0) : max(last + 1 - at, 0)]
            at += len(piece)
            if shown:
                yield shown
            if at > last and last + 1 < output.size:
                return

    async def printed(
        self, now: Callable[[], Awaitable[Job]], wait_s: float
    ) -> AsyncIterator[models.JobView | models.OutputPiece | None]:
        """The job, what it prints from now on, and the job when it has ended; None for silence."""
        pieces: asyncio.Queue[OutputMessage] = asyncio.Queue(QUEUED)
        async with self._handle.listen() as words:

            async def read() -> None:
                async for one in words:
                    with suppress(asyncio.QueueFull):
                        pieces.put_nowait(one)

            reading = asyncio.ensure_future(read())
            try:
                yield models.job_view(await now())
                silent_s = 0.0
                while True:
                    piece = await _next(pieces, min(LOOK_S, wait_s))
                    if piece is not None:
                        silent_s = 0.0
                        yield _piece(piece)
                        continue
                    silent_s += min(LOOK_S, wait_s)
                    job = await now()
                    if job.is_terminal:
                        yield models.job_view(job)
                        return
                    if silent_s >= wait_s:
                        silent_s = 0.0
                        yield None
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


async def _next(pieces: asyncio.Queue[OutputMessage], wait_s: float) -> OutputMessage | None:
    try:
        async with asyncio.timeout(wait_s):
            return await pieces.get()
    except TimeoutError:
        return None


def _piece(one: OutputMessage) -> models.OutputPiece:
    return models.OutputPiece(
        id=f"{one.fence}-{one.number}",
        stream=one.stream,
        at=one.at,
        text=one.data.decode("utf-8", "replace"),
        done=one.done,
        note=one.note,
    )
