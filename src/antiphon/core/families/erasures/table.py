"""Whether a job is forgotten: by the order of whoever may, and the newest order counts.

The job is not looked at. A reader who does not read the lanes of its replicas cannot know whether a
job has ended, and of an archived one nobody can. Whoever keeps bytes looks before it removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.erasures.state import Erasure

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.family import At
    from antiphon.core.record.op import Op


def entitled(control: Control, _erasure: Erasure | None, op: Op, _at: At) -> bool:
    """The coordinator needs no chain, and the owner never does."""
    return op.author == control.coordinator


def step(_erasure: Erasure | None, op: Op, at: At) -> Erasure:
    """The newest order."""
    return Erasure(seq=at.seq, at_ms=at.commit_ms, hlc=op.hlc, hlc_author=op.author)
