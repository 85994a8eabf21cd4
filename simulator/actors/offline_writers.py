"""An offline machine as a guest in a simulated cluster: what it writes waits in an outbox first.

A traveller writes documents whenever it likes, with or without a connection, and every value goes
through its outbox, on a disk that outlives the machine's crashes. Now and then it tries to send
what waits, and is told how each item ended. What it was told must be so.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from antiphon.core.authority.memory_rights import MEMORY as MEMORY_RIGHT
from antiphon.core.families.memory import MEMORY
from antiphon.core.families.memory.ops import Inline, Strategy
from antiphon.core.families.memory.state import Document
from antiphon.core.families.memory.writing import Wanted
from antiphon.errors import Unavailable
from antiphon.runtime.memory.documents import Documents
from antiphon.runtime.outbox.outbox_item import OutboxItem, Put
from antiphon.runtime.outbox.outbox_sender import OutboxSender
from antiphon.runtime.outbox.outbox_store import OutboxStore
from simulator.actors.document_writers import SPACE, home
from simulator.actors.guests import Guest
from simulator.actors.machines import Machine

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.testing.host_clock import HostClock
    from simulator.checks.law_state import Committed, LaneFacts, LawState
    from simulator.checks.plain_record import PlainRecord
    from simulator.cluster import Cluster

KEYS: Final = ("luggage", "diary", "route", "letters")
WRITES_S: Final = (1.0, 15.0)
SENDS_S: Final = (1.0, 30.0)
STRATEGIES: Final[tuple[Strategy, ...]] = ("remote", "local", "defer")
MOST_WAITING: Final = 12
ROOMS: Final = Path("/dev/shm")  # noqa: S108 - memory-backed where there is such a thing


class WrittenOnce:
    """A law with a memory of its own: no value that waited takes effect twice."""

    __name__ = "written_once"

    def __init__(self) -> None:
        """Nothing is written."""
        self.accepted: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        """How items ended, by state."""

    def __call__(
        self, _ledger: LawState, _lane: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """What is wrong with one put that took effect."""
        if not now.took_effect or fact.body["key"] not in KEYS:
            return
        value = fact.body["value"]["text"]
        self.accepted[value] += 1
        if self.accepted[value] > 1:
            yield f"the value {value} of {fact.body['key']} was written twice"


class OfflineMachine(Machine):
    """Writes documents through an outbox."""

    needs = (MEMORY_RIGHT,)

    def __init__(self, cluster: Cluster, clock: HostClock, law: WrittenOnce) -> None:
        """Its disk is empty."""
        super().__init__(cluster, "traveller", clock=clock)
        self._chance = random.Random(f"{cluster.seed}/traveller")
        disk = tempfile.mkdtemp(dir=ROOMS if ROOMS.is_dir() else None)
        weakref.finalize(self, shutil.rmtree, disk, ignore_errors=True)
        self._store = OutboxStore(Path(disk))
        self._law = law
        self._promised: dict[str, str] = {}
        """Values that wait, with the key that signs them."""
        self._number = 0
        self._is_ending = False

    def come_to_rest(self) -> None:
        """Write no more; send what waits."""
        self._is_ending = True

    @property
    def is_at_rest(self) -> bool:
        """Whether the outbox has drained, and every promise has had its end."""
        return not self._promised and not self._store.has_items

    async def run(self) -> None:
        """Write and send, until the machine is killed."""
        session = self.connect()
        self._give_up_on_other_keys(session.author.did)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write(session))
            tasks.create_task(self._send(session))

    def _give_up_on_other_keys(self, did: str) -> None:
        """A machine that lost its key cannot send what that was to sign: a person drops it."""
        for one in self._store.items():
            if one.author != did:
                self._store.remove(one)
        self._promised = {value: by for value, by in self._promised.items() if by == did}

    # --- writing ------------------------------------------------------------------------------

    async def _write(self, session: Session) -> None:
        seen: dict[str, int] = dict.fromkeys(KEYS, 0)
        documents = Documents(session)
        while not self._is_ending:
            await asyncio.sleep(self._chance.uniform(*WRITES_S))
            key = self._chance.choice(KEYS)
            if self._chance.random() < 0.5:
                try:
                    known: Document | None = await documents.read(SPACE, key)
                    seen[key] = known.revision if known is not None else 0
                except Unavailable:
                    pass  # it goes on from what it knew
            waiting = self._store.items()
            if len(waiting) < MOST_WAITING and not any(_key_of(one) == key for one in waiting):
                self._keep(session, key, seen[key])

    def _keep(self, session: Session, key: str, base: int) -> None:
        self._number += 1
        value = str(self._number)
        wanted = Wanted(
            space=SPACE,
            key=key,
            agent="main",
            value=Inline(text=value),
            base=base,
            strategy=self._chance.choice(STRATEGIES),
        )
        try:
            hlc = session.author.tick()
        except Unavailable:
            return  # its clock is ahead: nothing was promised
        did, at_ms = session.author.did, session.wall.now_ms()
        self._store.put(OutboxItem(what=Put(wanted), author=did, hlc=(hlc[0], hlc[1]), at_ms=at_ms))
        self._promised[value] = did

    # --- sending ------------------------------------------------------------------------------

    async def _send(self, session: Session) -> None:
        sender = OutboxSender(self._store, session, deliver=_never, archived=_never)
        while True:
            await asyncio.sleep(self._chance.uniform(*SENDS_S))
            lock = self._store.lock()
            try:
                await sender.send()
            except Unavailable:
                continue
            finally:
                lock.release()
                self._hear()

    def _hear(self) -> None:
        """Be told how items ended; what waits for a person is sent again."""
        referee = self.cluster.referee
        for one in self._store.items():
            if not isinstance(one.what, Put) or one.is_tentative:
                continue
            value = _value_of(one)
            is_there = self._law.accepted[value] > 0
            if one.state == "held" and not is_there:
                referee.accuse("held_is_there", f"the value {value} was told as held")
            if one.state == "dropped" and is_there:
                referee.accuse("dropped_is_not_there", f"the value {value}: {one.why}")
            self._law.told[one.state] += 1
            self._promised.pop(value, None)
            self._store.remove(one)
        left = {_value_of(one) for one in self._store.items()}
        for value in [one for one in self._promised if one not in left]:
            del self._promised[value]
            referee.accuse("kept_until_told", f"nobody was told what became of the value {value}")


def _key_of(item: OutboxItem) -> str:
    return item.what.wanted.key if isinstance(item.what, Put) else ""


def _value_of(item: OutboxItem) -> str:
    stored = item.what.wanted.value if isinstance(item.what, Put) else None
    return stored.text if isinstance(stored, Inline) else ""


async def _never(*_: object) -> NoReturn:
    raise TypeError("a traveller writes documents and nothing else")


def offline_as_guest() -> tuple[Guest, WrittenOnce]:
    """The guest, and the law that watches it."""
    law = WrittenOnce()
    guest = Guest(
        family=MEMORY,
        prefix="memory",
        home=home,
        laws=(law,),
        machine=lambda cluster, clock: OfflineMachine(cluster, clock, law),
    )
    return guest, law
