"""Bundles: a job's records, sealed, in one file that anyone can check offline (spec §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import bundle as core_bundle
from antiphon.core.authority.grant_tree import trace
from antiphon.core.bundle import MAX_BUNDLE_BYTES, Bundle, BundledRecord, Content, Report
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed, Outdated, Rejected, Unavailable
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.node.full_node import SEAL_LANE

if TYPE_CHECKING:
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.runtime.replica.replica import Replica, StoredRecord
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


async def seal_status(mesh: Mesh) -> SealStatus:
    """How far the log is sealed, and whether a seal did not match."""
    async with mesh.replica() as replica:
        found = _newest_seal(replica)
        refused = replica.newest_of(SEAL_LANE, verdict=Verdict.SEAL)
    refused_seq = refused.record.seq if refused is not None else 0
    if found is None:
        return SealStatus(refused_seq=refused_seq)
    stored, body = found
    return SealStatus(
        seq=stored.record.seq,
        upto=body.upto,
        commit_ms=stored.record.commit_ms,
        refused_seq=refused_seq,
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
            _require_finished(replica, key)
            bundle = assembled(replica, key)
        if bundle is not None:
            return core_bundle.write(bundle)
        left_s = until - clock.time()
        if left_s <= 0:
            raise Unavailable(
                f"no seal covers {key.kind} {key.name[:8]} yet: the coordinator's full node makes"
                " them",
                hint="antiphon doctor shows whether it runs; antiphon coordinator NODE names one",
            )
        waiting(left_s)
        await asyncio.sleep(min(ROUND_S, left_s))


def open_bundle(data: bytes, *, owner: str | None = None, protocol: Protocol = PROTOCOL) -> Report:
    """Check a bundle offline: `Rejected` or `Malformed` with the reason if it is not valid."""
    try:
        return core_bundle.check(protocol, core_bundle.read(data), owner=owner)
    except Outdated as problem:
        raise Rejected(problem.message, reason="bundle", hint=problem.hint) from problem


def names_in(report: Report) -> dict[str, str]:
    """What the grants in a bundle call nodes."""
    return trace(report.control, 0).names


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


def _newest_seal(replica: Replica) -> tuple[StoredRecord, SealBody] | None:
    stored = replica.newest_of(SEAL_LANE, verdict=Verdict.OK)
    if stored is None:
        return None
    op = _opened(replica, stored).op
    return (stored, op.body) if isinstance(op, MeshSeal) else None


def _opened(replica: Replica, stored: StoredRecord) -> OpenedRecord:
    return open_stored(replica.protocol, replica.mesh, stored.record)


def assembled(replica: Replica, key: LaneKey) -> Bundle | None:
    """The bundle of a lane under the newest seal; None if that does not cover its last change."""
    found = _newest_seal(replica)
    lane = replica.lane_records(key)
    newest = max((one.record.seq for one in lane if one.verdict is Verdict.OK), default=0)
    if found is None or not newest or found[1].upto < newest:
        return None
    seal, body = found
    lane = [stored for stored in lane if stored.record.seq <= body.upto]
    lane += _named_lanes(replica, key, lane)
    opened_records = [_opened(replica, stored) for stored in [*lane, seal]]
    named = (replica.record(seq) for one in opened_records if one.op for seq, _ in one.op.deps)
    opened_records += [_opened(replica, stored) for stored in named if stored is not None]
    wanted = core_bundle.wanted_control(opened_records, replica.mesh, key.kind)
    everything = _control(replica, body.upto)
    few = [stored for stored in everything if stored.record.subject in wanted]
    for control in (few, everything):
        bundle = _bundle(replica, key, [*control, *lane], seal, body)
        try:
            core_bundle.check(replica.protocol, bundle)
        except (Rejected, Malformed):
            if control is everything:
                raise
            continue  # a verdict depends on more than usual: include all of control
        return bundle
    return None


def _named_lanes(replica: Replica, key: LaneKey, lane: list[StoredRecord]) -> list[StoredRecord]:
    """The lanes that ops on this one name: for a job with replicas, those that agreed."""
    judged = ((_opened(replica, stored), stored.verdict) for stored in lane)
    newest = max(stored.record.seq for stored in lane)
    return [
        stored
        for named in core_bundle.lanes_named(judged, key)
        for stored in replica.lane_records(named)
        if stored.record.seq < newest
    ]


def _control(replica: Replica, upto: int) -> list[StoredRecord]:
    found = [replica.record(one.seq) for one in replica.control_records() if one.seq <= upto]
    return [stored for stored in found if stored is not None]


def _bundle(
    replica: Replica,
    key: LaneKey,
    records: list[StoredRecord],
    seal: StoredRecord,
    body: SealBody,
) -> Bundle:
    shown = {stored.record.seq: stored for stored in records}
    for stored in records:
        op = _opened(replica, stored).op
        for seq, _ in op.deps if op is not None else ():
            named = replica.record(seq) if seq < stored.record.seq else None
            if named is not None:
                shown.setdefault(seq, named)
    return Bundle(
        format=core_bundle.FORMAT,
        mesh=replica.mesh,
        family=key.family,
        kind=key.kind,
        name=key.name,
        records=tuple(_bundled(replica, shown[seq], body.size) for seq in sorted(shown)),
        seal=Content.of(seal.record.payload),
    )


def _bundled(replica: Replica, stored: StoredRecord, size: int) -> BundledRecord:
    record = stored.record
    return BundledRecord(
        seq=record.seq,
        commit_ms=record.commit_ms,
        subject=record.subject,
        verdict=stored.verdict,
        record=Content.of(record.payload),
        leaf=replica.tree.size_at(record.seq) - 1,
        path=tuple(replica.tree.inclusion(record.seq, size)),
    )


__all__ = [
    "MAX_BUNDLE_BYTES",
    "Bundle",
    "Report",
    "SealStatus",
    "export",
    "names_in",
    "open_bundle",
    "seal_status",
]
