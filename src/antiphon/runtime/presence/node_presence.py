"""The full nodes of a mesh that look after overdue jobs: which are online, and whose turn it is.

They use the messages of `worker_presence`, on their own subject. A node that announces itself and
does nothing can delay an expiry by its turn, and any number of them by `MOST_TURNS` turns at most.
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
"""How long each turn waits for the one before: longer than it takes to read, write and see it."""
MOST_TURNS: Final = 4
_SCOPES_KEPT: Final = 1_024
_SCOPE_FOR_S: Final = 5.0


class NodePresence(WorkerPresence):
    """The full nodes of one mesh that look after its jobs, as one of them sees it."""

    def __init__(self, session: Session) -> None:
        """Alone, until others are heard."""
        super().__init__(session, "", Traits(), lambda: 1)
        self._scopes: dict[str, tuple[int, int, float, Scope]] = {}

    def fault_of(self, did: str) -> Verdict | None:  # noqa: ARG002 - permissions are checked by kind
        """Any node may announce itself."""
        return None

    def turn(self, kind: str, job_id: str, fence: str) -> int:
        """How many other nodes should write what is due about a job before us."""
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
