"""Ports: everything that the runtime needs from an engine and a host, as Python protocols.

The runtime uses these protocols only. `antiphon.engines.memory` is the executable reference;
`antiphon.engines.nats` is durable. Both pass `antiphon.testing.engine_suite`.

Rules for every implementation:

- Sequences start at 1, rise by one for each stored record, and are never reused.
- A record never changes once it has a sequence. Its commit time is the same for every reader.
- A write ends in one of five ways: a sequence, `LostRace`, `IdTaken`, `OutcomeUnknown`, or
  `Rejected` if the engine can never store it (too large, or for another mesh).
  `Unavailable` is raised only if it is certain that nothing was stored.
- Every iterator and queue is bounded; the caller bounds every wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from antiphon.core.authority.scope import Scope
from antiphon.core.ucan import Delegation, Payload
from antiphon.errors import AntiphonError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from antiphon.core.archive.checkpoint import Checkpoint

NANOSECONDS_PER_MS = 1_000_000
SUBJECTS_AT_ONCE = 500
"""Literal subjects of one read: what a gate takes from a member in one request."""
APPENDS_AT_ONCE = 256
"""Records of one `append_many`: few enough to be answered in time by a slow disk."""
LANES_AT_ONCE = 100
"""Lanes of one read: a job's has five subjects."""


class Record(Struct, frozen=True, gc=False):
    """One stored record of the log: what every reader sees, byte for byte."""

    seq: int
    stamp_ns: int
    """The engine's commit time in nanoseconds since the Unix epoch."""
    subject: str
    payload: bytes

    @property
    def commit_ms(self) -> int:
        """The commit time in whole milliseconds, rounded down (spec §4.2)."""
        return self.stamp_ns // NANOSECONDS_PER_MS


class Append(Struct, frozen=True, gc=False):
    """A record to be stored, as `OpLog.append` has it."""

    subject: str
    payload: bytes
    message_id: str
    expected_last: int


class Page(Struct, frozen=True, gc=False):
    """Records in sequence order, and whether there are more after them."""

    records: list[Record]
    more: bool


class Delivery(Protocol):
    """One job announcement, delivered to this worker until it is settled or times out.

    Settling proves nothing (spec §8): the engine does not fence acknowledgements, so a late one
    takes the announcement away from the worker that has it now. All three methods are
    fire-and-forget, safe twice and safe after a disconnect.
    """

    @property
    def record(self) -> Record:
        """The schedule or offer that announced the job."""

    @property
    def deliveries(self) -> int:
        """How often the engine delivered this record, including this time: 1 = first time."""

    def ack(self) -> None:
        """The job is known to have ended: never deliver it again."""

    def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it to any worker (perhaps this one again), not before `delay_s`."""

    def in_progress(self) -> None:
        """Keep the delivery; must be called more often than every `WorkQueue.loan_s`."""


class WorkQueue(Protocol):
    """One shared, durable queue of announcements for one subject filter.

    Flow control is by credit: an announcement arrives only against a credit, so a worker never
    holds more than it has room for. Credits survive reconnects and idle time; after a reconnect
    the engine may deliver a few more than were granted.
    """

    @property
    def loan_s(self) -> float:
        """Seconds after which an unsettled delivery goes to someone else."""

    @property
    def credits(self) -> int:
        """Credits granted and not yet used by a delivery that `next` returned."""

    @property
    def is_dry(self) -> bool:
        """Whether the engine reported an empty queue and has delivered nothing since."""

    def watch(self, told: Callable[[], None]) -> None:
        """Call `told` whenever `is_dry` may have become true. One watcher; it must not wait."""

    def grant(self, count: int) -> None:
        """Allow `count` more deliveries, and ask for them."""

    def ask(self) -> None:
        """Make the engine deliver, or report an empty queue. It may deliver one too many."""

    def revoke_credits(self) -> None:
        """Ask for nothing more (drain). Deliveries already on their way may still arrive."""

    async def next(self) -> Delivery:
        """Wait for the next delivery. Cancel it to stop waiting; nothing is lost."""

    def next_now(self) -> Delivery | None:
        """A delivery that has arrived already; None if `next` would have to wait, or may have to.

        Whoever took one with `next` gets with this what arrived together with it.
        """

    async def close(self) -> None:
        """Stop asking; return deliveries that `next` has not handed over."""


Told = Callable[[str, bytes], None]
"""Called with a record's subject and payload; with neither where some may have been missed."""


