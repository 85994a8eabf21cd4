"""Bundles: a job's records, sealed, in one file that anyone can check offline (spec §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import bundle as core_bundle
from antiphon.core.authority.grant_tree import trace
from antiphon.core.bundle import MAX_BUNDLE_BYTES, Bundle, Report
from antiphon.core.families.jobs.state import JobLane, job_key
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.opened_record import open_anywhere
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Outdated, Rejected, Unavailable
from antiphon.runtime.archive.bundle_assembly import assembled, written
from antiphon.runtime.archive.record_source import ReplicaSource
from antiphon.runtime.caller.erasure import forgotten
from antiphon.runtime.node.full_node import SEAL_LANE
from antiphon.runtime.replica.replica_erasures import ReplicaErasures

if TYPE_CHECKING:
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.mesh import Mesh

WAIT_S: Final = 40.0
"""A bar, plus the time a seal may wait for a pause in the writes."""
ROUND_S: Final = 1.0


class SealStatus(Struct, frozen=True, kw_only=True):
    """The newest seals as this machine judged them."""

    seq: int = 0
    """The newest valid one; 0 if there is none."""
    upto: int = 0
    commit_ms: int = 0
    refused_seq: int = 0
    """The newest that did not match the log; 0 if all did."""
    names_snapshot: bool = False
    """Whether there is an archive with a snapshot, behind which what has ended leaves the log."""


async def seal_status(mesh: Mesh) -> SealStatus:
    """How far the log is sealed, and whether a seal did not match."""
    async with mesh.replica() as replica:
        sealed = replica.newest_of(SEAL_LANE, verdict=Verdict.OK)
        seal = await ReplicaSource(replica).newest_seal()
        refused = replica.newest_of(SEAL_LANE, verdict=Verdict.SEAL)
    refused_seq = refused.record.seq if refused is not None else 0
    if seal is None or sealed is None:
        return SealStatus(refused_seq=refused_seq)
    return SealStatus(
        seq=sealed.record.seq,
        upto=seal.body.upto,
        commit_ms=sealed.record.commit_ms,
        refused_seq=refused_seq,
        names_snapshot=seal.body.state is not None,
    )


async def export(
    mesh: Mesh,
    kind: str,
    job_id: str,
    *,
    wait_s: float = WAIT_S,
    waiting: Callable[[float], None] = lambda _: None,
) -> bytes:
    """A job's bundle; waits for a seal that covers it and reports that through `waiting`."""
    return await export_lane(mesh, job_key(kind, job_id), wait_s=wait_s, waiting=waiting)


async def export_lane(
    mesh: Mesh,
    key: LaneKey,
    *,
    wait_s: float = WAIT_S,
    waiting: Callable[[float], None] = lambda _: None,
) -> bytes:
    """The bundle of any lane."""
    clock = asyncio.get_running_loop()
    until = clock.time() + wait_s
    while True:
        async with mesh.replica() as replica:
            data = await bundle_bytes(replica, key)
        if data is not None:
            return data
        left_s = until - clock.time()
        if left_s <= 0:
            raise Unavailable(
                f"no seal covers {key.kind} {key.name[:8]} yet: the coordinator's full node makes"
                " them",
                hint="antiphon doctor shows whether it runs; antiphon coordinator NODE names one",
            )
        waiting(left_s)
        await asyncio.sleep(min(ROUND_S, left_s))


async def bundle_bytes(replica: Replica, key: LaneKey) -> bytes | None:
    """The bundle of a lane as it is on a replica now; None while no seal covers it."""
    made = await sealed_bundle(replica, key)
    return None if made is None else made[0]


async def sealed_bundle(replica: Replica, key: LaneKey) -> tuple[bytes, int] | None:
    """The same, and the last record that its seal covers.

    Newer seals come at any time, so who asks for the newest one before or afterwards may be told
    of another than the bundle has.
    """
    _require_finished(replica, key)
    _require_kept(replica, key)
    source = ReplicaSource(replica)
    bundle = await assembled(source, key)
    if bundle is None:
        return None
    seal = open_anywhere(source.protocol, source.mesh, bundle.seal.payload()).op
    if not isinstance(seal, MeshSeal):
        raise TypeError(f"a bundle was made with a seal that is none: {seal}")
    return await written(bundle), seal.body.upto


def open_bundle(
    data: bytes,
    *,
    owner: str | None = None,
    protocol: Protocol = PROTOCOL,
    turn: Callable[[], None] = lambda: None,
) -> Report:
    """Check a bundle offline: `Rejected` or `Malformed` with the reason if it is not valid.

    `turn` is called after each record: a long check lets others work, or is given up.
    """
    try:
        return core_bundle.check(protocol, core_bundle.read(data), owner=owner, turn=turn)
    except Outdated as problem:
        raise Rejected(problem.message, reason="bundle", hint=problem.hint) from problem


def names_in(report: Report) -> dict[str, str]:
    """What the grants in a bundle call nodes."""
    return trace(report.control, 0).names


async def sealed_upto(replica: Replica) -> int:
    """The last record that the newest seal covers; 0 if there is none."""
    found = await ReplicaSource(replica).newest_seal()
    return found.body.upto if found is not None else 0


def _require_finished(replica: Replica, key: LaneKey) -> None:
    state = replica.lane(key).state
    why = (
        "it never began" if state is None else replica.protocol.family(key.family).unfinished(state)
    )
    if why:
        raise Rejected(
            f"{key.kind} {key.name[:8]}: {why}, so there is nothing to prove yet",
            reason="not_ended",
            hint=f"antiphon show {key.name[:8]}",
        )


def _require_kept(replica: Replica, key: LaneKey) -> None:
    """`Rejected` if it is a job that was forgotten."""
    lane = replica.lane(key)
    if not isinstance(lane, JobLane) or lane.job is None:
        return
    order = replica.ask(ReplicaErasures).about(lane.job)
    if order is not None:
        raise forgotten(order, key.name)


__all__ = [
    "MAX_BUNDLE_BYTES",
    "Bundle",
    "Report",
    "SealStatus",
    "bundle_bytes",
    "export",
    "export_lane",
    "names_in",
    "open_bundle",
    "seal_status",
    "sealed_bundle",
    "sealed_upto",
]
