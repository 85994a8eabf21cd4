"""Authoring: turns a body into a signed record, with a timestamp that was never used before.

The clock's high-water mark is persisted ahead of use. A timestamp beyond the mark is not issued
until a higher mark is on disk, so neither a crash, a restored backup nor a stepped clock can make
this key sign one timestamp twice (SPEC §4.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from antiphon.core import codec, ops, signing
from antiphon.core.clock import MAX_LOGICAL, ZERO, Clock, Hlc
from antiphon.core.ids import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.ports import Keyring, WallClock

MARK_AHEAD_MS = 1_000
"""How far a mark is set ahead: below the default drift, so a restart is never refused for it."""


class Mark(Protocol):
    """Where the high-water mark survives a crash."""

    def load(self) -> int:
        """The persisted wall time, 0 if there is none."""

    def store(self, wall_ms: int) -> None:
        """Persist before returning."""


class NoMark:
    """For keys that do not outlive their process."""

    def load(self) -> int:
        """Nothing was ever promised."""
        return 0

    def store(self, wall_ms: int) -> None:
        """Nothing to keep."""


def no_authority(_kind: object, _body: Struct) -> tuple[str, ...]:
    """Names no delegations: enough for the owner, and on an open mesh."""
    return ()


class Draft(Struct, frozen=True, gc=False):
    """A signed op, ready for the log."""

    subject: str
    payload: bytes
    op: ops.AnyOp
    op_id: str


class Author:
    """One key, one clock, one mesh."""

    def __init__(
        self, mesh: str, keyring: Keyring, wall: WallClock, *, max_drift_ms: int, mark: Mark
    ) -> None:
        """Continue after the persisted mark, whatever the wall clock says."""
        self.mesh = mesh
        self.did = keyring.did
        self._keyring = keyring
        self._wall = wall
        self._mark = mark
        self.choose_auth: Callable[[object, Struct], tuple[str, ...]] = no_authority
        """Finds the delegations, from root to leaf, that an op of this author should name."""
        # Any timestamp up to the mark may have been issued: begin behind the last of them.
        promised = mark.load()
        behind = Hlc(promised, MAX_LOGICAL) if promised else ZERO
        self.clock = Clock(start=behind, limit_ms=promised, max_drift_ms=max_drift_ms)

    def now(self) -> Hlc:
        """The timestamp that the next op would carry."""
        return self.clock.next(self._wall.now_ms())

    def tick(self) -> Hlc:
        """A fresh timestamp, covered by a persisted mark."""
        now_ms = self._wall.now_ms()
        ahead = self.clock.next(now_ms).wall_ms
        if ahead > self.clock.limit_ms:
            self._mark.store(ahead + MARK_AHEAD_MS)
            self.clock.reserve(ahead + MARK_AHEAD_MS)
        return self.clock.tick(now_ms)

    def settle(self) -> None:
        """Take back the part of the mark that was not used; nothing may be stamped afterwards.

        Without it every short process would push the next one a second further ahead of the
        wall clock, until a shell loop is refused for drift.
        """
        used_ms = min(self.clock.last.wall_ms, self.clock.limit_ms)
        if used_ms < self.clock.limit_ms:
            self._mark.store(used_ms)

    def observe(self, hlc: tuple[int, int]) -> None:
        """Merge the timestamp of a verified op."""
        self.clock.receive(self._wall.now_ms(), hlc)

    def vouch(self, payload_type: str, payload: bytes) -> bytes:
        """Sign something that is not an op, such as a proof."""
        return self._keyring.sign(payload_type, payload)

    def compose(
        self,
        kind: Callable[..., ops.AnyOp],
        body: Struct,
        *,
        prev: int,
        hlc: Hlc,
        deps: tuple[tuple[int, str], ...] = (),
    ) -> ops.AnyOp:
        """An op of this author, not signed yet."""
        return kind(
            v=1,
            mesh=self.mesh,
            author=self.did,
            hlc=hlc,
            prev=prev,
            deps=deps,
            auth=self.choose_auth(kind, body),
            body=body,
        )

    def draft(
        self,
        kind: Callable[..., ops.AnyOp],
        body: Struct,
        *,
        prev: int,
        deps: tuple[tuple[int, str], ...] = (),
    ) -> Draft:
        """Stamp, encode and sign one op."""
        op = self.compose(kind, body, prev=prev, hlc=self.tick(), deps=deps)
        op_bytes = codec.encode(op)
        block = signing.Block(sig=self._keyring.sign(signing.OP_TYPE, op_bytes).hex())
        payload = signing.frame(op_bytes, block)
        return Draft(ops.subject_of(op, op_bytes), payload, op, digest(op_bytes))
