"""What an engine and a host must be able to do: the whole of it.

The runtime knows these protocols and nothing behind them. `antiphon.engines.memory` is their
executable reference; `antiphon.engines.nats` is the one that survives a power cut. Both pass
`antiphon.testing.engine_suite`.

Rules that every implementation keeps:

- Sequences begin at 1, rise by one for each stored record, and are never reused.
- A record never changes once it has a sequence. Its stamp is the same for every reader.
- A write ends in one of five ways: a sequence, `LostRace`, `IdTaken`, `OutcomeUnknown`, or
  `Rejected` where the engine can never take it (too large, or not of this mesh).
  `Unavailable` is raised only where it is certain that nothing was stored.
- Every iterator and queue is bounded; every wait takes its bound from the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from antiphon.core.authority.scope import Scope
from antiphon.core.ucan import Delegation, Payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

NANOSECONDS_PER_MS = 1_000_000


class Record(Struct, frozen=True, gc=False):
    """One stored record of the log: what every reader sees, byte for byte."""

    seq: int
    stamp_ns: int
    """The engine's commit stamp in nanoseconds since the Unix epoch."""
    subject: str
    payload: bytes

    @property
    def commit_ms(self) -> int:
        """The commit stamp in whole milliseconds, floored (spec §4.2)."""
        return self.stamp_ns // NANOSECONDS_PER_MS


class Page(Struct, frozen=True, gc=False):
    """A run of records in sequence order and whether more of them stood behind it."""

    records: list[Record]
    more: bool


class Delivery(Protocol):
    """One job announcement, lent to this worker until it is settled or its time is up.

    Settling proves nothing to anyone (spec §8): the engine fences no acknowledgement, so a late
    one takes the announcement from its present holder. All three calls are fire-and-forget,
    safe twice and safe after a disconnect.
    """

    @property
    def record(self) -> Record:
        """The schedule or offer that announced the job."""

    @property
    def deliveries(self) -> int:
        """How often the engine handed this record out, this time included: 1 = first time."""

    def ack(self) -> None:
        """The job is terminal and was read as such: never hand it out again."""

    def nak(self, delay_s: float = 0.0) -> None:
        """Hand it to somebody (perhaps this worker again), not before `delay_s`."""

    def in_progress(self) -> None:
        """Keep the loan; must be called more often than `WorkQueue.loan_s`."""


class WorkQueue(Protocol):
    """One shared, durable queue of announcements for one subject filter.

    Flow control is by credit: an announcement arrives only against a credit, so a worker never
    holds more than it has room for. Credits survive reconnects and idle time; after a reconnect
    the engine may hand out a few more than were granted.
    """

    @property
    def loan_s(self) -> float:
        """Seconds after which an unsettled delivery goes to someone else."""

    @property
    def credits(self) -> int:
        """Granted and not yet used: `next` has not returned as many."""

    @property
    def is_dry(self) -> bool:
        """Whether the engine said that it has nothing, and delivered nothing since."""

    def watch(self, told: Callable[[], None]) -> None:
        """Call `told` whenever `is_dry` may have become true. One watcher; it must not wait."""

    def grant(self, count: int) -> None:
        """Allow `count` more deliveries, and ask for them."""

    def ask(self) -> None:
        """Have the engine deliver, or say that it has nothing. It may deliver one too many."""

    def revoke_credits(self) -> None:
        """Ask for nothing more (drain). Deliveries already on their way may still arrive."""

    async def next(self) -> Delivery:
        """Wait for the next delivery. Cancel it to stop waiting; nothing is lost by that."""

    async def close(self) -> None:
        """Stop asking; give back what arrived and was not taken."""