class Hints(Protocol):
    """Tells what is written on some subjects, soon after it is: cheap, and nothing to rely on.

    Any hint may be missing, and any may be untrue. Read what it is about, and look now and then
    without one.
    """

    def add(self, pattern: str) -> bool:
        """Listen on one subject or filter; whether the engine lets this connection hear it."""

    def remove(self, pattern: str) -> None:
        """No longer listen on it; no error if nobody does."""

    def check(self) -> None:
        """`Unavailable` once the connection is closed and there will be no more hints."""


class OpLog(Protocol):
    """The one replicated log of a mesh."""

    @property
    def reads(self) -> tuple[str, ...]:
        """What it may read, as subject filters relative to the mesh; `>` alone: every record.

        This can change when the connection gets another login.
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
        engine is unreachable and nothing was stored. A purge sets a subject back to 0.
        """

    async def append_many(
        self, records: Sequence[Append], *, timeout_s: float = 5.0
    ) -> list[int | AntiphonError]:
        """Store several records, each as `append` does, sent together and answered together.

        Returns for each, in their order, its sequence, or the error that `append` would raise.
        They are independent of one another: any may be stored and any not, in any order. At most
        `APPENDS_AT_ONCE`.
        """

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """Records with a sequence above `after` whose subject matches, oldest first.

        May lag behind the newest commit if the engine has several replicas. A page may be
        shorter than `limit`: `more` says whether there is another.
        """

    def read_lane(self, filters: Sequence[str], *, after: int = 0) -> AsyncIterator[list[Record]]:
        """Every record above `after` on the given subjects, oldest first.

        The records as of one moment, in pages of bounded size, none of them empty: a hostile
        member can make a lane long. `Unavailable` if a replica of the log does not have all
        records of that moment.
        """

    async def read_lanes(self, lanes: Sequence[Sequence[str]]) -> list[list[Record] | None]:
        """Several lanes, each by its literal subjects, in a few reads however many they are.

        Each as `read_lane` has it, and None for one that is too long for that: read it alone. At
        most `LANES_AT_ONCE`.
        """

    async def newest(self, subjects: Sequence[str]) -> list[Record]:
        """The newest record on each of these literal subjects that has any, in one read.

        At most `SUBJECTS_AT_ONCE`. May lag behind the newest commit, like `read`.
        """

    def hints(self, told: Told) -> AbstractContextManager[Hints]:
        """Hints about the log until the context ends. `told` must not wait."""

    async def confirm(self, subject: str, *, after: int, upto: int) -> list[Record]:
        """Every matching record in (after, upto], from a replica that is known to have `upto`.

        Unlike `read` this never answers from a lagging replica: it raises `Unavailable`.
        When `after` is near the end, the cost does not depend on the length of the log.
        """

    async def fetch(self, seq: int, *, newest_on: str = "") -> Record | None:
        """The record with that sequence, or None if there is none.

        `newest_on` may name a subject whose newest record it probably is: an engine can answer
        many such requests with one read.
        """

    async def fetch_many(self, seqs: Sequence[int]) -> list[Record]:
        """The records at these existing sequences: one read, however many they are.

        Never stale, like `confirm`: a record that is not in the result is gone, or out of scope.
        """

    async def last(self) -> Record | None:
        """The newest record, or None on an empty log."""

    async def reaches(self, seq: int) -> bool:
        """Whether the log holds that sequence or a later one.

        Never stale: where a copy may lag behind, its leader answers.
        """

    def follow(
        self, after: int, *, subject: str = ">", max_batch: int = 512
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Record]]]:
        """Matching records above `after`, without end, oldest first, each once, none missing.

        Yields non-empty batches as they are committed. It recovers by itself from lost
        notifications, reconnects and engine restarts. Raises `Corrupt` if the log is shorter
        than what was already yielded or than `after`, or if the last yielded record has
        changed. A log that was replaced before anything was yielded cannot be recognised: the
        caller that passes `after` must know which record was there.

        A follower of the whole log ends when `reads` changes: records that it could not read
        may precede its next one.
        """

    def work(self, subject: str, *, name: str) -> AbstractAsyncContextManager[WorkQueue]:
        """Join the shared queue `name` over one subject filter; create it if there is none.

        The same name with another filter is `Misconfigured`.
        """

    async def purge(self, subject: str, *, upto: int) -> int:
        """Remove matching records up to and including `upto`; return how many.

        Only the owner's archiver calls this. Sequences are not reused.
        """


