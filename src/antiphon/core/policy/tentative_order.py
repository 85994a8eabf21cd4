"""Ops that nobody has committed yet (spec §5).

Among tentative ops for one job the smaller timestamp wins, ties going to the lower node id. Two
different ops by one author with one timestamp are an integrity failure: both are dropped, since
picking either would reward a broken or lying clock. Committed always beats tentative; that
follows from committed order and needs no code here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class Tentative(Struct, frozen=True, gc=False):
    """What order needs to know of an uncommitted op."""

    op_id: str
    author: str
    hlc: tuple[int, int]


class Ranking(Struct, frozen=True):
    """Tentative ops in the order in which they go to the log, and those that never will."""

    ordered: tuple[Tentative, ...]
    equivocal: tuple[Tentative, ...]


def rank(tentative: Iterable[Tentative]) -> Ranking:
    """Order ops by timestamp, then node; set aside every op whose author reused a timestamp."""
    distinct = {op.op_id: op for op in tentative}.values()
    signed = Counter((op.author, op.hlc) for op in distinct)
    in_order = sorted(distinct, key=lambda op: (op.hlc, op.author, op.op_id))
    return Ranking(
        ordered=tuple(op for op in in_order if signed[op.author, op.hlc] == 1),
        equivocal=tuple(op for op in in_order if signed[op.author, op.hlc] > 1),
    )
