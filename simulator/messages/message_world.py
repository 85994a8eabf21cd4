"""A simulated mesh whose agents write to one another through gates that crash.

The real gate and core on the memory engine, in virtual time. Requests to the engine are delayed,
lost, doubled or answered too late; gates are killed in the middle of what they do, and others take
their place; agents are killed and opened again; the server is switched off and on. At the end
everything heals, and what the agents saw is held against the laws (`message_laws`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from blake3 import blake3
from msgspec import Raw, Struct

from antiphon.core.authority.rules import Rules
from antiphon.core.messages import envelope, register
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.record.ids import agent_address, split_address
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.errors import AntiphonError, OutcomeUnknown, Unavailable
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.messages.message_gate import HandedMessage, MessageGate, PutAnswer, Reading
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import VirtualLoop
from simulator.messages.message_laws import Line, MessageFacts, judge
from simulator.speedups import no_collector, quiet_and_quick

EPOCH_MS: Final = 1_700_000_000_000
GATES: Final = 2
FAULT_EVERY_S: Final = 4.0
ENDS_WITHIN_S: Final = 400.0
LEASE_MS: Final = 20_000
LOST: Final = 0.004
UNANSWERED: Final = 0.012
TWICE: Final = 0.03
"""Of how many requests to the engine what happens; each includes those above it."""
LATE: Final = 0.3
LATE_S: Final = 1.5
"""News of what other gates wrote: how much of it is late, and by how long."""
GIVEN_BACK: Final = 0.1
"""Of how many messages their reader says that it cannot handle them now."""
_RULES: Final = Rules(authority="open")

T = TypeVar("T")


class MessagePlan(Struct, frozen=True, kw_only=True):
    """One run."""

    seed: int
    agents: int = 3
    messages: int = 8
    """From each agent to each other one."""
    faults: int = 12


class MessageOutcome(Struct, frozen=True, kw_only=True):
    """What was seen."""

    seed: int
    facts: MessageFacts
    faults: dict[str, int]
    seconds: float
    digest: str
    """Of what every agent saw, and when: the same world has the same one."""

    @property
    def violations(self) -> list[str]:
        """Laws that were broken."""
        names = ("lost", "delivered_twice", "reordered", "unconfirmed")
        return [f"{one}: {count}" for one in names if (count := getattr(self.facts, one))]


class _Line:
    """`Faults` of one gate's connection."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._news = random.Random(chance.random())
        self.is_calm = False

    def request(self, _what: str) -> Fate:
        if self.is_calm:
            return Fate(delay_s=0.001)
        draw = self._chance.random()
        return Fate(
            delay_s=self._chance.expovariate(200),
            lost=draw < LOST,
            answer_lost=LOST <= draw < UNANSWERED,
            answer_delay_s=self._chance.expovariate(200),
            twice=UNANSWERED <= draw < TWICE,
        )

    def delivery(self) -> Fate:
        return FINE

    def notice(self) -> Fate:
        """A gate hears late of what another gate has written."""
        if self.is_calm or self._news.random() > LATE:
            return FINE
        return Fate(delay_s=self._news.expovariate(1 / LATE_S))

    def bus(self) -> Fate:
        return FINE

    def reconnect(self) -> Fate:
        return Fate(delay_s=0.0 if self.is_calm else self._chance.uniform(0, 0.5))


class _Gate:
    """One gate; a crash ends its connection and everything that it was doing."""

    def __init__(self, world: MessageWorld, number: int) -> None:
        self.line = _Line(random.Random(f"{world.plan.seed} gate {number}"))
        self.engine = MemoryEngine(world.server, world.mesh, faults=self.line)
        author = Author(world.mesh, world.owner, world.wall, max_drift_ms=2_000, mark=NoMark())
        session = Session(self.engine, author, world.wall, world.entropy)
        self._gate = MessageGate(session, self.engine.messages)
        self._calls: set[asyncio.Task[Any]] = set()
        self.is_dead = False

    async def ask(self, call: Callable[[MessageGate], Awaitable[T]]) -> T:
        """What a member's request does: it gets no answer from a gate that dies meanwhile."""
        task = asyncio.ensure_future(call(self._gate))
        self._calls.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise OutcomeUnknown("the gate died") from None
            raise
        finally:
            self._calls.discard(task)

    async def crash(self) -> None:
        self.is_dead = True
        self.engine.crash()
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._gate.close()


