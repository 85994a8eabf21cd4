"""A running full node as probes and metrics see it: whether it is ready, and its numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from antiphon.runtime.identity.host_clock import installed_version
from antiphon.runtime.tempo.tempo_metrics import TempoMetrics

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import Applied, FullNode

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
    jobs: dict[str, int]
    """By state, as its replica has them."""
    records: dict[str, int]
    """By verdict: records that it verified since its view was made."""
    tempo: TempoMetrics


class NodeView:
    """What an interface may know about a node that runs in this process."""

    def __init__(self, node: FullNode, tempo: TempoMetrics) -> None:
        """Begins to count the records that the node verifies."""
        self._node = node
        self._tempo = tempo
        self._records: Counter[str] = Counter()
        node.watchers.append(self._count)

    def _count(self, applied: Applied) -> None:
        self._records[applied.verdict] += 1

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
        return NodeNumbers(
            status=self.status(),
            jobs=self._node.replica.counts(),
            records=dict(self._records),
            tempo=self._tempo,
        )


__all__ = ["NodeNumbers", "NodeStatus", "NodeView", "TempoMetrics"]
