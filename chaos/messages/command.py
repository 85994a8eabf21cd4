"""`chaos messages`: agents write to one another while agents, gate and server are killed.

A mesh is founded and hosted with TLS, accounts and a gate, as people do it; its members may send
messages and nothing else. Every agent writes to every other one. Meanwhile processes of agents, the
gate and the server are killed with SIGKILL and started again. Then what every agent wrote into its
journal is held against the promises: what was confirmed to its sender is handed to its reader, in
the order of its thread, and not again after the reader's acknowledgement was confirmed.

After that one member floods an inbox, and it is measured how much slower others' messages are.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.assembly.hosted_mesh import Listen, secured_server
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.record.ids import agent_address
from antiphon.engines.nats import LocalServer
from antiphon.errors import Unavailable
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from bench.measurement.report import say
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.command_frame import parser_for, report, run_to_end, timed
from chaos.messages import process
from chaos.messages.fairness import FloodSwitch, measure
from chaos.messages.journal import read_journal
from chaos.messages.process import KEY, AgentConfig, FloodConfig, GateConfig
from simulator.messages.message_laws import MessageFacts, judge

AGENTS_PER_PROCESS: Final = 4
LOOK_S: Final = 0.5
STALL_S: Final = 120.0
"""The run ends as it is when nothing has been handed out for this long."""
MAX_RATIO: Final = 2.0
TOLD_WITHIN_S: Final = 30.0
SETTLED_S: Final = 2.0
"""How long a flood lasts before others are measured: its first burst has been read by then."""
PRELOADED: Final = (
    "antiphon.runtime.messages.message_gate",
    "antiphon.sdk.messages.inbox_reader",
)


class Run(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    messages: int
    agents: int
    kill_every_s: float
    most_kills: int
    probes: int
    """How many messages are timed beside a flood, and without one; 0 for no flood."""
    rate: float
    """Messages a second, of all agents together, at most."""
    seed: int
    lease_s: float = process.LEASE_S
    kill_at: tuple[float, ...] = ()
    """Kill when these shares of all messages have arrived, instead of by the clock."""

    @property
    def per_pair(self) -> int:
        return -(-self.messages // (self.agents * (self.agents - 1)))


class Flood(FloodSwitch):
    """The flooder's process, and what it was told."""

    def __init__(self, config: FloodConfig) -> None:
        self._told = config.told
        self._child = ChildProcess(process.main, config, PRELOADED)

    async def start(self) -> None:
        await asyncio.to_thread(self._child.start)
        deadline = time.monotonic() + TOLD_WITHIN_S
        while not self.outcomes()["!"] and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(SETTLED_S)

    async def stop(self) -> None:
        await asyncio.to_thread(self._child.kill)

    def outcomes(self) -> Counter[str]:
        """`.` stored, `!` told that it is too much, `?` no answer."""
        return Counter(self._told.read_text()) if self._told.exists() else Counter()


class Town:
    """Everything that runs, and can be killed."""

    def __init__(self, directory: Path, run: Run, server: LocalServer) -> None:
        self._directory = directory
        self._run = run
        self._server = server
        self.journals = directory / "journals"
        self.journals.mkdir()
        self.gate = ChildProcess(
            process.main,
            GateConfig(home=directory / "owner", log=directory / "gate.log"),
            PRELOADED,
        )
        self.agents: list[ChildProcess] = []
        self.homes = {one: directory / f"agent-{one}" for one in range(run.agents + 1)}
        """One more than there are agents: the last is the flooder's."""
        self.kills: Counter[str] = Counter()

    async def found(self) -> None:
        """Start the gate, and have every agent join."""
        self.gate.start()
        owner = StateDirectory(self._directory / "owner")
        addresses: dict[int, str] = {}
        for number, path in self.homes.items():
            place = StateDirectory(path)
            ticket = hosted_mesh.invite(owner, Terms(can=("message",), alias=f"agent-{number}"))
            await _join(place, ticket, f"agent-{number}")
            held = place.key(KEY, SystemEntropy())
            addresses[number] = agent_address(held.keyring.did, "main")
            held.release()
        addresses.pop(self._run.agents)
        self.addresses = addresses
        numbers = list(addresses)
        for first in range(0, len(numbers), AGENTS_PER_PROCESS):
            some = numbers[first : first + AGENTS_PER_PROCESS]
            config = AgentConfig(
                homes={one: self.homes[one] for one in some},
                journals=self.journals,
                addresses=addresses,
                count=self._run.per_pair,
                pause_s=self._run.agents / self._run.rate,
                log=self._directory / f"agents-{first}.log",
                lease_s=self._run.lease_s,
            )
            self.agents.append(ChildProcess(process.main, config, PRELOADED))

    def start_agents(self) -> None:
        for child in self.agents:
            child.start()

    def stop_agents(self) -> None:
        for child in self.agents:
            child.kill()

    async def kill_one(self, what: str, chance: random.Random) -> None:
        """Kill something, and start it again."""
        self.kills[what] += 1
        if what == "server":
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(chance.uniform(0, 0.5))
            await self._server.start()
            return
        child = self.gate if what == "gate" else chance.choice(self.agents)
        await asyncio.to_thread(child.kill)
        await asyncio.sleep(chance.uniform(0, 0.3))
        await asyncio.to_thread(child.start)

    def look(self) -> MessageFacts:
        return judge(read_journal(self.journals / f"{one}.journal") for one in self.addresses)

    def progress(self) -> int:
        """Bytes of all journals: they grow while anything happens."""
        return sum(path.stat().st_size for path in self.journals.glob("*.journal"))


