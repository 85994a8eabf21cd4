"""Which other workers of a kind are online: signed messages on the bus (spec §8, §10).

Each worker of a kind publishes every few seconds, and soon after a change, who it is and how many
slots it has free, with the jobs that it took, ended or gave back since. So one message is both a
heartbeat and a claim broadcast, and every worker that claims becomes known by it (G6).

A message (`worker_messages.py`) is signed and counts once: nobody can invent another worker, or
replay a message. But it proves nothing, and nothing on the log depends on it. A worker that
believes a false one waits a little, and reads the log.

Heartbeats (`roll_call`) are another matter: one of each node for everybody, every six seconds,
about what it is. These are for the workers of one kind alone, tell of jobs, and come at once.

Everything is bounded: known workers, jobs in one message, messages per second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.bus.signed_message import Message, Refused
from antiphon.core.bus.subjects import WORK
from antiphon.core.clock import hlc
from antiphon.core.policy import selection
from antiphon.core.policy.selection import Candidate, Labels, Need, Weight
from antiphon.errors import Rejected, Unavailable
from antiphon.runtime.presence.worker_messages import (
    AGE_MS,
    MAX_MENTIONED,
    WORKER_MESSAGES,
    Mention,
    ReturnedJob,
    WorkerMessage,
)
from antiphon.runtime.rights_cache import RightsCache
from antiphon.runtime.services import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.core.record.verdict import Verdict
    from antiphon.runtime.log.session import Session

BEAT_S: Final = 3.0
"""Between two messages of a node that has nothing new to report, plus or minus a quarter."""
ALIVE_S: Final = 10.0
"""How long after its last message a node counts as online: three beats, and a little."""
SOONEST_S: Final = 0.1
"""The shortest time between two messages of one node."""
ANSWER_WITHIN_S: Final = 0.2
"""How soon a new worker's first message is answered, at most."""
MAX_KNOWN: Final = 1_024
MAX_UNSAID: Final = 4_096
MAX_HEARD: Final = 4_096
_FAULT_FOR_S: Final = 5.0


class Traits(Struct, frozen=True, kw_only=True):
    """A worker's labels and weight."""

    labels: Labels = ()
    weight: Weight = 1


class _Known(Struct):
    candidate: Candidate
    heard_s: float
    at_ms: int


