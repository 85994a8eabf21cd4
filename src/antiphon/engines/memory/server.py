"""The server that several memory engines share: all meshes' state, and the power switch.

Everything is in one process and one event loop, and time comes from the clock that is passed in
and from the loop's own timers. So a run is a function of the calls made, the clock and the
faults: a simulator with a virtual loop replays it from a seed.

`kill` and `start` are a crash of a server that syncs every write: connections break, what is
stored stays. `snapshot`, `restore` and `truncate` are the disk that does not keep its promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from antiphon.core.record import subjects
from antiphon.engines.memory.blobs import BlobStore
from antiphon.engines.memory.bus import BusStore
from antiphon.engines.memory.connection import Reach
from antiphon.engines.memory.filters import Shape, SubjectFilter
from antiphon.engines.memory.leases import LeaseStore, Rows
from antiphon.engines.memory.log import LogImage, LogStore
from antiphon.engines.memory.messages import MessageRegisters, MessageRows
from antiphon.engines.memory.queues import QueueStore
from antiphon.errors import Misconfigured
from antiphon.ports import NANOSECONDS_PER_MS, Record, WallClock

DEDUPE_WINDOW_S = 120.0
"""How long a message id is remembered: JetStream's default."""
LOAN_S = 30.0
"""How long a delivery is lent: JetStream's default."""


class Follower(Protocol):
    """Is told of committed records."""

    def notice(self, record: Record) -> None:
        """A record was committed."""

    def rewound(self) -> None:
        """The log was replaced by another copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshImage:
    """What would be on disk of one mesh."""

    log: LogImage
    queues: dict[str, tuple[str, float, int, list[tuple[int, int]]]]
    leases: tuple[int, Rows]
    messages: tuple[int, MessageRows]
    blobs: BlobStore


class MeshState:
    """One mesh on the server."""

    def __init__(self, mesh: str, *, server: MemoryServer) -> None:
        self.log = LogStore(
            subjects.root(mesh),
            now_ns=server.now_ns,
            window_s=server.dedupe_window_s,
        )
        self.log.announce = self._announce
        self.leases = LeaseStore(now_ms=server.clock.now_ms, created_ns=server.now_ns())
        self.messages = MessageRegisters(now_ms=server.clock.now_ms)
        self.blobs: BlobStore = {}
        self.bus = BusStore()
        self.followers: dict[Follower, None] = {}
        self._reach = server.reach
        self._queues: dict[str, QueueStore] = {}
        self._queues_by_head: dict[str, list[QueueStore]] = {}
        self._other_queues: list[QueueStore] = []

    def queue(self, name: str, subject: str, loan_s: float) -> QueueStore:
        """The queue of that name, made from the first record on if it is new."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._new_queue(name, SubjectFilter(subject), loan_s)
        elif queue.wanted.pattern != subject:
            raise Misconfigured(
                f"queue {name} is over {queue.wanted.pattern}, not {subject}",
                hint="give each filter its own queue name",
            )
        return queue

    def hand_out(self) -> None:
        """Check all queues again, after the server came back."""
        for queue in self._queues.values():
            queue.hand_out()

    def truncate(self, after_seq: int) -> None:
        """Lose the end of the log."""
        self.log.truncate(after_seq)
        for queue in self._queues.values():
            queue.shorten()
        for follower in list(self.followers):
            follower.rewound()

    def image(self) -> MeshImage:
        """A copy of everything that a disk would hold."""
        queues = {
            name: (queue.wanted.pattern, queue.loan_s, *queue.image())
            for name, queue in self._queues.items()
        }
        return MeshImage(
            log=self.log.image(),
            queues=queues,
            leases=self.leases.image(),
            messages=self.messages.image(),
            blobs=self.blobs.copy(),
        )

    def load(self, image: MeshImage) -> None:
        """Restore an image. Queues made since then start again."""
        self.log.load(image.log)
        self.leases.load(image.leases)
        self.messages.load(image.messages)
        self.blobs.clear()
        self.blobs.update(image.blobs)
        for name, (pattern, loan_s, _, _) in image.queues.items():
            self.queue(name, pattern, loan_s)
        for name, queue in self._queues.items():
            _, _, cursor, unsettled = image.queues.get(name, ("", 0.0, 0, []))
            queue.load((cursor, unsettled))
        for follower in list(self.followers):
            follower.rewound()
        self.hand_out()

    def _new_queue(self, name: str, wanted: SubjectFilter, loan_s: float) -> QueueStore:
        def is_up() -> bool:
            return self._reach.is_up

        queue = QueueStore(wanted, log=self.log, loan_s=loan_s, is_up=is_up)
        self._queues[name] = queue
        if wanted.shape is Shape.HEAD:
            self._queues_by_head.setdefault(wanted.key, []).append(queue)
        else:
            self._other_queues.append(queue)
        return queue

    def _announce(self, record: Record, head: str) -> None:
        for queue in self._queues_by_head.get(head, ()):
            queue.hand_out()
        for queue in self._other_queues:
            if queue.wanted.selects(record.subject):
                queue.hand_out()
        for follower in self.followers:
            follower.notice(record)


class MemoryServer:
    """Shared state of every mesh on it. Belongs to one event loop."""

    def __init__(
        self,
        clock: WallClock,
        *,
        dedupe_window_s: float = DEDUPE_WINDOW_S,
    ) -> None:
        self.clock = clock
        self.dedupe_window_s = dedupe_window_s
        self.reach = Reach()
        self.now_ns: Callable[[], int] = getattr(clock, "now_ns", self._now_ns)
        """The clock's own nanoseconds where it has them."""
        self._meshes: dict[str, MeshState] = {}

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.reach.is_up

    def mesh(self, mesh: str, *, create: bool = False) -> MeshState:
        """One mesh's state, created on first use."""
        state = self._meshes.get(mesh)
        if state is None:
            if not create:
                raise Misconfigured(f"the engine has no mesh {mesh!r}", hint="create it first")
            state = self._meshes[mesh] = MeshState(mesh, server=self)
        return state

    def kill(self) -> None:
        """Stop at once: every connection is lost, the outcome of what was in flight is unknown."""
        self.reach.switch(is_up=False)

    def start(self) -> None:
        """Come back with everything that was stored."""
        self.reach.switch(is_up=True)
        for state in self._meshes.values():
            state.hand_out()

    def snapshot(self) -> dict[str, MeshImage]:
        """A copy of everything that a disk would hold."""
        return {mesh: state.image() for mesh, state in self._meshes.items()}

    def restore(self, images: dict[str, MeshImage]) -> None:
        """Put an older copy back. Meshes that it lacks stay as they are."""
        for mesh, image in images.items():
            self.mesh(mesh, create=True).load(image)

    def truncate(self, mesh: str, after_seq: int) -> None:
        """Lose the end of one mesh's log, as an engine that acknowledged before it synced."""
        self.mesh(mesh).truncate(after_seq)

    def _now_ns(self) -> int:
        return self.clock.now_ms() * NANOSECONDS_PER_MS
