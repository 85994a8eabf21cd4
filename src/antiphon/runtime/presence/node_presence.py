"""The full nodes of a mesh that look after overdue jobs: which are online, and whose turn it is.

They use the messages of `worker_presence`, on their own subject. A node that announces itself and
does nothing can delay an expiry by its turn, and any number of them by `MOST_TURNS` turns at most.

Heartbeats (`roll_call`) would tell the same, later: a node that has just begun knows the others
here in a fraction of a second, and so does not write what is another's turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.job_rights import WORKED_BY
from antiphon.core.authority.scope import Scope, scope_of
from antiphon.core.policy import selection
from antiphon.runtime.presence.rights_cache import RightsCache
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
        self._scopes = RightsCache(session, self._scope, kept_s=_SCOPE_FOR_S, most=_SCOPES_KEPT)

    def fault_of(self, did: str) -> Verdict | None:  # noqa: ARG002 - permissions are checked by kind
        """Any node may announce itself."""
        return None

    def turn(self, kind: str, job_id: str, fence: str) -> int:
        """How many other nodes should write what is due about a job before us."""
        able = [other.did for other in self.others() if self._may_work(other.did, kind)]
        return min(selection.turn(job_id, fence, self.session.author.did, able), MOST_TURNS)

    def _may_work(self, did: str, kind: str) -> bool:
        return self._scopes.of(did).admits(kind, *WORKED_BY)

    def _scope(self, did: str) -> Scope:
        session = self.session
        now_s = session.wall.now_ms() // 1000
        return scope_of(session.control, session.protocol.branches, did, now_s)
