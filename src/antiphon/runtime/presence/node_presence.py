"""The full nodes that look after a mesh: who is there, and whose turn it is.

They talk as the workers of a kind do (`presence`), on a subject of their own. A node that says it
is there and does nothing can put an expiry off by its turn; and however many say so, by no more
than `MOST_TURNS` of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.job_rights import WORKED_BY
from antiphon.core.authority.scope import Scope, scope_of
from antiphon.core.policy import selection
from antiphon.runtime.presence.worker_presence import Traits, WorkerPresence

if TYPE_CHECKING:
    from antiphon.core.record.verdict import Verdict
    from antiphon.runtime.log.session import Session

TURN_S: Final = 2.5
"""What each turn waits for the one before: longer than it takes to look, write and hear of it."""
MOST_TURNS: Final = 4
_SCOPES_KEPT: Final = 1_024
_SCOPE_FOR_S: Final = 5.0


class NodePresence(WorkerPresence):
    """The caretakers of one mesh, as one of them sees it."""

    def __init__(self, session: Session) -> None:
        """Alone, until others are heard of."""
        super().__init__(session, "", Traits(), lambda: 1)
        self._scopes: dict[str, tuple[int, int, float, Scope]] = {}

    def fault_of(self, did: str) -> Verdict | None:  # noqa: ARG002 - what counts is asked by kind
        """Anyone may say that it is there."""
        return None

    def turn(self, kind: str, job_id: str, fence: str) -> int:
        """How many others should write before us what is due about a job."""
        able = [other.did for other in self.others() if self._may_work(other.did, kind)]
        return min(selection.turn(job_id, fence, self.session.author.did, able), MOST_TURNS)

    def _may_work(self, did: str, kind: str) -> bool:
        return self._scope(did).admits(kind, *WORKED_BY)

    def _scope(self, did: str) -> Scope:
        control, now_s = self.session.control, self.session.wall.boot_s()
        key = (control.since, control.grants.revision)
        known = self._scopes.get(did)
        if known is not None and known[:2] == key and now_s < known[2]:
            return known[3]
        if len(self._scopes) >= _SCOPES_KEPT:
            self._scopes.clear()
        scope = scope_of(
            control, self.session.protocol.branches, did, self.session.wall.now_ms() // 1000
        )
        self._scopes[did] = (*key, now_s + _SCOPE_FOR_S, scope)
        return scope