class WorkerPresence:
    """The workers of one kind as one of them sees it, and its own messages to them."""

    def __init__(
        self, session: Session, kind: str, traits: Traits, free: Callable[[], int] = lambda: 0
    ) -> None:
        """Receives and sends nothing before `listening`; `point_to` works without.

        `free` returns this worker's own free slots, for each message that it sends.
        """
        self.session = session
        self.kind = kind
        self.traits = traits
        self.free = free
        self.listeners: list[Callable[[Message[WorkerMessage]], None]] = []
        self.revision = 0
        """Changes whenever the candidates may have changed."""
        self._known: dict[str, _Known] = {}
        self._faults = RightsCache(
            session, self._claim_fault, kept_s=_FAULT_FOR_S, most=2 * MAX_KNOWN
        )
        self._wallets: dict[str, ChainChoice] = {}
        self._unsaid: dict[str, dict[str, tuple[int, int]]] = {"took": {}, "ended": {}, "back": {}}
        self._said_ms = 0
        self._said_free = -1
        self._speak_by_s = 0.0
        self._wake = asyncio.Event()
        self._subject = WORK.at(kind=kind)
        self.is_silent = False
        """Whether it only sends messages about jobs that it was pointed to."""

    # --- life ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self, *, silently: bool = False) -> AsyncIterator[None]:
        """Take part while the block runs: announce this worker, listen, send, sign off.

        `silently`: only listen, and report on jobs that others pointed to.
        """
        heard = asyncio.Event()
        self.is_silent = silently
        async with beside(self._hear(heard), ready=heard):
            if silently:
                async with beside(self._keep_speaking()):
                    try:
                        yield
                    finally:
                        self.listeners.clear()
                return
            await self._say(is_new=True)
            # The others have answered by then: the first ranks should not assume a lone worker.
            await asyncio.sleep(ANSWER_WITHIN_S + SOONEST_S)
            async with beside(self._keep_speaking()):
                try:
                    yield
                finally:
                    self.listeners.clear()
            await self._say(is_away=True)

    async def _hear(self, ready: asyncio.Event) -> None:
        for attempt in _attempts():
            try:
                async with self.session.engine.bus.subscribe(
                    self._subject, max_pending=MAX_HEARD
                ) as words:
                    ready.set()
                    async for message in words:
                        self._note(message.payload)
            except Unavailable:
                ready.set()
                await self.session.pause(attempt)

    async def _keep_speaking(self) -> None:
        loop = asyncio.get_running_loop()
        self._speak_by_s = math.inf if self.is_silent else loop.time()
        while True:
            pause_s = self._speak_by_s - loop.time()
            if pause_s > 0:
                self._wake.clear()
                try:
                    async with asyncio.timeout(pause_s if pause_s < math.inf else None):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                continue
            beat_s = BEAT_S * (0.75 + self.session.entropy.random() / 2)
            self._speak_by_s = math.inf if self.is_silent else loop.time() + beat_s
            await self._say(is_away=self.is_silent)
            await asyncio.sleep(SOONEST_S)

    def _speak_within(self, most_s: float) -> None:
        by_s = asyncio.get_running_loop().time() + most_s
        if by_s < self._speak_by_s:
            self._speak_by_s = by_s
            self._wake.set()

    # --- sending ----------------------------------------------------------------------------------

    def took(self, job_id: str, call: int) -> None:
        """This worker is about to claim a job, or still holds it."""
        self._mention("took", job_id, call, 0)

    def ended(self, job_id: str, call: int) -> None:
        """This worker read the job's end."""
        self._mention("ended", job_id, call, 0)

    def returned(self, job_id: str, call: int, after_s: float) -> None:
        """This worker gives a job back."""
        self._mention("back", job_id, call, round(after_s * 1000))

    def _mention(self, how: str, job_id: str, call: int, after_ms: int) -> None:
        for other in self._unsaid.values():
            other.pop(job_id, None)
        if len(self._unsaid[how]) < MAX_UNSAID:
            self._unsaid[how][job_id] = (call, after_ms)
        self._speak_within(0.0)

    def changed(self) -> None:
        """This worker's free slots may have changed: send that soon if it did."""
        if not self.is_silent and (self.free() > 0) != (self._said_free > 0):
            self._speak_within(SOONEST_S)

    async def point_to(self, job_id: str, call: int) -> None:
        """Point other workers to an announcement. Works outside `listening`."""
        await self._say(calls=((job_id, call),), is_away=not self._is_a_candidate())

    def _is_a_candidate(self) -> bool:
        return bool(self.listeners) and not self.is_silent

    async def _say(
        self, *, is_new: bool = False, is_away: bool = False, calls: tuple[Mention, ...] = ()
    ) -> None:
        taken = {how: dict(_first(jobs)) for how, jobs in self._unsaid.items()}
        self._said_ms = hlc.rising(self._said_ms, self.session.wall.now_ms(), bearable_ms=AGE_MS)
        self._said_free = free = 0 if is_away else max(self.free(), 0)
        word = WorkerMessage(
            labels=self.traits.labels,
            weight=self.traits.weight,
            free=free,
            is_new=is_new,
            is_away=is_away,
            took=tuple((job, call) for job, (call, _) in taken["took"].items()),
            ended=tuple((job, call) for job, (call, _) in taken["ended"].items()),
            returned=tuple(ReturnedJob(job, *back) for job, back in taken["back"].items()),
            calls=calls,
        )
        me, where = (self.session.author.did, self.session.author.vouch), self._subject
        try:
            payload = WORKER_MESSAGES.sign(
                word, me, mesh=self.session.mesh, subject=where, at_ms=self._said_ms
            )
            await self.session.engine.bus.publish(where, payload)
        except (Unavailable, Rejected):
            return  # the mentions wait for the next message
        for how, jobs in taken.items():
            for job, what in jobs.items():
                if self._unsaid[how].get(job) == what:
                    del self._unsaid[how][job]
        if any(self._unsaid.values()):
            self._speak_within(SOONEST_S)

    # --- receiving --------------------------------------------------------------------------------

    def _note(self, payload: bytes) -> None:
        now_ms = self.session.wall.now_ms()
        message = WORKER_MESSAGES.open(
            payload, mesh=self.session.mesh, subject=self._subject, now_ms=now_ms
        )
        if isinstance(message, Refused) or message.author == self.session.author.did:
            return
        word, node = message.body, message.author
        known = self._known.get(node)
        if known is not None and message.at_ms <= known.at_ms:
            return  # a replay
        if self.fault_of(node) is not None and not word.calls:
            return
        if known is None and len(self._known) >= MAX_KNOWN and not self._forget_silent():
            return
        candidate = Candidate(
            did=node,
            kinds=(self.kind,),
            labels=word.labels,
            weight=word.weight,
            free=word.free,
            is_alive=not word.is_away,
        )
        if known is None or known.candidate != candidate:
            self.revision += 1
        self._known[node] = _Known(candidate, self.session.wall.boot_s(), message.at_ms)
        if word.is_new and not self.is_silent:
            self._speak_within(self.session.entropy.random() * ANSWER_WITHIN_S)
        for listener in self.listeners:
            listener(message)

    def _forget_silent(self) -> bool:
        now_s = self.session.wall.boot_s()
        gone = [did for did, one in self._known.items() if now_s - one.heard_s > ALIVE_S]
        for did in gone:
            del self._known[did]
        return bool(gone)

    # --- candidates -------------------------------------------------------------------------------

    @property
    def me(self) -> Candidate:
        """This worker as a candidate."""
        return Candidate(
            did=self.session.author.did,
            kinds=(self.kind,),
            labels=self.traits.labels,
            weight=self.traits.weight,
            free=max(self.free(), 0),
        )

    def others(self) -> Iterator[Candidate]:
        """The other workers that are online and may claim this kind, busy or not."""
        now_s = self.session.wall.boot_s()
        for did, one in self._known.items():
            is_there = one.candidate.is_alive and now_s - one.heard_s <= ALIVE_S
            if is_there and self.fault_of(did) is None:
                yield one.candidate

    def places(self, need: Need) -> tuple[int, int]:
        """How many workers should claim a job before this one: of those with room, and of all."""
        return selection.places(need, self.me, self.others(), now_ms=self.session.wall.now_ms())

    def fault_of(self, did: str) -> Verdict | None:
        """Why the log would reject a claim of this kind by that worker, as of a moment ago."""
        return self._faults.of(did)

    def _claim_fault(self, did: str) -> Verdict | None:
        if len(self._wallets) >= 2 * MAX_KNOWN:
            self._wallets.clear()
        return selection.claim_fault(
            self.session.control,
            self._wallets.setdefault(did, ChainChoice(did)),
            did=did,
            kind=self.kind,
            job_id="0" * 64,
            now_ms=self.session.wall.now_ms(),
        )


def _first(jobs: dict[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    return list(jobs.items())[:MAX_MENTIONED]


def _attempts() -> Iterator[int]:
    for attempt in range(2**31):
        yield min(attempt, 6)
