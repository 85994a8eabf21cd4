"""What a worker made of its jobs while it had no connection (`on_disconnect: continue`).

Artifacts of a run and its end are on disk before they are waited for, so they outlive the worker:
the next process with its key sends them. Those of one run are sent in their order. They are
accepted if nobody took over the job; if somebody did, nothing of the run counts.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec.structs import replace

from antiphon.core.families.jobs.run_artifacts import NONE, count_of
from antiphon.errors import AntiphonError, Held, Unavailable, is_away
from antiphon.runtime.outbox.lane_writes import form_of
from antiphon.runtime.outbox.outbox_item import Artifact, Complete, OfJob, OutboxItem, Yield
from antiphon.runtime.outbox.outbox_sender import OF_SESSION, RUN_DROPPED, OutboxSender
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from antiphon.core.families.jobs.ops import ArtifactBody
    from antiphon.core.families.jobs.state import Job
    from antiphon.ports import Blobs
    from antiphon.runtime.identity.key_files import FileLock
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.outbox.outbox_item import Part
    from antiphon.runtime.outbox.outbox_store import OutboxStore

    Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    Settling = asyncio.Future[OutboxItem]
    """Has an item once it does not wait any more."""

LONGEST_PAUSE: Final = 6
"""Doublings of the pause between two tries."""
LOOK_S: Final = 0.2
"""How often to look whether another process has stopped sending."""
SAID_AFTER_S: Final = 30.0
"""How long to wait for it without a word."""
LEFT_FREE: Final = 100
"""Items that artifacts leave room for: the ends of their runs, and what people write."""

log = LazyLogger(__name__)


class WorkerOutbox:
    """What one worker keeps in its machine's outbox, and the one task that sends it."""

    def __init__(self, store: OutboxStore, session: Session, blobs: Blobs | None = None) -> None:
        """Nothing is read yet. `blobs` is where artifacts are stored; None: with the engine."""
        self.store = store
        self._session = session
        self._blobs = blobs
        self._spawn: Spawn | None = None
        self._sending: asyncio.Task[None] | None = None
        self._open: dict[str, tuple[OutboxItem, Settling]] = {}

    def keep(self, what: Artifact | Complete | Yield, sent: Sequence[Draft]) -> Settling:
        """Keep something; it is on disk when this returns. `Unavailable` if there is no room.

        `sent` are the forms of it that may have been sent. The future has the item when it does
        not wait any more.
        """
        session = self._session
        if isinstance(what, Artifact):
            self.store.check_room(1 + LEFT_FREE)
        hlc = session.author.tick()
        item = OutboxItem(
            what=what,
            author=session.author.did,
            hlc=(hlc[0], hlc[1]),
            at_ms=session.wall.now_ms(),
            forms=tuple(map(form_of, sent)),
        )
        self.store.put(item)
        future: Settling = asyncio.get_running_loop().create_future()
        self._open[item.id] = item, future
        self._begin()
        return future

    async def bring(self, content: object) -> None:
        """Store what waits here of what some content names, which is written without an item.

        `Unavailable`: not all of it is stored.
        """
        for digest in self.store.blobs.touch(content):
            await self.store.blobs.send(digest, self._blobs or self._session.engine.blobs)

    # --- sending ------------------------------------------------------------------------------

    async def start(self, spawn: Spawn) -> None:
        """Send what an earlier process left, before this one takes jobs; go on in a task."""
        self._spawn = spawn
        with suppress(Unavailable):
            await self.send()
            if not self._left():
                return
        self._begin()

    def close(self) -> None:
        """Send no more; what waits is on disk."""
        self._spawn = None
        if self._sending is not None:
            self._sending.cancel()

    def _begin(self) -> None:
        if self._spawn is not None and (self._sending is None or self._sending.done()):
            self._sending = self._spawn(self._send_all())

    async def _send_all(self) -> None:
        """Send until nothing waits. An error must not end the task, whose group is the worker.

        What the session cannot go on with, its worker is told by its own reads.
        """
        attempt = 0
        while True:
            try:
                try:
                    await self.send()
                finally:
                    await self._tell()
                if not self._left():
                    return
            except OF_SESSION as problem:
                log.warning("outbox_stopped", problem=problem.message, hint=problem.hint)
                return
            except (AntiphonError, OSError) as problem:
                is_waiting = isinstance(problem, AntiphonError) and is_away(problem)
                tell = log.debug if is_waiting else log.warning
                tell("outbox_not_sent", problem=str(problem))
            await self._session.pause(attempt)
            attempt = min(attempt + 1, LONGEST_PAUSE)

    def _left(self) -> bool:
        did = self._session.author.did
        return bool(self._open) or any(
            one.state == "waiting" and one.author == did and isinstance(one.what, OfJob)
            for one in self.store.items()
        )

    def _ended(self, item: OutboxItem) -> None:
        """Say what became of an item. One that the mesh has is removed: its worker knows.

        The others are told to a person, too.
        """
        _, future = self._open.pop(item.id, (item, None))
        if future is None:
            return
        if not future.done():
            future.set_result(item)
        if item.state == "held":
            self.store.remove(item)

    async def _tell(self) -> None:
        """Say what became of items that this worker's sender did not end.

        What comes after one that a person has to decide about is not waited for.
        """
        asking = {one.part_of() for one in self.store.items() if one.state == "asks"}
        dropped: set[Part | None] = set()
        for item, _ in list(self._open.values()):
            found = self.store.reread(item)
            if found is None and item.part_of() in dropped:
                found = replace(item, state="dropped", why=RUN_DROPPED)
            elif found is None:
                found = await self._gone(item)
            elif found.state == "waiting" and item.part_of() in asking:
                found = replace(found, state="asks", why="what the run made before waits for you")
            elif found.state == "waiting":
                continue
            if found.state == "dropped":
                dropped.add(item.part_of())
            self._ended(found)

    async def _gone(self, item: OutboxItem) -> OutboxItem:
        """What became of an item without a file: the log has it, or a person dropped it.

        Another sender of this process may have sent it, and a person been told.
        """
        what = item.what
        if not isinstance(what, OfJob):
            raise TypeError("a worker keeps what its jobs made and nothing else")
        view = await self._session.read(what.lane)
        for one in view.history:
            op = one.opened.op
            if one.verdict.is_accepted and op is not None and op.body == what.body:
                return replace(item, state="held", seq=one.opened.seq)
        return replace(item, state="dropped", why="somebody removed it")

    async def send(self) -> None:
        """Send what this worker's key has kept; `Unavailable` if the mesh cannot be reached."""
        if not self.store.has_items:
            return
        lock = await self._lock()
        try:
            sender = OutboxSender(
                self.store,
                self._session,
                deliver=_nothing_else,
                archived=_nothing_else,
                takes=lambda one: isinstance(one.what, OfJob),
                blobs=self._blobs,
            )
            sender.ended = self._ended
            await sender.send()
        finally:
            lock.release()

    async def _lock(self) -> FileLock:
        """The right to change items, once no other process has it."""
        waited_s = 0.0
        while True:
            try:
                return self.store.lock()
            except Held as held:
                if waited_s < SAID_AFTER_S <= waited_s + LOOK_S:
                    log.warning("outbox_waits_for_another_process", problem=held.message)
                waited_s += LOOK_S
                await asyncio.sleep(LOOK_S)