class LeaseEntry(Struct, frozen=True, gc=False):
    """A key's present value. `revision` never repeats for a key within one bucket."""

    key: str
    value: bytes
    revision: int
    bucket_created_ns: int


class Leases(Protocol):
    """Small keys with an owner, a revision and an expiry.

    An engine may round `ttl_ms` up to whole seconds.
    """

    async def create(self, key: str, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """Take a key that is free, released or expired; `Held` if it is not."""

    async def renew(self, entry: LeaseEntry, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """Extend the expiry; `Held` if the key is no longer at `entry.revision`."""

    async def release(self, entry: LeaseEntry) -> None:
        """Free the key at once; does nothing if it is no longer at `entry.revision`."""

    async def get(self, key: str) -> LeaseEntry | None:
        """The live value, or None."""


class BusMessage(Struct, frozen=True, gc=False):
    """A message that is not stored."""

    subject: str
    payload: bytes
    reply: str


class Bus(Protocol):
    """Fire-and-forget messages: heartbeats, roll calls, progress. Any of them may be lost."""

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """Send once; `Unavailable` while disconnected. Subjects are relative to the mesh."""

    def subscribe(
        self, subject: str, *, max_pending: int = 4096
    ) -> AbstractAsyncContextManager[AsyncIterator[BusMessage]]:
        """Listen from entering the context on; beyond `max_pending` the oldest are dropped."""

    def new_inbox(self) -> str:
        """A fresh reply subject, relative to the mesh, that only this connection listens on."""

    @property
    def user(self) -> str:
        """The engine's name for whoever is connected: one token of a subject."""


class Blobs(Protocol):
    """Bytes by their BLAKE3 digest (`blake3:<hex>`).

    A reader that may see only some jobs names one that reads or wrote the blob as `job` (kind
    and id): that gives it access. Other readers leave it out.
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


class MessageNote(Struct, frozen=True, gc=False):
    """What is known of a register without reading its value."""

    key: str
    revision: int
    """Grows with every write anywhere in the store."""
    note: bytes
    """A few bytes about the value, which watchers are told."""


class MessageEntry(MessageNote, frozen=True, gc=False):
    """A register's present version."""

    value: bytes


MessageTold = Callable[[str, int, bytes], None]
"""Called with key, revision and note of a write; with an empty key where some were missed."""


class MessageStore(Protocol):
    """Durable registers: one per message, each changed by compare-and-set (spec §10).

    Only nodes with all permissions reach it; members ask the gate. Keys are whole tokens with dots
    between them.
    """

    async def write(
        self, key: str, value: bytes, *, note: bytes, expected: int, ttl_ms: int = 0
    ) -> int:
        """Replace the register that is at revision `expected` (0 = absent); its new revision.

        `LostRace` if it is at another one, `OutcomeUnknown` if no answer came. With `ttl_ms` the
        register is absent again after that time, rounded up to whole seconds.
        """

    async def get(self, key: str) -> MessageEntry | None:
        """The register, or None."""

    async def list(
        self, prefix: str, *, after: int = 0, limit: int = 512
    ) -> tuple[list[MessageNote], bool]:
        """Registers under a prefix with a revision above `after`, and whether there are more.

        Without their values: those can be many times as large. A page may have fewer than `limit`.
        A register that is written meanwhile may be in two pages, and is in one at least.
        """

    def watch(self, prefix: str, told: MessageTold) -> AbstractContextManager[None]:
        """Tell of writes under a prefix, in their order. `told` must not wait."""


class StoredMessage(Struct, frozen=True, array_like=True, gc=False):
    """A message of a stream, with everything that makes it the same when it is put back."""

    seq: int
    stamp_ns: int
    subject: str
    header: bytes
    """As its publisher sent it; empty if there was none."""
    payload: bytes


class StoredStream(Protocol):
    """A stream of the engine, read whole for a backup."""

    async def last(self) -> int:
        """The newest sequence that was given out; 0 if there is no such stream."""

    async def read(self, after: int, upto: int) -> list[StoredMessage]:
        """The next messages in (after, upto], oldest first; empty if there are no more."""


class StoredBlob(Struct, frozen=True, array_like=True, gc=False):
    """A blob that the engine has."""

    digest: str
    size: int
    by: str
    """The member that stored it, by its engine user; empty for the mesh's own nodes."""


class GateLine(Protocol):
    """A member's requests to its mesh's gate."""

    @property
    def user(self) -> str:
        """The engine user that asks; requests are signed for it."""

    async def ask(self, verb: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Ask and wait for the answer; `OutcomeUnknown` if none came."""


class EngineInfo(Struct, frozen=True):
    """What a person wants to know about an engine before relying on it."""

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
        """Keys that expire."""

    @property
    def bus(self) -> Bus:
        """Messages that are not stored."""

    @property
    def blobs(self) -> Blobs:
        """Bytes by digest."""

    @property
    def messages(self) -> MessageStore | None:
        """Registers of messages; None for a member, which asks the gate."""

    @property
    def gate(self) -> GateLine | None:
        """The way to the gate; None for a node that needs none."""

    async def info(self) -> EngineInfo:
        """Ask the engine about itself."""

    @property
    def connected(self) -> bool:
        """Whether the engine can be reached right now."""

    @property
    def paused_s(self) -> float:
        """How long to wait before the mesh may let this node in again; 0: it need not wait."""

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and came back."""

    async def close(self) -> None:
        """Close the connection; safe twice."""


class LoginIssuer(Protocol):
    """Server permissions: the gate issues logins that the engine enforces (spec §6).

    A user is named by the public half of an engine key that never leaves its machine. Only the
    holder of that key can use a login.
    """

    def admit(
        self, user: str, scope: Scope, queues: Sequence[str], *, name: str, now_s: int
    ) -> str:
        """A login for what the scope admits, until the scope ends."""

    def admit_refresh_key(self, user: str, now_s: int) -> str:
        """A login that can only ask the gate for a new login."""

    def is_signed_by(self, user: str, payload_type: str, payload: bytes, signature: bytes) -> bool:
        """Whether the key of this user signed this, encoded as in `core.record.signing`."""

    async def expel(self, users: Iterable[str], now_s: int) -> None:
        """Revoke every login issued to these users so far, and close their connections."""

    async def end_tickets(self, ends_s: Mapping[str, int], now_s: int) -> None:
        """The same for used tickets; by user, when the login of each ends by itself.

        However many tickets are used, members' logins can still be revoked.
        """

    async def make_queues(self, queues: Mapping[str, str]) -> None:
        """Make sure that these queues exist: name to subject filter."""


class WallClock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, by this machine's clock."""

    def boot_s(self) -> float:
        """Seconds on a clock that never steps and keeps running while the machine sleeps."""


class Entropy(Protocol):
    """Where randomness comes from."""

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
        """Sign a delegation that this key issues."""

    def sign_checkpoint(self, checkpoint: Checkpoint) -> bytes:
        """An Ed25519 signature over a checkpoint's text. No other bytes are signed without type."""
