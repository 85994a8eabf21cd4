"""Authoring: turns a body into a signed record, with a timestamp that was never used before.

The clock's high-water mark is persisted ahead of use. A timestamp beyond the mark is not issued
until a higher mark is on disk, so neither a crash, a restored backup nor a stepped clock can make
this key sign one timestamp twice (spec §4.2).

A machine's clock that is wrong by an hour must not cost its key an hour: stretches of time that
were used up too early are kept beside the mark. The author goes back before them when the clock
is right again, and steps over them later. While it knows that the clock is ahead of the mesh's it
signs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from antiphon.core import codec, ops, signing
from antiphon.core.clock import (
    MAX_LOGICAL,
    ZERO,
    Clock,
    Hlc,
    Stretch,
    first_free,
    gathered,
)
from antiphon.core.reasons import Reason
from antiphon.core.records import Entry, open_own
from antiphon.errors import Rejected, Unavailable
from antiphon.runtime.mesh_time import HINT, MeshTime, ahead_words, in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.ports import Keyring, WallClock

MARK_AHEAD_MS = 1_000
"""How far a mark is set ahead: below the default drift, so a restart is never refused for it."""


class Mark(Protocol):
    """Where the high-water mark survives a crash."""

    def load(self) -> int:
        """The persisted wall time, 0 if there is none."""

    def load_spent(self) -> tuple[Stretch, ...]:
        """The stretches that were stored with it; none is: everything up to it."""

    def store(self, wall_ms: int, spent: tuple[Stretch, ...] = ()) -> None:
        """Persist before returning."""


class NoMark:
    """For keys that do not outlive their process."""

    def load(self) -> int:
        """Nothing was ever promised."""
        return 0

    def load_spent(self) -> tuple[Stretch, ...]:
        """Nothing was ever used."""
        return ()

    def store(self, wall_ms: int, spent: tuple[Stretch, ...] = ()) -> None:
        """Nothing to keep."""


class Draft(Struct, frozen=True, gc=False):
    """A signed op, ready for the log."""

    subject: str
    payload: bytes
    op: ops.AnyOp
    entry: Entry
    """As any reader will open it; its place is not known yet."""

    @property
    def op_id(self) -> str:
        """The digest of the op's bytes."""
        return self.entry.op_id


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
        self.mesh_time = MeshTime(wall)
        # Any timestamp up to the mark may have been issued: begin behind the last of them.
        promised = mark.load()
        behind = Hlc(promised, MAX_LOGICAL) if promised else ZERO
        self.clock = Clock(start=behind, limit_ms=promised, max_drift_ms=max_drift_ms)
        whole = (Stretch(0, promised),) if promised else ()
        self._aside = gathered(mark.load_spent()) or whole
        self._from_ms: int | None = None
        """Where the stretch that is being used begins; None before its first timestamp."""

    @property
    def is_ahead(self) -> bool:
        """Whether this machine's clock is known to be too far ahead to sign anything."""
        return self.mesh_time.is_ahead(self.clock.max_drift_ms)

    def now(self) -> Hlc:
        """The timestamp that the next op would carry."""
        return self.clock.next(self._place_clock())

    def tick(self) -> Hlc:
        """A fresh timestamp, covered by a persisted mark."""
        now_ms = self._place_clock()
        ahead = self.clock.next(now_ms).wall_ms
        latest_ms = self.mesh_time.most_ms() + self.clock.max_drift_ms
        if now_ms > latest_ms:
            raise Unavailable(ahead_words(now_ms - self.mesh_time.most_ms()), hint=HINT)
        if ahead > latest_ms:
            words = (
                f"all time up to {in_words(ahead - now_ms)} from now was used up by a wrong clock"
            )
            raise Unavailable(words, hint="wait for it, or use another key")
        if ahead > self.clock.limit_ms:
            if self._from_ms is None or ahead > self.clock.limit_ms + self.clock.max_drift_ms:
                self._aside = self._spent()
                self._from_ms = ahead
            promised = ahead + MARK_AHEAD_MS
            self._mark.store(promised, self._spent(up_to_ms=promised))
            self.clock.reserve(promised)
        return self.clock.tick(now_ms)

    def _spent(self, up_to_ms: int | None = None) -> tuple[Stretch, ...]:
        if self._from_ms is None:
            return self._aside
        limit_ms = self.clock.limit_ms if up_to_ms is None else up_to_ms
        return gathered((*self._aside, Stretch(self._from_ms, limit_ms)))

    def _place_clock(self) -> int:
        """The wall time, once the clock stands where it may go on from.

        That is before what was used up too early, if the clock ran ahead of its own machine's and
        the log does not show that it is the machine's which is behind.
        """
        now_ms = self._wall.now_ms()
        wall_ms = self.clock.next(now_ms).wall_ms
        drift_ms = self.clock.max_drift_ms
        is_behind = self.mesh_time.least_ms() > now_ms + drift_ms
        if not is_behind and wall_ms > self.mesh_time.latest_ms(now_ms) + drift_ms:
            free_ms = min(first_free(now_ms, self._spent()), wall_ms)
        else:
            free_ms = first_free(wall_ms, self._aside)
        if free_ms != wall_ms:
            self._aside = self._spent()
            self._from_ms = None
            self.clock.resume(free_ms)
        return now_ms

    def settle(self) -> None:
        """Take back the part of the mark that was not used; nothing may be stamped afterwards.

        Without it every short process would push the next one a second further ahead of the
        wall clock, until a shell loop is refused for drift.
        """
        used_ms = min(self.clock.last.wall_ms, self.clock.limit_ms)
        if self._from_ms is not None and used_ms < self.clock.limit_ms:
            self._mark.store(used_ms, self._spent(up_to_ms=used_ms))

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
        auth: tuple[str, ...],
        deps: tuple[tuple[int, str], ...] = (),
    ) -> ops.AnyOp:
        """An op of this author, not signed yet; `auth` names delegations, from root to leaf."""
        return kind(
            v=1,
            mesh=self.mesh,
            author=self.did,
            hlc=hlc,
            prev=prev,
            deps=deps,
            auth=auth,
            body=body,
        )

    def draft(
        self,
        kind: Callable[..., ops.AnyOp],
        body: Struct,
        *,
        prev: int,
        auth: tuple[str, ...],
        deps: tuple[tuple[int, str], ...] = (),
    ) -> Draft:
        """Stamp, encode and sign one op; `Rejected` if every reader would refuse its bytes."""
        op = self.compose(kind, body, prev=prev, hlc=self.tick(), auth=auth, deps=deps)
        op_bytes = codec.encode(op)
        block = signing.Block(sig=self._keyring.sign(signing.OP_TYPE, op_bytes).hex())
        payload = signing.frame(op_bytes, block)
        subject = ops.subject_of(op, op_bytes)
        entry = open_own(self.mesh, subject, payload)
        if entry.fault is not None:
            raise _unreadable(op, len(op_bytes), entry.fault)
        return Draft(subject, payload, op, entry)


def _unreadable(op: ops.AnyOp, size: int, fault: Reason) -> Rejected:
    """Why nobody would accept these bytes, and what to do about it."""
    if fault is not Reason.SIZE:
        return Rejected(f"{op.TYPE} would be rejected: {fault.in_words}", reason=fault.value)
    what = "the call" if isinstance(op, ops.JobSchedule) else op.TYPE
    return Rejected(
        f"{what} has {size:,} bytes with its arguments; a record holds {codec.MAX_OP_BYTES:,}",
        reason=fault.value,
        hint="keep large data as an artifact (mesh.keep) and pass its hash: docs/artifacts.md",
    )
