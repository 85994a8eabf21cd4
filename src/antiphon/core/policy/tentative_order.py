"""The order of ops that are not committed yet (spec §5).

Among tentative ops for one job the smaller timestamp wins, then the lower node id. Two different
ops by one author with one timestamp are an integrity failure: both are dropped, since choosing
either would reward a broken or lying clock. Committed ops always win over tentative ones; that
follows from the log's order and needs no code here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class Tentative(Struct, frozen=True, gc=False):
    """What the order depends on, of an uncommitted op."""

    op_id: str
    author: str
    hlc: tuple[int, int]


class Ranking(Struct, frozen=True):
    """Tentative ops in the order in which they are written to the log, and those that never are."""

    ordered: tuple[Tentative, ...]
    equivocal: tuple[Tentative, ...]


def rank(tentative: Iterable[Tentative]) -> Ranking:
    """Order ops by timestamp, then node; drop every op whose author reused a timestamp."""
    distinct = {op.op_id: op for op in tentative}.values()
    signed = Counter((op.author, op.hlc) for op in distinct)
    in_order = sorted(distinct, key=lambda op: (op.hlc, op.author, op.op_id))
    return Ranking(
        ordered=tuple(op for op in in_order if signed[op.author, op.hlc] == 1),
        equivocal=tuple(op for op in in_order if signed[op.author, op.hlc] > 1),
    )
