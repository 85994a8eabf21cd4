"""A lock on a ledger; each verb authors one op about it and returns the verdict."""

from antiphon.core.families.locks.ops import (
    BreakBody,
    LockBreak,
    LockRelease,
    LockTake,
    ReleaseBody,
    Successor,
    TakeBody,
)
from antiphon.core.families.locks.state import Hold, Lock, lock_key
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, OWNER
from tests.core.ledger import NO_FENCE, Ledger

SCOPE, KEY, TTL_MS = "repo.app", "file:src/lib.rs", 10_000
CURRENT = object()


class LockStory:
    """One lock; its holder is Alice's agent `main` unless a test says otherwise."""

    def __init__(self, ledger: Ledger | None = None, *, scope=SCOPE, key=KEY, **rules) -> None:
        self.ledger = ledger or Ledger(**rules)
        self.scope, self.key = scope, key

    @property
    def lock(self) -> Lock | None:
        lane = self.ledger.reader.all_lanes.get(lock_key(self.scope, self.key))
        return lane.state if lane else None

    @property
    def hold(self) -> Hold | None:
        return self.lock.hold if self.lock else None

    @property
    def fence(self) -> str:
        return self.hold.fence if self.hold else NO_FENCE

    def _fence(self, fence):
        return self.fence if fence is CURRENT else fence

    def take(self, by=ALICE, *, agent="main", ttl_ms=TTL_MS, fence=None, **how) -> Verdict:
        body = TakeBody(
            kind=self.scope, key=self.key, agent=agent, ttl_ms=ttl_ms, fence=self._fence(fence)
        )
        return self.ledger.put(LockTake, body, by, **how)

    def renew(self, by=ALICE, *, fence=CURRENT, **how) -> Verdict:
        return self.take(by, fence=fence, **how)

    def release(self, by=ALICE, *, agent="main", fence=CURRENT, to=None, **how) -> Verdict:
        body = ReleaseBody(
            kind=self.scope, key=self.key, agent=agent, fence=self._fence(fence), pass_to=to
        )
        return self.ledger.put(LockRelease, body, by, **how)

    def pass_on(self, to, by=ALICE, *, to_agent="main", ttl_ms=TTL_MS, **how) -> Verdict:
        return self.release(by, to=Successor(node=to.did, agent=to_agent, ttl_ms=ttl_ms), **how)

    def break_it(self, by=OWNER, *, fence=None, **how) -> Verdict:
        body = BreakBody(kind=self.scope, key=self.key, fence=self._fence(fence))
        return self.ledger.put(LockBreak, body, by, **how)
