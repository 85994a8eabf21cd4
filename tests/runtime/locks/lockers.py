"""Agents that take locks on a mesh under test."""

from antiphon.assembly import MeshConnection
from antiphon.core.authority.rules import Rules
from antiphon.core.policy.locks.lock_time import fixed
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.log.session import Session
from antiphon.sdk.locks.lock import Lock

SCOPE, KEY = "repo.app", "file:src/lib.rs"
TTL_MS = 30_000
OPEN = Rules(authority="open", max_drift_ms=100)


def lock_of(
    who: Session | MeshConnection,
    *,
    agent: str = "main",
    ttl_ms: int = TTL_MS,
    wait_s: float | None = 3_000.0,
    key: str = KEY,
) -> Lock:
    session = who.session if isinstance(who, MeshConnection) else who
    time = fixed(ttl_ms)
    return Lock(LockLine(session, SCOPE, key, agent), lambda _after_ms: time, wait_s)


class CountedReads:
    """Counts what a session asks its log for."""

    def __init__(self, session: Session) -> None:
        self.count = 0
        self._log = session.log
        session.log = self  # type: ignore[assignment]

    def __getattr__(self, name: str):
        if name in {"read", "read_lane", "read_lanes", "newest", "confirm", "fetch", "last"} or (
            name in {"fetch_many", "append"}
        ):
            self.count += 1
        return getattr(self._log, name)