class _Agent:
    """Sends its messages in order, one per receiver at a time, and reads its inbox."""

    def __init__(self, world: MessageWorld, number: int) -> None:
        self.world, self.number = world, number
        self.key = SeedKeyring(random.Random(f"{world.plan.seed} {number}").randbytes(32))
        self.address = agent_address(self.key.did, "main")
        self.lines: list[Line] = []
        self._tasks: list[asyncio.Task[None]] = []

    def note(self, what: str, key: str) -> None:
        self.lines.append(Line(what, key, int(self.world.loop.time() * 1e9)))

    def start(self) -> None:
        """Open it: what was confirmed before is not sent again."""
        now_ms = self.world.wall.now_ms()
        session = register.session_name(now_ms, f"a{self.number}")
        self._tasks = [asyncio.ensure_future(self._read(session))]
        stored = Counter(one.key.rpartition(".")[0] for one in self.lines if one.what == "A")
        for other in self.world.agents:
            if other is not self:
                pair = f"{self.number}.{other.number}"
                rest = range(stored[pair], self.world.plan.messages)
                self._tasks.append(asyncio.ensure_future(self._send(pair, other.address, rest)))

    async def crash(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, pair: str, to: str, rest: range) -> None:
        for number in rest:
            key = f"{pair}.{number}"
            self.note("S", key)
            while True:
                try:
                    signed = self._sign(to, key, pair)
                    await self.world.ask(partial(self._put, to, signed))
                    break
                except Unavailable:
                    await asyncio.sleep(0.2)
            self.note("A", key)
            await asyncio.sleep(self.world.chance.expovariate(2))

    async def _put(self, to: str, signed: bytes, gate: MessageGate) -> PutAnswer:
        return await gate.put(to, signed, by=self.key.did)

    async def _take(self, asked: Reading, gate: MessageGate) -> list[HandedMessage]:
        return await gate.read(asked, by=self.key.did)

    def _sign(self, to: str, key: str, thread: str) -> bytes:
        node, agent = split_address(to)
        body = MessageBody(
            node=node,
            agent=agent,
            sender="main",
            kind="note",
            key=key,
            thread=thread,
            payload=Raw(b"1"),
        )
        at_ms = self.world.wall.now_ms()
        return envelope.sign(body, (self.key.did, self.key.sign), mesh=self.world.mesh, at_ms=at_ms)

    async def _read(self, session: str) -> None:
        has_lost = False
        while True:
            asked = Reading(
                address=self.address,
                session=session,
                limit=4,
                lease_ms=LEASE_MS,
                wait_ms=5_000,
                holding=frozenset() if has_lost else None,
            )
            try:
                handed = await self.world.ask(partial(self._take, asked))
            except Unavailable:
                has_lost = True
                await asyncio.sleep(0.2)
                continue
            has_lost = False
            for one in handed:
                await self._handle(one)

    async def _handle(self, handed: HandedMessage) -> None:
        opened = envelope.open_stored(handed.envelope, self.address, mesh=self.world.mesh)
        key = opened.body.key
        self.note("H", key)
        await asyncio.sleep(self.world.chance.expovariate(20))
        by = self.key.did
        if self.world.chance.random() < GIVEN_BACK:
            with suppress(AntiphonError):
                await self.world.ask(
                    lambda gate: gate.nack(self.address, handed.id, handed.revision, by=by)
                )
            return
        with suppress(AntiphonError):  # else it is handed out again
            await self.world.ask(
                lambda gate: gate.ack(self.address, handed.id, handed.revision, by=by)
            )
            self.note("K", key)


