"""Bundles: a job's records, sealed, in one file that anyone can check offline (spec §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import bundle as core_bundle
from antiphon.core.authority.grant_tree import trace
from antiphon.core.bundle import MAX_BUNDLE_BYTES, Bundle, BundledRecord, Content, Report
from antiphon.core.families.jobs.state import job_key
from antiphon.core.opened_record import open_anywhere
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed, Outdated, Rejected, Unavailable
from antiphon.runtime.archive.record_source import FoundRecord, FoundSeal, ReplicaSource
from antiphon.runtime.node.full_node import SEAL_LANE

if TYPE_CHECKING:
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.runtime.archive.record_source import RecordSource
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
            data = await sealed(replica, key)
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


def open_bundle(data: bytes, *, owner: str | None = None, protocol: Protocol = PROTOCOL) -> Report:
    """Check a bundle offline: `Rejected` or `Malformed` with the reason if it is not valid."""
    try:
        return core_bundle.check(protocol, core_bundle.read(data), owner=owner)
    except Outdated as problem:
        raise Rejected(problem.message, reason="bundle", hint=problem.hint) from problem


def names_in(report: Report) -> dict[str, str]:
    """What the grants in a bundle call nodes."""
    return trace(report.control, 0).names


async def sealed_upto(replica: Replica) -> int:
    """The last record that the newest seal covers; 0 if there is none."""
    found = await ReplicaSource(replica).newest_seal()
    return found.body.upto if found is not None else 0


async def sealed(replica: Replica, key: LaneKey) -> bytes | None:
    """The bundle of a lane under the newest seal, as `export` writes it; None if none covers it."""
    bundle = await assembled(ReplicaSource(replica), key)
    return None if bundle is None else core_bundle.write(bundle)


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


async def assembled(source: RecordSource, key: LaneKey) -> Bundle | None:
    """The bundle of a lane under the newest seal; None if that does not cover its last change."""
    seal, lane = await source.newest_seal(), await source.accepted(key)
    if seal is None or not lane or seal.body.upto < lane[-1].seq:
        return None
    lane += await _named_lanes(source, key, lane)
    opened = [one.opened(source.protocol, source.mesh) for one in lane]
    deps = await source.records(_named_by(opened))
    opened += [one.opened(source.protocol, source.mesh) for one in deps]
    sealed = open_anywhere(source.protocol, source.mesh, seal.payload)
    wanted = core_bundle.wanted_control([*opened, sealed], source.mesh, key.kind)
    everything = await source.control(seal.body.upto)
    few = [one for one in everything if one.subject in wanted]
    for control in (few, everything):
        bundle = await _bundle(source, key, [*control, *lane], seal)
        try:
            core_bundle.check(source.protocol, bundle)
        except (Rejected, Malformed):
            if control is everything:
                raise
            continue  # a verdict depends on more than usual: include all of control
        return bundle
    return None


async def _named_lanes(
    source: RecordSource, key: LaneKey, lane: list[FoundRecord]
) -> list[FoundRecord]:
    """The lanes that ops on this one name: for a job with replicas, those that agreed."""
    judged = ((one.opened(source.protocol, source.mesh), one.verdict) for one in lane)
    return [
        one
        for named in core_bundle.lanes_named(judged, key)
        for one in await source.accepted(named)
        if one.seq < lane[-1].seq
    ]


def _named_by(opened: Iterable[OpenedRecord]) -> list[int]:
    """The records that these ops depend on."""
    named = {seq for one in opened if one.op for seq, _ in one.op.deps if seq < one.seq}
    return sorted(named)


async def _bundle(
    source: RecordSource, key: LaneKey, records: list[FoundRecord], seal: FoundSeal
) -> Bundle:
    """These records, and what they name: deps, and rejected records right before them."""
    opened = [one.opened(source.protocol, source.mesh) for one in records]
    shown = {one.seq: one for one in records}
    deps = _named_by(opened)
    before = {one.op.prev for one in opened if one.op is not None and one.op.prev}
    others = {*deps, *before}.difference(shown)
    for one in await source.records(sorted(others)):
        if one.seq in deps or one.verdict is not Verdict.OK:
            shown[one.seq] = one  # an accepted one that is missing shows when the bundle is checked
    return Bundle(
        format=core_bundle.FORMAT,
        mesh=source.mesh,
        family=key.family,
        kind=key.kind,
        name=key.name,
        records=tuple(
            [
                await _bundled(source, shown[seq], seal.body.size, whole=seq in deps)
                for seq in sorted(shown)
            ]
        ),
        seal=Content.of(seal.payload),
    )


async def _bundled(
    source: RecordSource, one: FoundRecord, size: int, *, whole: bool
) -> BundledRecord:
    has_bytes = whole or one.verdict is Verdict.OK or source.protocol.lane_of(one.subject) is None
    return BundledRecord(
        seq=one.seq,
        commit_ms=one.commit_ms,
        subject=one.subject,
        verdict=one.verdict,
        record=Content.of(one.payload) if has_bytes else None,
        digest=None if has_bytes else one.digest,
        after=one.after,
        leaf=one.leaf,
        path=tuple(await source.path(one.leaf, size)),
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
