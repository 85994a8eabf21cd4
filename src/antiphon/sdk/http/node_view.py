"""A running full node as probes and metrics see it: whether it is ready, and its numbers."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from antiphon.runtime.identity.host_clock import installed_version
from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
from antiphon.sdk.http.job_figures import JobFigures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from antiphon.runtime.gate.admission import Gate
    from antiphon.runtime.node.full_node import FullNode

Readiness = Literal["ok", "degraded", "not ready"]


class NodeStatus(Struct, frozen=True, kw_only=True):
    """How a node is."""

    readiness: Readiness
    reasons: tuple[str, ...]
    """Why it is not `ok`."""
    version: str
    mesh: str
    node: str
    applied: int
    """The sequence of the newest record that it has verified."""
    is_connected: bool
    """Whether it is connected to the engine."""


class NodeNumbers(Struct, frozen=True, kw_only=True):
    """What a node counts."""

    status: NodeStatus
    figures: JobFigures
    """Counted since its view was made."""
    oldest_pending_s: float
    """How long the oldest job that could be claimed has waited; 0: there is none."""
    replica_bytes: int
    disk: tuple[int, int] | None
    """Bytes of the disk that the replica is on, and how many are free; None: in memory."""
    sealed: int
    """The newest record that a seal covers."""
    seal_age_s: float | None
    """How old the newest seal is; None: there is none."""
    gate_requests: Mapping[tuple[str, str], int]
    """By what was asked for and its outcome, where the gate runs beside the node."""
    tempo: TempoMetrics


class NodeView:
    """What an interface may know about a node that runs in this process."""

    def __init__(self, node: FullNode, tempo: TempoMetrics, folder: Path | None = None) -> None:
        """Begins to count the records that the node verifies. Its replica is in `folder`."""
        self._node = node
        self._tempo = tempo
        self._folder = folder
        self._figures = JobFigures(node)
        self.gate: Gate | None = None
        """The gate that runs beside the node, if one does."""

    def status(self) -> NodeStatus:
        """How it is now.

        A node whose tempo is degraded still does its work, so it counts as ready; one that is not
        connected, or has not caught up, answers from an old state.
        """
        session = self._node.session
        missing = []
        if not session.engine.connected:
            missing.append("not connected to the engine")
        if not self._node.ready.is_set():
            missing.append("the replica has not caught up with the log")
        worse = [f"tempo: {self._tempo.degraded}"] if self._tempo.degraded else []
        return NodeStatus(
            readiness="not ready" if missing else "degraded" if worse else "ok",
            reasons=(*missing, *worse),
            version=installed_version(),
            mesh=session.mesh,
            node=self._node.did,
            applied=self._node.applied,
            is_connected=session.engine.connected,
        )

    def numbers(self) -> NodeNumbers:
        """What it has counted so far."""
        sizes, now_ms = self._node.replica.sizes, self._node.session.wall.now_ms()
        oldest, seals = sizes.oldest_pending(), self._node.seals
        disk = shutil.disk_usage(self._folder) if self._folder is not None else None
        return NodeNumbers(
            status=self.status(),
            figures=self._figures,
            oldest_pending_s=max(now_ms - oldest.open_since_ms, 0) / 1000 if oldest else 0.0,
            replica_bytes=sizes.file_bytes(),
            disk=(disk.total, disk.free) if disk is not None else None,
            sealed=seals.upto,
            seal_age_s=(now_ms - seals.state.commit_ms) / 1000 if seals.state else None,
            gate_requests=self.gate.requests if self.gate is not None else {},
            tempo=self._tempo,
        )


__all__ = ["JobFigures", "NodeNumbers", "NodeStatus", "NodeView", "TempoMetrics"]