class _Entropy:
    """Randomness from the seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"{seed} entropy")

    def random(self) -> float:
        return self._chance.random()

    def token(self, size: int) -> bytes:
        return self._chance.randbytes(size)


class MessageWorld:
    """Everything of one run."""

    def __init__(self, plan: MessagePlan) -> None:
        self.plan = plan
        self.loop = VirtualLoop(outside=("antiphon.engines.memory",))  # type: ignore[abstract]
        self.chance = random.Random(f"{plan.seed} world")
        self.entropy = _Entropy(plan.seed)
        self.wall = HostClock(self.loop, epoch_ms=EPOCH_MS)
        self.server = MemoryServer(self.wall)
        self.owner = SeedKeyring(self.entropy.token(32))
        self._genesis = genesis.sign(
            self.owner, self.wall, name="mail", recovery=self.owner.did, rules=_RULES
        )
        self.mesh = self._genesis.mesh
        self.gates: list[_Gate] = []
        self.agents: list[_Agent] = []
        self.faults: Counter[str] = Counter()
        self._made = 0

    async def ask(self, call: Callable[[MessageGate], Awaitable[T]]) -> T:
        """Any gate that lives answers; `Unavailable` if none does."""
        alive = [gate for gate in self.gates if not gate.is_dead]
        if not alive:
            raise Unavailable("no gate listens")
        async with asyncio.timeout(40):
            try:
                return await self.chance.choice(alive).ask(call)
            except TimeoutError:
                raise OutcomeUnknown("no answer") from None

    def run(self) -> MessageOutcome:
        """Run it, and say what was seen."""
        try:
            self.loop.run_until_complete(self._play())
        finally:
            self.loop.close()
        facts = judge(agent.lines for agent in self.agents)
        return MessageOutcome(
            seed=self.plan.seed,
            facts=facts,
            faults=dict(self.faults),
            seconds=self.loop.time(),
            digest=blake3(repr([agent.lines for agent in self.agents]).encode()).hexdigest(),
        )

    async def _play(self) -> None:
        founder = MemoryEngine(self.server, self.mesh)
        await genesis.write(founder.log, self._genesis)
        for _ in range(GATES):
            self._add_gate()
        self.agents = [_Agent(self, number) for number in range(self.plan.agents)]
        for agent in self.agents:
            agent.start()
        for _ in range(self.plan.faults):
            await asyncio.sleep(self.chance.expovariate(1 / FAULT_EVERY_S))
            await self._harm()
        for gate in self.gates:
            gate.line.is_calm = True
        total = self.plan.agents * (self.plan.agents - 1) * self.plan.messages
        ends_s = self.loop.time() + ENDS_WITHIN_S
        while self.loop.time() < ends_s:
            await asyncio.sleep(5)
            facts = judge(agent.lines for agent in self.agents)
            acked = sum(one.what == "K" for agent in self.agents for one in agent.lines)
            if facts.sent == facts.handed == total and acked >= total:
                break
        await asyncio.sleep(2 * LEASE_MS / 1000)
        for agent in self.agents:
            await agent.crash()
        for gate in self.gates:
            await gate.crash()

    def _add_gate(self) -> None:
        self._made += 1
        self.gates.append(_Gate(self, self._made))

    async def _harm(self) -> None:
        what = self.chance.choice(("gate", "gate", "agent", "cut", "server"))
        self.faults[what] += 1
        match what:
            case "gate":
                gate = self.chance.choice(self.gates)
                await gate.crash()
                self.gates.remove(gate)
                await asyncio.sleep(self.chance.uniform(0, 2))
                self._add_gate()
            case "agent":
                agent = self.chance.choice(self.agents)
                await agent.crash()
                await asyncio.sleep(self.chance.uniform(0, 2))
                agent.start()
            case "cut":
                gate = self.chance.choice(self.gates)
                gate.engine.sever()
                await asyncio.sleep(self.chance.uniform(0, 5))
                gate.engine.heal()
            case _:
                self.server.kill()
                await asyncio.sleep(self.chance.uniform(0, 3))
                self.server.start()


def run(plan: MessagePlan) -> MessageOutcome:
    """Run one seed."""
    with no_collector(), quiet_and_quick():
        return MessageWorld(plan).run()
