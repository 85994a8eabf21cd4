"""A sentence for each op about a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.locks.ops import LockRelease, LockTake
from antiphon.core.record.ids import short_node

if TYPE_CHECKING:
    from antiphon.core.record.op import Op


def sentence(op: Op) -> str:
    """What an op did, as the end of a sentence that begins with its author."""
    what = f"the lock {op.body.key} in {op.body.kind}"
    match op:
        case LockTake(body=body) if body.fence is not None:
            return f"renewed {what} for {body.ttl_ms / 1000:g} s"
        case LockTake(body=body):
            return f"took {what} for {body.ttl_ms / 1000:g} s, as {body.agent}"
        case LockRelease(body=body) if body.pass_to is not None:
            to = body.pass_to
            return f"passed {what} on to {short_node(to.node)}/{to.agent}"
        case LockRelease():
            return f"released {what}"
        case _:
            return f"broke {what}"
