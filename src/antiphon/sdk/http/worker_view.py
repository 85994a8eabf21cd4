"""A running worker as probes and metrics see it: whether it takes jobs, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.runtime.identity.host_clock import installed_version
from antiphon.sdk.http.node_view import Readiness

if TYPE_CHECKING:
    from antiphon.runtime.worker.runs.run_figures import RunFigures
    from antiphon.runtime.worker.worker import Worker


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """How a worker is."""

    readiness: Readiness
    reasons: tuple[str, ...]
    """Why it takes no jobs."""
    version: str
    mesh: str
    node: str
    is_connected: bool
    """Whether it is connected to the engine."""
    kinds: tuple[str, ...]
    slots: int
    busy: int


class WorkerView:
    """What an interface may know about a worker that runs in this process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def figures(self) -> RunFigures:
        """What it counts about its runs."""
        return self._worker.figures

    def status(self) -> WorkerStatus:
        """How it is now. A worker that is only busy is ready."""
        worker, session = self._worker, self._worker.session
        missing = []
        if not session.engine.connected:
            missing.append("not connected to the engine")
        if not worker.ready.is_set():
            missing.append("its queues are not open yet")
        if worker.is_draining:
            missing.append("it stops and takes no more jobs")
        missing += [f"it pauses: {reason}" for reason in sorted(worker.paused)]
        if session.author.is_ahead:
            missing.append("its clock is ahead of the engine's")
        return WorkerStatus(
            readiness="not ready" if missing else "ok",
            reasons=tuple(missing),
            version=installed_version(),
            mesh=session.mesh,
            node=worker.did,
            is_connected=session.engine.connected,
            kinds=tuple(worker.kinds),
            slots=worker.settings.slots,
            busy=worker.busy,
        )


__all__ = ["WorkerStatus", "WorkerView"]
