"""The three ops about a lock (spec §10).

A lock's lane is one subject, named after its scope and the digest of its key. The scope is written
as `kind`, so that policies of delegations are about it as they are about kinds of jobs.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

from antiphon.core.authority.lock_rights import BREAK, LOCKED_BY, LOCKS_READ_BY, TAKE
from antiphon.core.families.jobs.ops import Fence
from antiphon.core.record.branches import Branch
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.ids import name_of_key, short_node
from antiphon.core.record.op import AgentName, Body, Did, Kind, Op

MAX_KEY: Final = 512
LockKey = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]+\Z", max_length=MAX_KEY)]
"""What is locked, such as `file:src/lib.rs`; it is printed, so it has no control characters."""
TtlMs = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
"""How long a hold lasts without renewal; the rules' bounds of a lease hold for it."""

LOCK: Final = Branch(stem="lock", read_by=LOCKS_READ_BY, written_by=LOCKED_BY)


class TakeBody(Body, frozen=True):
    """Takes a lock that is free; with a fence, renews the hold that has it."""

    kind: Kind
    key: LockKey
    agent: AgentName
    """Who on the author's node: two agents of one node exclude each other."""
    ttl_ms: TtlMs
    fence: Fence | None = None


class Successor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who holds a lock next, and for how long without a renewal of its own."""

    node: Did
    agent: AgentName
    ttl_ms: TtlMs


class ReleaseBody(Body, frozen=True, rename={"pass_to": "pass"}):
    """Ends the author's hold; with `pass`, another holder's begins in the same op."""

    kind: Kind
    key: LockKey
    agent: AgentName
    fence: Fence
    pass_to: Successor | None = None


class BreakBody(Body, frozen=True):
    """Ends whoever's hold; with a fence, only the one that has it."""

    kind: Kind
    key: LockKey
    fence: Fence | None = None


class _LockOp(Op, frozen=True):
    COMMAND: ClassVar[str] = TAKE
    BRANCH: ClassVar[Branch] = LOCK

    def subject(self, mesh: str) -> str:
        """The lock's own subject."""
        return LOCK.subject(mesh, self.body.kind, name_of_key(self.body.key))

    @property
    def _lock(self) -> str:
        return f"the lock {self.body.key} in {self.body.kind}"


class LockTake(_LockOp, frozen=True, tag="lock.take"):
    """Takes a lock, or renews a hold."""

    body: TakeBody

    def words(self) -> str:
        """In a sentence."""
        ttl = f"for {self.body.ttl_ms / 1000:g} s"
        if self.body.fence is not None:
            return f"renewed {self._lock} {ttl}"
        return f"took {self._lock} {ttl}, as {self.body.agent}"


class LockRelease(_LockOp, frozen=True, tag="lock.release"):
    """Releases a lock, or passes it on."""

    body: ReleaseBody

    def words(self) -> str:
        """In a sentence."""
        to = self.body.pass_to
        if to is not None:
            return f"passed {self._lock} on to {short_node(to.node)}/{to.agent}"
        return f"released {self._lock}"


class LockBreak(_LockOp, frozen=True, tag="lock.break"):
    """Breaks a lock: its holder loses it."""

    COMMAND: ClassVar[str] = BREAK

    body: BreakBody

    def words(self) -> str:
        """In a sentence."""
        return f"broke {self._lock}"