async def _join(place: StateDirectory, ticket: hosted_mesh.Ticket, alias: str) -> None:
    for _ in range(20):
        try:
            await hosted_mesh.redeem(place, ticket, alias=alias)
        except Unavailable:
            await asyncio.sleep(LOOK_S)  # the gate is still starting
        else:
            return
    raise Unavailable("the gate did not answer")


async def run_load(town: Town, run: Run) -> tuple[MessageFacts, float]:
    """Let them write to one another, with kills, until everything has arrived."""
    chance = random.Random(run.seed)
    kinds = ["agents", "gate", "server", "agents"]
    total = run.per_pair * run.agents * (run.agents - 1)
    town.start_agents()
    begun = changed = looked = time.monotonic()
    next_kill = begun + run.kill_every_s
    size, number = 0, 0
    while True:
        await asyncio.sleep(LOOK_S)
        now, present = time.monotonic(), town.progress()
        if present != size:
            size, changed = present, now
        if run.kill_at or now - looked > max(2.0, run.messages / 10_000):
            looked = now
            found = town.look()
            say(f"{found.sent} sent, {found.handed} handed out of {total}; {dict(town.kills)}")
            if found.sent >= total and found.handed >= total:
                return found, now - begun
            if run.kill_at:
                is_due = found.handed >= total * run.kill_at[min(number, len(run.kill_at) - 1)]
                next_kill = now if is_due else now + run.kill_every_s
            elif found.sent >= total * 0.95:
                next_kill = now + run.kill_every_s  # let it come to an end
        if now - changed > STALL_S:
            say(f"nothing has happened for {STALL_S:g} s")
            return town.look(), now - begun
        if now >= next_kill and number < run.most_kills:
            await town.kill_one(kinds[number % len(kinds)], chance)
            number += 1
            next_kill = time.monotonic() + run.kill_every_s * chance.uniform(0.6, 1.4)


async def trial(directory: Path, run: Run) -> dict[str, object]:
    """The whole run, and what it showed."""
    home = StateDirectory(directory / "owner")
    listen = Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(
            secured_server(home, name="messages", listen=listen, rules=Rules())
        )
        town = Town(directory, run, hosted.server)
        stack.callback(town.gate.kill)
        stack.callback(town.stop_agents)
        await town.found()
        say(f"{run.agents} agents have joined")
        found, took_s = await run_load(town, run)
        await asyncio.to_thread(town.stop_agents)
        found = town.look()
        summary: dict[str, object] = {
            "sent": found.sent,
            "lost": found.lost,
            "delivered_twice": found.delivered_twice,
            "reordered": found.reordered,
            "redelivered": found.redelivered,
            "unconfirmed": found.unconfirmed,
            "p50_ms": _percentile(found.took_ms, 0.5),
            "p99_ms": _percentile(found.took_ms, 0.99),
            "kills": town.kills.total(),
            "kills_of": dict(town.kills),
            "per_s": round(found.sent / took_s, 1),
            "agents": run.agents,
            "seed": run.seed,
        }
        if not run.probes:
            return summary
        owner = await stack.enter_async_context(Mesh.open(home=home.path, key="owner-client"))
        flood = Flood(
            FloodConfig(
                home=town.homes[run.agents],
                to=town.addresses[1],
                told=directory / "told",
                log=directory / "flood.log",
            )
        )
        fair = await measure(owner, [town.homes[one] for one in (0, 1, 2)], flood, run.probes)
    outcomes = flood.outcomes()
    return summary | {
        "engine_p50_ms": round(fair.engine_ms, 2),
        "calm_p50_ms": round(fair.calm_ms, 2),
        "flooded_p50_ms": round(fair.flooded_ms, 2),
        "flood_ratio": fair.ratio,
        "flood_ratio_elsewhere": round(fair.other_inbox_ratio, 2),
        "flooder_told": outcomes["!"],
        "flooder_stored": outcomes["."],
    }


def _percentile(ordered: list[float], part: float) -> float:
    return round(ordered[int(part * (len(ordered) - 1))], 1) if ordered else 0.0


async def execute(run: Run) -> int:
    summary = await timed(lambda directory: trial(directory, run))
    return report(summary, holds=is_right(run, summary))


def is_right(run: Run, summary: dict[str, object]) -> bool:
    """Whether everything that is promised was kept."""
    wrong = ("lost", "delivered_twice", "reordered", "unconfirmed")
    is_kept = not any(summary[one] for one in wrong) and int(str(summary["sent"])) >= run.messages
    if not run.probes:
        return is_kept
    is_told = int(str(summary["flooder_told"])) > 0
    return is_kept and is_told and float(str(summary["flood_ratio"])) <= MAX_RATIO


def main(argv: list[str]) -> int:
    parser = parser_for("messages", "600 messages of 6 agents, 4 kills")
    parser.add_argument("--messages", type=int)
    parser.add_argument("--agents", type=int)
    parser.add_argument("--rate", type=float, default=150.0, help="messages a second, in all")
    args = parser.parse_args(argv)
    run = Run(
        messages=args.messages or (600 if args.quick else 100_000),
        agents=args.agents or (6 if args.quick else 20),
        kill_every_s=2.0 if args.quick else 15.0,
        most_kills=4 if args.quick else 1_000,
        probes=45 if args.quick else 240,
        rate=args.rate,
        seed=args.seed,
    )
    return run_to_end(execute(run))