class OpLog(Protocol):
    """The one replicated log of a mesh."""

    @property
    def reads(self) -> tuple[str, ...]:
        """What it shows, as subject filters relative to the mesh; `>` alone: every record.

        Another login of this connection may show something else.
        """

    async def append(
        self,
        subject: str,
        payload: bytes,
        *,
        message_id: str,
        expected_last: int,
        timeout_s: float = 5.0,
    ) -> int:
        """Store `payload` if the last sequence on `subject` is `expected_last` (0 = none yet).

        Returns the sequence. Storing the same bytes under the same message id again returns the
        first sequence: always with the same `expected_last`, and within the engine's duplicate
        window with any. Raises `LostRace`, `IdTaken` or `OutcomeUnknown`; `Unavailable` if the
        engine is away and nothing was stored. After a purge a subject is at 0 again.
        """

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """Records with a sequence above `after` whose subject matches, oldest first.

        May lag behind the newest commit where the engine has several replicas. A page may be
        shorter than `limit`: `more` says whether there is another.
        """

    def read_lane(self, filters: Sequence[str], *, after: int = 0) -> AsyncIterator[list[Record]]:
        """Every record above `after` on the given subjects, oldest first.

        The records as they stood at one moment, in pages of a bounded weight, none of them
        empty: a lane may be as long as somebody hostile made it. `Unavailable` where a copy of
        the log cannot show all of that moment.
        """

    async def confirm(self, subject: str, *, after: int, upto: int) -> list[Record]:
        """Every matching record in (after, upto], from a copy that is known to hold `upto`.

        Unlike `read` this never answers from a lagging replica: it raises `Unavailable`.
        The cost does not depend on the length of the log when `after` is near its end.
        """

    async def fetch(self, seq: int, *, newest_on: str = "") -> Record | None:
        """The record with that sequence, or None if the log holds none there.

        `newest_on` may name a subject on which it is expected to be the newest: an engine can
        answer many such questions with one read.
        """

    async def fetch_many(self, seqs: Sequence[int]) -> list[Record]:
        """What the log holds at sequences that were given out: one read, however many they are.

        Certain, like `confirm`: a record that is not among them is gone, or out of scope.
        """

    async def last(self) -> Record | None:
        """The newest record, or None on an empty log."""

    def follow(
        self, after: int, *, subject: str = ">", max_batch: int = 512
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Record]]]:
        """Matching records above `after` for ever, oldest first, each once, none missing.

        Yields non-empty batches as they are committed. Lost notifications, reconnects and
        restarts of the engine are repaired inside. Raises `Corrupt` when the log turns out to be
        shorter than what was already yielded or than `after`, or to hold something else where it
        last yielded. A log that was replaced before anything was yielded cannot be told from
        the right one: whoever gives `after` must know what stood there.

        A follower of the whole log ends when `reads` changes: its next record might have
        others before it that were not shown.
        """

    def work(self, subject: str, *, name: str) -> AbstractAsyncContextManager[WorkQueue]:
        """Join (creating it if need be) the shared queue `name` over one subject filter.

        The same name with another filter is `Misconfigured`.
        """

    async def purge(self, subject: str, *, upto: int) -> int:
        """Remove matching records up to and including `upto`: the owner's archiver only.

        Returns how many. Sequences are not reused.
        """


class LeaseEntry(Struct, frozen=True, gc=False):
    """A key's present value. `revision` never repeats for a key within one bucket."""

    key: str
    value: bytes
    revision: int
    bucket_created_ns: int


