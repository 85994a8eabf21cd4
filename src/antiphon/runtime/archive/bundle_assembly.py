"""Assembles bundles: a lane, what its verdicts depend on, and one seal (spec §9).

From a replica or from an archive, whatever has the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from antiphon.core import bundle as core_bundle
from antiphon.core.bundle import Bundle, BundledRecord, Content
from antiphon.core.opened_record import OpenedRecord, open_anywhere
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed, Rejected
from antiphon.read_back import read_back

if TYPE_CHECKING:
    from antiphon.core.record.branches import LaneKey
    from antiphon.runtime.archive.record_source import FoundRecord, FoundSeal, RecordSource

READ_AT_ONCE: Final = 1024 * 1024
"""Bytes that are read back in the event loop; a thread reads more."""


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
    kinds = {one.place.key.kind for one in opened if one.place is not None}
    wanted = core_bundle.wanted_control([*opened, sealed], source.mesh, kinds)
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


async def written(bundle: Bundle) -> bytes:
    """The bundle as a file, which was read back: what it shows was checked as it was assembled."""
    data = core_bundle.write(bundle)
    what = f"the bundle of {bundle.kind} {bundle.name[:8]}"
    if len(data) <= READ_AT_ONCE:
        read_back(what, bundle, core_bundle.read, data)
    else:
        await asyncio.to_thread(read_back, what, bundle, core_bundle.read, data)
    return data


async def _named_lanes(
    source: RecordSource, key: LaneKey, lane: list[FoundRecord]
) -> list[FoundRecord]:
    """The lanes that ops on this one name, and what those name.

    For a job with replicas those that agreed, for one that asked people the questions.
    """
    found: list[FoundRecord] = []
    seen, left, end = {key}, [(key, lane)], lane[-1].seq
    while left:
        at, records = left.pop()
        judged = ((one.opened(source.protocol, source.mesh), one.verdict) for one in records)
        for named in core_bundle.lanes_named(judged, at):
            if named not in seen:
                seen.add(named)
                more = [one for one in await source.accepted(named) if one.seq < end]
                found += more
                left.append((named, more))
    return found


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
