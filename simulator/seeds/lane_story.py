"""A lane as a person reads it: one line a record, who, what, when, and what the rules said."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from simulator.checks import plain_record
from simulator.checks.plain_record import Key, PlainRecord


def tell(
    mesh: str,
    key: Key,
    lane: list[tuple[Record, Verdict]],
    names: Mapping[str, str],
    *,
    epoch_ms: int,
    marked: int = 0,
) -> str:
    """The story of one job; `marked` is the record where a law was broken."""
    lines = [f"job {key[1][:8]} of kind {key[0]}"]
    for record, verdict in lane:
        fact = plain_record.read(mesh, record)
        sign = "→" if record.seq == marked else " "
        at_s = (record.commit_ms - epoch_ms) / 1000
        where = record.subject.split(".")[2]
        said = _said(fact, names, epoch_ms) if fact else f"{len(record.payload)} bytes of junk"
        lines.append(
            f" {sign} {record.seq:>6} {at_s:>10.3f} s  {where:<4} {said}  ⇒ {verdict.value}"
        )
    return "\n".join(lines)


def _said(fact: PlainRecord, names: Mapping[str, str], epoch_ms: int) -> str:
    who = names.get(fact.author, fact.author[-8:])
    clock_s = (fact.wall_ms - epoch_ms) / 1000
    details = [f"at {clock_s:.3f}.{fact.logical}", f"prev {fact.prev}"]
    if fact.type == "job.claim":
        details.append(f"lease {fact.body.get('lease_ms')}")
        details.append(f"begins {fact.own_fence[-10:]}" if not fact.fence else "")
    if fact.fence:
        details.append(f"fence {fact.fence[-10:]}")
    told = ("status", "reason", "retry_after_ms")
    details += [f"{name} {fact.body[name]}" for name in told if name in fact.body]
    return f"{who:<10} {fact.type.removeprefix('job.'):<9} " + ", ".join(d for d in details if d)
