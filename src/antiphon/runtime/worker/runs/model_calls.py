"""The model calls of an audited run: each becomes a snapshot that is stored under the fence.

A call is stored when it has ended, while the handler goes on. The end of the run waits for what is
not stored yet, and then has the snapshots of all runs of the job for its completion.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import MAX_ARTIFACT_NAME, MAX_ARTIFACTS, ArtifactBody
from antiphon.core.families.jobs.run_artifacts import count_of
from antiphon.core.inference import snapshot
from antiphon.core.inference.call_reader import snapshot_of
from antiphon.core.proof.output import Output, Stored
from antiphon.errors import AntiphonError, Rejected
from antiphon.read_back import read_back
from antiphon.runtime.executors.handler_call import check_size
from antiphon.runtime.inference.recorder import Recorder
from antiphon.runtime.worker.runs.artifact_writer import ArtifactWriter
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.families.jobs.ops import CompleteBody
    from antiphon.core.inference.exchange import Exchange
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.worker.tenure import Tenure

log = LazyLogger(__name__)


class Account(Struct, frozen=True):
    """The model calls of all runs of a job, and the snapshot of each."""

    calls: int
    snapshots: tuple[Output, ...]

    def on(self, end: CompleteBody) -> CompleteBody:
        """A completion that says so."""
        return replace(end, calls=self.calls, outputs=(*end.outputs, *self.snapshots))


class ModelCalls:
    """The calls of one tenure."""

    def __init__(self, tenure: Tenure, artifacts: Callable[[], Artifacts | None]) -> None:
        """None yet; `artifacts` is where snapshots are stored, as the executor will have said."""
        self._tenure = tenure
        self._artifacts = artifacts
        self._before = count_of(tenure.job, "snapshot")
        self._waiting: deque[Exchange] = deque()
        self._turn = asyncio.Lock()
        self._writer: ArtifactWriter | None = None
        session = tenure.session
        self.recorder = Recorder(
            self._told,
            stamp=lambda: max(hlc.pack(session.author.now()), tenure.fence),
            now_s=session.wall.boot_s,
            most=MAX_ARTIFACTS["snapshot"] - self._before,
        )

    # --- from any thread --------------------------------------------------------------------------

    def _told(self, exchange: Exchange) -> None:
        self._waiting.append(exchange)
        with suppress(RuntimeError):  # a thread that outlived the worker's loop
            self._tenure.loop.call_soon_threadsafe(self._begin)

    # --- in the event loop ------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._turn.locked() or not self._waiting:
            return
        storing = self._store_meanwhile()
        try:
            self._tenure.leases.spawn(storing)
        except RuntimeError:  # the worker has failed
            storing.close()

    async def _store_meanwhile(self) -> None:
        """What cannot be stored now is tried again at the end of the run, which tells of it."""
        try:
            await self._store_all()
        except (AntiphonError, OSError) as problem:
            log.debug("snapshot_not_stored_yet", problem=str(problem))

    async def _store_all(self) -> None:
        async with self._turn:
            while self._waiting:
                await self._store(self._waiting[0])
                self._waiting.popleft()

    async def _store(self, exchange: Exchange) -> None:
        tenure, job = self._tenure, self._tenure.job
        number = self._written_by().number
        source = snapshot.Source(
            mesh=tenure.session.mesh,
            kind=job.kind,
            job=job.id,
            fence=tenure.fence,
            worker=tenure.session.author.did,
            call=number,
        )
        made = snapshot_of(exchange, source, tenure.session.control.rules.redact_inference)
        raw = snapshot.encode(made)
        read_back(f"the snapshot of model call {number}", made, snapshot.decode, raw)
        body = ArtifactBody(
            kind=job.kind,
            job=job.id,
            fence=tenure.fence,
            as_="snapshot",
            name=(made.model.id or made.backend.api)[:MAX_ARTIFACT_NAME],
            n=number,
            **await self._content(raw, number),
        )
        await self._written_by().write(body)

    async def _content(self, raw: bytes, number: int) -> dict[str, Any]:
        store = self._artifacts()
        if store is None:  # then it has to fit into its record
            return {"value": raw.decode()}
        check_size(len(raw), "the snapshot of a model call has", store.value_bytes)
        kept = await self._written_by().patiently(
            lambda: store.keep_bytes(raw, _name(number), media_type=snapshot.SNAPSHOT_TYPE)
        )
        return {"digest": kept.hash, "size": kept.size}

    def _written_by(self) -> ArtifactWriter:
        if self._writer is None:
            self._writer = ArtifactWriter(self._tenure, self._artifacts(), "snapshot")
        return self._writer

    async def account(self) -> Account:
        """What there is to say of model calls; the handler has ended.

        Raises if one of them cannot be stored.
        """
        self.recorder.close()
        await self._store_all()
        calls = self._before + self.recorder.count
        stored = await self._written_by().stored()
        if len(stored) != calls:
            raise Rejected(
                f"{calls} model calls were captured, and {len(stored)} snapshots are stored",
                reason="audit",
            )
        return Account(calls, tuple(map(_output, stored)))

    def close(self) -> None:
        """The end of the tenure is written, or another worker has the job."""
        self.recorder.close()
        if self._writer is not None:
            self._writer.is_closed = True


def _name(number: int) -> str:
    return f"snapshot-{number}.json"


def _output(body: ArtifactBody) -> Output:
    """A stored snapshot, as the completion names it."""
    name = _name(body.n)
    if body.digest is None or body.size is None:
        return Output(name=name, type=snapshot.SNAPSHOT_TYPE, text=body.value)
    stored = Stored(hash=body.digest, size=body.size)
    return Output(name=name, type=snapshot.SNAPSHOT_TYPE, stored=stored)