class RunOutbox:
    """What one run keeps: its artifacts, and after them its end.

    Once something waits, all that the run makes waits behind it, until the mesh has it.
    """

    def __init__(self, outbox: WorkerOutbox, lost: Callable[[str], None]) -> None:
        """Nothing is kept. `lost` is called with the reason if something was dropped."""
        self._outbox = outbox
        self._lost = lost
        self._kept: list[Settling] = []
        self._numbers: dict[str, int] = {}
        self._text_bytes = 0

    def number(self, job: Job, sort: str) -> int:
        """The number of the next artifact, behind those that wait."""
        return max(count_of(job, sort), self._numbers.get(sort, 0))

    def text_bytes(self, job: Job) -> int:
        """What the values of artifacts in records take up, of those that wait, too."""
        return max((job.artifacts or NONE).text_bytes, self._text_bytes)

    @property
    def is_waiting(self) -> bool:
        """Whether something of the run waits."""
        self._kept = [one for one in self._kept if not _is_held(one)]
        return bool(self._kept)

    def must_wait(self, content: object) -> bool:
        """Whether some content has to go behind what waits: records of the run, or its blobs."""
        return self.is_waiting or bool(self._outbox.store.blobs.waiting(content))

    def touch(self, content: object) -> None:
        """Keep what waits of what some content names, until that is written."""
        self._outbox.store.blobs.touch(content)

    async def bring(self, content: object) -> None:
        """See `WorkerOutbox.bring`."""
        await self._outbox.bring(content)

    def brought(self, content: object) -> None:
        """The content is on the log: what it names does not wait here for it any more."""
        with suppress(Unavailable):  # the disk refuses: it goes later, as whatever nothing names
            self._outbox.store.forget_blobs(content)

    def keep_artifact(self, job: Job, body: ArtifactBody, sent: Sequence[Draft]) -> None:
        """Keep an artifact; `Unavailable` if there is no room."""
        text_bytes = self.text_bytes(job) + len((body.value or "").encode())
        kept = self._outbox.keep(Artifact(body), sent)
        kept.add_done_callback(self._ended)
        if not self._kept:
            log.info("artifacts_wait", job=job.id, kind=job.kind, hint="antiphon outbox")
        self._kept.append(kept)
        self._numbers[body.as_] = body.n + 1
        self._text_bytes = text_bytes

    def keep_end(self, what: Complete | Yield, sent: Sequence[Draft]) -> Settling:
        """Keep the run's end, behind its artifacts."""
        return self._outbox.keep(what, sent)

    def _ended(self, kept: Settling) -> None:
        if not kept.cancelled() and kept.result().state == "dropped":
            self._lost(kept.result().why)


def _is_held(kept: Settling) -> bool:
    return kept.done() and not kept.cancelled() and kept.result().state == "held"


async def _nothing_else(*_: object) -> NoReturn:
    raise TypeError("a worker sends what its jobs made and nothing else")
