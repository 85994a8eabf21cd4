"""Holds what agents were told about their puts against what the log has.

It reads ops, not states: what a put replaced, which siblings there were and who ended them is
followed here by hand, so that a table that forgets something is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from antiphon.core.families.memory.ops import Inline, MemoryPut, Strategy
from antiphon.runtime.log.lane_reader import Judged
from chaos.documents.process import Deed


class Finding(Struct, frozen=True):
    """What the log says about one document."""

    lost: list[str]
    """Updates that an agent was told about, or that others should have seen, and that are gone."""
    unlisted: list[str]
    """Deferred values that are in no list although nobody has resolved them."""
    open: set[str]
    """Siblings that nobody has resolved."""


def audit(strategy: Strategy, history: Sequence[Judged], deeds: Iterable[Deed]) -> Finding:
    """Follow the accepted puts of one document in order."""
    lost, unlisted = list[str](), list[str]()
    revision, siblings, counters = 0, set[str](), dict[str, int]()
    written, deferred = set[int](), set[str]()
    for judged in history:
        op, seq = judged.opened.op, judged.opened.seq
        if judged.verdict.value != "ok" or not isinstance(op, MemoryPut):
            continue
        body = op.body
        if body.strategy == "defer" and body.base != revision:
            siblings.add(judged.opened.op_id)
            deferred.add(judged.opened.op_id)
            continue
        if body.base != revision and body.strategy != "local":
            lost.append(f"record {seq} replaced revision {revision}, made from {body.base}")
        if not siblings.issuperset(body.resolves):
            unlisted.append(f"record {seq} resolved what was not listed")
        siblings -= set(body.resolves)
        if {one.op for one in body.keeps} != siblings:
            unlisted.append(f"record {seq} keeps other siblings than there are")
        revision = seq
        written.add(seq)
        if strategy == "merge" and isinstance(body.value, Inline):
            now = msgspec.json.decode(body.value.text, type=dict[str, int])
            behind = [one for one, count in counters.items() if now.get(one, 0) < count]
            lost += [f"record {seq} forgot {one}'s {counters[one]}" for one in behind]
            counters = now
    for deed in deeds:
        if deed.outcome == "written" and deed.revision not in written:
            lost.append(f"{deed.strategy} {deed.number} was written at {deed.revision}, and is not")
        if deed.outcome == "conflict" and deed.op_id not in deferred:
            unlisted.append(f"{deed.strategy} {deed.number} was deferred, and is nowhere")
    return Finding(lost, unlisted, siblings)
