"""What it means that two histories agree, or do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.interfaces.cli.checks.findings import Finding, ok, warning, wrong
from antiphon.interfaces.cli.screen.terminal import counted

if TYPE_CHECKING:
    from antiphon.sdk.archive.witness import Comparison

CHECK: Final = "history"


def findings(told: Comparison) -> list[Finding]:
    """The comparison in sentences."""
    found = [_finding(told)]
    if told.by_coordinator is False:
        words = f"no coordinator of this mesh signed the checkpoint of {told.other}"
        found.append(warning("signature", words, "find out who made it"))
    return found


def _finding(told: Comparison) -> Finding:
    theirs, own = counted(told.other_size, "record"), counted(told.own_size, "record")
    sizes = f"{told.other} has {theirs}, this machine {own}"
    if told.result == "same":
        return ok(CHECK, f"the same: the first {counted(told.common, 'record')} agree; {sizes}")
    if told.result == "unproved":
        words = f"{told.other} does not prove that its history is this one; {sizes}"
        return warning(CHECK, words, "compare again when this machine has read as many records")
    where = (
        f"the first {counted(told.common, 'record')} agree, and the next one differs"
        if told.is_exact
        else f"they part within the first {counted(told.other_size, 'record')}"
    )
    hint = (
        "the coordinator signed two histories: keep both, they prove it"
        if told.by_coordinator
        else "somebody shows two histories, or a copy was restored: find out which one is right"
    )
    return wrong(CHECK, f"{told.other} has ANOTHER history: {where}; {sizes}", hint)
