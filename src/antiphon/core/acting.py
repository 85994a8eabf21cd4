"""Ops that one node writes for another: judged as if that other had written them.

A node that writes for somebody lends its key, and nothing else: what may be written is what that
somebody could write with an own key, with every policy of the delegations that it shows. Plans,
Git, HTTP and pages ask this one function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.reducer import author_fault

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.family import At, Family
    from antiphon.core.record.op import Op
    from antiphon.core.record.verdict import Verdict


def fault_as(
    author: str, auth: tuple[str, ...], op: Op, at: At, *, family: Family, state: Any = None
) -> Verdict | None:
    """Why `author` may not write this op here under these delegations, or None."""
    return author_fault(family, state, replace(op, author=author, auth=auth), at)


def chain_for(control: Control, key: str, op: Op, now_ms: int) -> tuple[str, ...]:
    """The delegations that a key would name in an op of its own."""
    return ChainChoice(key).choose(control, type(op), op.body, now_ms)