class Leases(Protocol):
    """Small keys with an owner, a revision and an end.

    An engine may round `ttl_ms` up to whole seconds.
    """

    async def create(self, key: str, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """Take a key that is free, released or expired; `Held` if it is not."""

    async def renew(self, entry: LeaseEntry, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """Move the end forward; `Held` if the key is no longer at `entry.revision`."""

    async def release(self, entry: LeaseEntry) -> None:
        """Free the key at once; does nothing if it is no longer at `entry.revision`."""

    async def get(self, key: str) -> LeaseEntry | None:
        """The live value, or None."""

    async def list(self, prefix: str, *, limit: int = 1024) -> list[LeaseEntry]:
        """Live keys under a prefix of whole tokens, complete up to `limit`."""


class BusMessage(Struct, frozen=True, gc=False):
    """A message nobody stores."""

    subject: str
    payload: bytes
    reply: str


class Bus(Protocol):
    """Fire-and-forget messages: heartbeats, roll calls, progress. May lose any of them."""

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """Send once; `Unavailable` while disconnected. Subjects are relative to the mesh."""

    def subscribe(
        self, subject: str, *, max_pending: int = 4096
    ) -> AbstractAsyncContextManager[AsyncIterator[BusMessage]]:
        """Listen from entering the context on; beyond `max_pending` the oldest are dropped."""

    def new_inbox(self) -> str:
        """A fresh reply subject, relative to the mesh, that only this connection listens on."""


class Blobs(Protocol):
    """Bytes by their BLAKE3 digest (`blake3:<hex>`).

    Where a reader may see some jobs only, `job` (kind and id) names one that reads or wrote the
    blob: that is what admits it. Elsewhere it says nothing.
    """

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:
        """Store a stream of chunks; `Corrupt` if they do not hash to `digest`. Idempotent."""

    def get(
        self, digest: str, *, job: tuple[str, str] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream a blob; `Rejected(reason="no_blob")` if absent, `Corrupt` on a bad digest."""

    async def has(self, digest: str, *, job: tuple[str, str] | None = None) -> bool:
        """Whether the blob is stored whole."""

    async def remove(self, digest: str) -> None:
        """Forget a blob; no error if absent."""


class EngineInfo(Struct, frozen=True):
    """What a person wants to know about the engine before trusting it."""

    name: str
    version: str
    durability: Literal["always", "interval", "none", "unknown"]
    """`always` = every acknowledgement was synced to disk first."""
    replicas: int
    warnings: tuple[str, ...] = ()


class Engine(Protocol):
    """One node's connection to one mesh."""

    @property
    def log(self) -> OpLog:
        """The mesh's log."""

    @property
    def leases(self) -> Leases:
        """Keys with an end."""

    @property
    def bus(self) -> Bus:
        """Messages nobody stores."""

    @property
    def blobs(self) -> Blobs:
        """Bytes by digest."""

    async def info(self) -> EngineInfo:
        """Ask the engine about itself."""

    @property
    def connected(self) -> bool:
        """Whether the engine can be reached right now."""

    @property
    def reconnects(self) -> int:
        """How often it could be reached again after it could not."""

    async def close(self) -> None:
        """Let go of the connection; safe twice."""


class LoginIssuer(Protocol):
    """The engine's own permissions: the second wall, in the hands of the gate (spec §6).

    Users are named by the public half of an engine key that never leaves its machine. A login is
    a text that only the holder of that key can use.
    """

    def admit(
        self, user: str, scope: Scope, queues: Sequence[str], *, name: str, now_s: int
    ) -> str:
        """A login for what the scope admits, until its end."""

    def admit_door(self, user: str, now_s: int) -> str:
        """A login that can only ask the gate for another one."""

    def is_signed_by(self, user: str, payload_type: str, payload: bytes, signature: bytes) -> bool:
        """Whether the key of this user signed this, encoded as in `core.record.signing`."""

    async def expel(self, users: Iterable[str], now_s: int) -> None:
        """End every login that these users were given so far, and their connections with them."""

    async def make_queues(self, queues: Mapping[str, str]) -> None:
        """Make sure that these queues are there: by name, the one subject filter of each."""


class WallClock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, as this machine believes them to be."""

    def boot_s(self) -> float:
        """Seconds on a clock that never steps and keeps running in suspend."""


class Entropy(Protocol):
    """Where chance comes from."""

    def random(self) -> float:
        """Uniform in [0, 1)."""

    def token(self, size: int) -> bytes:
        """Unpredictable bytes."""


class Keyring(Protocol):
    """Holds one private key and never shows it."""

    @property
    def did(self) -> str:
        """The did:key of the public half: the node's id."""

    def sign(self, payload_type: str, payload: bytes) -> bytes:
        """An Ed25519 signature over the DSSE pre-authentication encoding."""

    def delegate(self, payload: Payload) -> Delegation:
        """Sign a delegation whose issuer is this key. No other bare bytes are ever signed."""
