"""Locks as guests in a simulated cluster: who takes them, and how they let go.

Three machines, four agents, two locks. An agent waits for a lock, works under it and releases it,
passes it to another agent, or forgets it. Now and then one polls instead of waiting, writes what
its own runtime would not (another's fence, an old one, a renewal for less time than is left), or
breaks a lock. When all faults have stopped, each takes each lock once more: that must not take
long.
"""

from __future__ import annotations

import asyncio
import base64
import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from blake3 import blake3

from antiphon.core.families.locks import LOCKS
from antiphon.core.families.locks.ops import (
    LockRelease,
    LockTake,
    ReleaseBody,
    Successor,
    TakeBody,
)
from antiphon.core.policy.locks.lock_time import fixed
from antiphon.core.record.ids import agent_address
from antiphon.errors import Conflict, Held, LockLost, Rejected, Unavailable
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.sdk.locks.lock import Lock
from simulator.actors.guests import Guest
from simulator.actors.machines import Machine
from simulator.locks.lock_laws import Holder, LockLedger, Worker

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.testing.host_clock import HostClock
    from simulator.cluster import Cluster

SCOPE: Final = "team.locks"
KEYS: Final = ("file", "deploy")
AGENTS: Final[dict[str, tuple[str, ...]]] = {
    "scribe-a": ("one", "two"),
    "scribe-b": ("three",),
    "scribe-c": ("four",),
}
TTL_MS: Final = 6_000
SHORT_TTL_MS: Final = 5_000
"""The shortest that the rules allow: just after a take, a renewal for less than is left."""
EVERY_S: Final = (0.5, 6.0)
WORK_S: Final = (0.5, 12.0)
POLL_S: Final = 0.4
POLLS: Final = 30
STEP_S: Final = 0.5
"""How often an agent stores something while it works."""
WAIT_S: Final = 120.0
PASSES: Final = 0.25
FORGETS: Final = 0.2
BREAKS: Final = 0.04
POLLING: Final = 0.35
CARELESS: Final = 0.2
SHORTENS: Final = 0.1
SERVED_S: Final = 90.0
"""A waiter has a lock within this time once nothing fails: every other agent may work before it,
may have forgotten one, and the last clocks that were wrong are right."""
AFTER_ALL: Final = (Conflict, Held, LockLost, Rejected, Unavailable)


