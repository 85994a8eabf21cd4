"""Bundles: a job's records, sealed, in one file that anybody can check offline (spec §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import ops, subjects, verify
from antiphon.core.reasons import Reason
from antiphon.core.verify import Bundle, Content, Report, Shown
from antiphon.errors import Malformed, Outdated, Rejected, Unavailable
from antiphon.runtime.peer import open_entry

if TYPE_CHECKING:
    from antiphon.core.records import Entry
    from antiphon.runtime.replica import Replica
    from antiphon.runtime.replica_reads import StoredRecord
    from antiphon.sdk.mesh import Mesh

WAIT_S: Final = 40.0
"""A bar, and what a seal may wait for a calm."""
ROUND_S: Final = 1.0


class SealStanding(Struct, frozen=True, kw_only=True):
    """The newest seals as this machine judged them."""

    seq: int = 0
    """The newest that stands; 0 if none does."""
    upto: int = 0
    commit_ms: int = 0
    refused_seq: int = 0
    """The newest that did not match the log; 0 if all did."""


async def seal_standing(mesh: Mesh) -> SealStanding:
    """How far the log is sealed, and whether a seal did not match."""
    async with mesh.replica() as replica:
        found = _newest_seal(replica, mesh.peer.mesh)
        refused = replica.newest_on(subjects.seal(mesh.peer.mesh), verdict=Reason.SEAL)
    refused_seq = refused.record.seq if refused is not None else 0
    if found is None:
        return SealStanding(refused_seq=refused_seq)
    stored, body = found
    return SealStanding(
        seq=stored.record.seq,
        upto=body.upto,
        commit_ms=stored.record.commit_ms,
        refused_seq=refused_seq,
    )


async def export(
    mesh: Mesh,
    kind: str,
    job: str,
    *,
    wait_s: float = WAIT_S,
    waiting: Callable[[float], None] = lambda _: None,
) -> bytes:
    """A job's bundle; waits for a seal that covers it and says so through `waiting`."""
    clock = asyncio.get_running_loop()
    until = clock.time() + wait_s
    while True:
        async with mesh.replica() as replica:
            _require_ended(replica, kind, job)
            bundle = _assembled(replica, mesh.peer.mesh, kind, job)
        if bundle is not None:
            return verify.write(bundle)
        left_s = until - clock.time()
        if left_s <= 0:
            raise Unavailable(
                f"no seal covers job {job[:8]} yet: the coordinator's full node makes them",
                hint="antiphon doctor shows whether it runs; antiphon coordinator NODE names one",
            )
        waiting(left_s)
        await asyncio.sleep(min(ROUND_S, left_s))


def open_bundle(data: bytes, *, owner: str | None = None) -> Report:
    """Check a bundle offline: `Rejected` or `Malformed` with a sentence if it does not hold."""
    try:
        return verify.check(verify.read(data), owner=owner)
    except Outdated as problem:
        raise Rejected(problem.message, reason="bundle", hint=problem.hint) from problem


def _require_ended(replica: Replica, kind: str, job: str) -> None:
    known = replica.job(kind, job)
    if known is None or not known.is_terminal:
        raise Rejected(
            f"job {job[:8]} has not ended, so there is nothing to vouch for yet",
            reason="not_ended",
            hint=f"antiphon show {job[:8]}",
        )


def _newest_seal(replica: Replica, mesh: str) -> tuple[StoredRecord, ops.SealBody] | None:
    stored = replica.newest_on(subjects.seal(mesh), verdict=Reason.OK)
    if stored is None:
        return None
    op = open_entry(mesh, stored.record).op
    return (stored, op.body) if isinstance(op, ops.MeshSeal) else None


def _assembled(replica: Replica, mesh: str, kind: str, job: str) -> Bundle | None:
    """The bundle under the newest seal; None if that does not cover the job's end."""
    found = _newest_seal(replica, mesh)
    lane = replica.lane_records(kind, job)
    ended = replica.job(kind, job)
    if found is None or ended is None or found[1].upto < ended.ended_seq:
        return None
    seal, body = found
    lane = [stored for stored in lane if stored.record.seq <= body.upto]
    entries = [open_entry(mesh, stored.record) for stored in lane]
    coordinator = open_entry(mesh, seal.record)
    wanted = verify.wanted_control([*entries, coordinator], mesh, kind)
    everything = _control(replica, mesh, body.upto)
    few = [stored for stored in everything if stored.record.subject in wanted]
    for control in (few, everything):
        bundle = _bundle(replica, (mesh, kind, job), [*control, *lane], seal, body)
        try:
            verify.check(bundle)
        except (Rejected, Malformed):
            if control is everything:
                raise
            continue  # a verdict rests on more than the usual: show all of control
        return bundle
    return None


def _control(replica: Replica, mesh: str, upto: int) -> list[StoredRecord]:
    pattern = subjects.all_control(mesh)
    found = [
        replica.record(record.seq)
        for record in replica.control_records()
        if record.seq <= upto and subjects.matches(pattern, record.subject)
    ]
    return [stored for stored in found if stored is not None]


def _bundle(
    replica: Replica,
    job: tuple[str, str, str],
    records: list[StoredRecord],
    seal: StoredRecord,
    body: ops.SealBody,
) -> Bundle:
    mesh, kind, job_id = job
    shown = {stored.record.seq: stored for stored in records}
    for stored in records:
        for seq in _named(open_entry(mesh, stored.record)):
            named = replica.record(seq) if seq < stored.record.seq else None
            if named is not None:
                shown.setdefault(seq, named)
    return Bundle(
        format=verify.FORMAT,
        mesh=mesh,
        kind=kind,
        job=job_id,
        records=tuple(_shown(replica, shown[seq], body.size) for seq in sorted(shown)),
        seal=Content.of(seal.record.payload),
    )


def _named(entry: Entry) -> list[int]:
    return [seq for seq, _ in entry.op.deps] if entry.op is not None else []


def _shown(replica: Replica, stored: StoredRecord, size: int) -> Shown:
    record = stored.record
    return Shown(
        seq=record.seq,
        commit_ms=record.commit_ms,
        subject=record.subject,
        verdict=stored.verdict,
        record=Content.of(record.payload),
        leaf=replica.tree.size_at(record.seq) - 1,
        path=tuple(replica.tree.inclusion(record.seq, size)),
    )


__all__ = ["Bundle", "Report", "SealStanding", "export", "open_bundle", "seal_standing"]
