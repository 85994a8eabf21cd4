"""Warns in this node's log about members that write too much to the mesh's (docs/decisions/0023).

Counts records as a full node applies them, and checks the counts now and then. It logs each
finding once an hour and does nothing else: whose permissions to revoke is the owner's decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.grant_tree import trace
from antiphon.core.authority.write_volume import WINDOW_MS, Excess, Volumes, writers
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import ABOUT_BYTES
from antiphon.runtime.replica.replica_records import AUTHOR, ReplicaRecords
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.replica.replica import Replica

LOOK_EVERY_MS: Final = 10_000
"""The engine's time between two checks."""
LOOKED_AT: Final = 200_000
"""Records of a replica that are counted at most, the newest first."""
NAMED: Final = 8
"""Members that are named at most."""
SAID_KEPT: Final = 1024
_MIB: Final = 1 << 20

log = LazyLogger(__name__)


class VolumeWatch:
    """Counts for one full node."""

    def __init__(self, node: FullNode) -> None:
        self._node = node
        self.volumes = Volumes()
        self._looked_ms = 0
        self._said: dict[tuple[str, str], int] = {}

    def applied(self, applied: Applied) -> None:
        """Count a record; registered as a watcher of the node."""
        opened, size = applied.opened, len(applied.record.payload)
        author = opened.op.author if opened.op is not None else ""
        at_ms = opened.commit_ms
        accepted = applied.verdict.is_accepted
        kind = opened.place.key.kind if opened.place is not None else ""
        self.volumes.note(at_ms, kind, author, size, is_accepted=accepted)
        if at_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = at_ms
            self._look(at_ms)

    def _look(self, now_ms: int) -> None:
        control = self._node.session.history.current
        for excess in self.volumes.excesses(now_ms):
            key = (excess.what, excess.name)
            if control is None or now_ms - self._said.get(key, -WINDOW_MS) < WINDOW_MS:
                continue
            if len(self._said) >= SAID_KEPT:
                del self._said[next(iter(self._said))]
            self._said[key] = now_ms
            log.warning(
                "write_volume_high",
                **{excess.what: excess.name},
                mib_in_an_hour=excess.volume.bytes // _MIB,
                refused_mib=excess.volume.refused_bytes // _MIB,
                by=suspects(control, excess, now_ms // 1000),
                hint="antiphon doctor shows more; antiphon revoke NODE stops it at once",
            )


def suspects(control: Control, excess: Excess, now_s: int) -> str:
    """The members that can have written it."""
    if excess.what == "author":
        found = {excess.name: _called(control, excess.name, now_s)}
    else:
        found = writers(control, excess.name, now_s)
    named = [f"{alias} {short_node(did)}".strip() for did, alias in found.items()]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more or "nobody with a valid permission"


def _called(control: Control, did: str, now_s: int) -> str:
    return trace(control, now_s).names.get(did, "")


def lately(replica: Replica, now_ms: int) -> Volumes:
    """The last hour of a replica, or as much of it as its newest records cover."""
    volumes = Volumes()
    since_ns = (now_ms - WINDOW_MS) * 1_000_000
    for at_ms, subject, verdict, size, head in replica.ask(ReplicaRecords).newest(
        since_ns, limit=LOOKED_AT
    ):
        found = AUTHOR.match(head) if verdict not in ABOUT_BYTES else None
        author = found["author"].decode() if found else ""
        lane = replica.protocol.lane_of(subject)
        kind = lane.kind if lane is not None else ""
        volumes.note(at_ms, kind, author, size, is_accepted=verdict.is_accepted)
    return volumes