class LockMachine(Machine):
    """Runs agents that take locks."""

    needs: ClassVar[tuple[str, ...]] = ("/lock",)

    def __init__(self, name: str, law: LockLedger, cluster: Cluster, clock: HostClock) -> None:
        """`law` hears what its agents do."""
        super().__init__(cluster, name, clock=clock)
        law.cluster = cluster
        self._law = law
        law.addresses += [partial(self._address, agent) for agent in AGENTS[name]]
        self._chance = random.Random(f"{cluster.seed}/{name}")
        self._chance_to_shorten = random.Random(f"{cluster.seed}/{name}/shorten")
        self._is_ending = False
        self._served: set[tuple[str, str]] = set()
        self._began_s = 0.0
        self.served_s = 0.0
        """The longest wait after all faults."""

    def _address(self, agent: str) -> str:
        return agent_address(self.keyring.did, agent)

    def come_to_rest(self) -> None:
        """Take each lock once more, and stop."""
        self._is_ending = True
        self._began_s = self.cluster.loop.time()

    @property
    def is_at_rest(self) -> bool:
        """Whether each of its agents has had each lock since."""
        return len(self._served) == len(AGENTS[self.name]) * len(KEYS)

    async def run(self) -> None:
        """Its agents, until it is killed or all is done."""
        session = self.connect()
        await session.sync_control()
        async with asyncio.TaskGroup() as tasks:
            for agent in AGENTS[self.name]:
                tasks.create_task(self._agent(session, agent))
                tasks.create_task(self._adopt(session, agent))

    def _lock(self, session: Session, agent: str, key: str, wait_s: float | None) -> Lock:
        time = fixed(TTL_MS)
        return Lock(LockLine(session, SCOPE, key, agent), lambda _: time, wait_s)

    async def _agent(self, session: Session, agent: str) -> None:
        while not self._is_ending:
            await asyncio.sleep(self._chance.uniform(*EVERY_S))
            key = self._chance.choice(KEYS)
            with suppress(*AFTER_ALL):
                await self._deed(session, agent, key)
        for key in KEYS:
            while (agent, key) not in self._served:
                with suppress(*AFTER_ALL):
                    async with self._lock(session, agent, key, None):
                        self._note_served(agent, key)
                    continue
                await asyncio.sleep(1.0)

    def _note_served(self, agent: str, key: str) -> None:
        self._served.add((agent, key))
        waited_s = self.cluster.loop.time() - self._began_s
        self.served_s = max(self.served_s, waited_s)
        if waited_s > len(KEYS) * SERVED_S:
            what = f"{agent} had {key} only {waited_s:.0f} s after the last fault"
            self.cluster.referee.accuse("waiters_served", what)

    async def _deed(self, session: Session, agent: str, key: str) -> None:
        draw = self._chance.random()
        if draw < BREAKS:
            line = LockLine(session, SCOPE, key, agent)
            await line.look()
            await line.break_hold(None)
            return
        if self._chance.random() < CARELESS:
            await self._careless(session, agent, key)
        is_polling = self._chance.random() < POLLING
        taking = self._polled if is_polling else self._waited
        lock = await taking(session, agent, key)
        if lock is None:
            return
        if self._chance_to_shorten.random() < SHORTENS:
            await self._shorten(session, lock, agent)
        draw = self._chance.random()
        if draw < FORGETS:
            await self._work(lock, agent)
            await _forget(lock)
            return
        async with lock:
            await self._work(lock, agent)
            if draw < FORGETS + PASSES:
                await lock.pass_to(self._chance.choice(self._law.addresses)())

    async def _waited(self, session: Session, agent: str, key: str) -> Lock | None:
        return await self._lock(session, agent, key, WAIT_S).take()

    async def _polled(self, session: Session, agent: str, key: str) -> Lock | None:
        """Somebody that tries and tries: at the very moment when a hold ends, and before it."""
        lock = self._lock(session, agent, key, 0)
        for _ in range(POLLS):
            with suppress(Held):
                return await lock.take()
            await asyncio.sleep(POLL_S)
        return None

    async def _work(self, lock: Lock, agent: str) -> None:
        """Store something now and then, as long as the lock is held."""
        until_s = self.cluster.loop.time() + self._chance.uniform(*WORK_S)
        holder = Holder(self.keyring.did, agent)
        one = Worker(holder, lock.key, lock.fence, lambda: lock.is_held)
        self._law.workers.append(one)
        try:
            while self.cluster.loop.time() < until_s and lock.is_held:
                if not self._law.store(lock.key, lock.fence, holder):
                    return
                await asyncio.sleep(STEP_S)
        finally:
            self._law.workers.remove(one)

    async def _adopt(self, session: Session, agent: str) -> None:
        """Go on with what was passed to this agent."""
        while not self._is_ending:
            await asyncio.sleep(self._chance.uniform(0.3, 2.0))
            for key in KEYS:
                hold = self._law.holds.get(key)
                if hold is None or hold.holder != Holder(session.author.did, agent):
                    continue
                if hold.fence in {one.fence for one in self._law.workers}:
                    continue
                with suppress(*AFTER_ALL):
                    lock = await self._lock(session, agent, key, 0).adopt()
                    async with lock:
                        await self._work(lock, agent)

    async def _shorten(self, session: Session, lock: Lock, agent: str) -> None:
        """Renew for less time than is left: a deadline does not go back."""
        line = LockLine(session, SCOPE, lock.key, agent)
        body = TakeBody(
            kind=SCOPE, key=lock.key, agent=agent, ttl_ms=SHORT_TTL_MS, fence=lock.fence
        )
        with suppress(*AFTER_ALL):
            await line.look()
            await write_one(session, Intent(LockTake, body, line.lane))

    async def _careless(self, session: Session, agent: str, key: str) -> None:
        """Write something about a lock that its runtime would not: nobody may accept it."""
        line = LockLine(session, SCOPE, key, agent)
        await line.look()
        known = [*self._law.fences.get(key, ())] or ["0" * 16]
        fence = self._chance.choice((known[-1], self._chance.choice(known)))
        to = Successor(node=session.author.did, agent=agent, ttl_ms=TTL_MS)
        take = TakeBody(kind=SCOPE, key=key, agent=agent, ttl_ms=TTL_MS)
        renew = TakeBody(kind=SCOPE, key=key, agent=agent, ttl_ms=TTL_MS, fence=fence)
        release = ReleaseBody(kind=SCOPE, key=key, agent=agent, fence=fence)
        steal = ReleaseBody(kind=SCOPE, key=key, agent=agent, fence=fence, pass_to=to)
        op, body = self._chance.choice(
            ((LockTake, take), (LockTake, renew), (LockRelease, release), (LockRelease, steal))
        )
        with suppress(Rejected):
            await write_one(session, Intent(op, body, line.lane))


async def _forget(lock: Lock) -> None:
    """Let go of a lock without a word, as a process does that is killed."""
    keeper = lock._keeper  # noqa: SLF001 - nothing that a program could do ends it
    if keeper is not None:
        keeper.cancel()
        await asyncio.wait([keeper])


def home(mesh: str, _type: str, body: dict[str, Any]) -> str:
    """Where an op about a lock belongs, spelled by hand."""
    name = base64.b32encode(blake3(body["key"].encode()).digest()[:15]).decode().lower()
    return f"ap.{mesh}.lock.{body['kind']}.{name}"


def locks_as_guests() -> tuple[list[Guest], LockLedger]:
    """The guests, and the ledger whose laws watch them."""
    law = LockLedger()
    guests = [
        Guest(
            family=LOCKS,
            prefix="lock",
            home=home,
            laws=law.laws,
            machine=partial(LockMachine, name, law),
        )
        for name in AGENTS
    ]
    return guests, law
