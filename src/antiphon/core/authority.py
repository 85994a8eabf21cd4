"""Who may author what (SPEC §6).

Under `authority: open` whoever the engine lets in holds every command that is not the mesh's own.
Under `authority: chain`, the default, an op needs a chain of delegations from the owner; until
delegations are built, the only chain is the empty one: the owner itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.reasons import Reason

if TYPE_CHECKING:
    from antiphon.core.control import Control


def fault(control: Control, author: str) -> Reason | None:
    """Why `author` may not author job ops, or None."""
    if control.rules.authority == "open" or author == control.owner:
        return None
    return Reason.NO_CHAIN
