"""`chaos documents`: two agents write the same documents under every strategy, and are killed.

Each agent, in a process of its own, writes one document per strategy in turn, always from the
revision that it last knew. At random moments one of them is killed with SIGKILL and started again
with the same key. Each notes what it was told. In the end the log is read whole, and what it has is
held against the notes: no update may be lost that its strategy forbids to lose, every deferred
value must be listed until a put names it, and all of them must have been resolved.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import assembly
from antiphon.core.authority.rules import Rules
from antiphon.core.families.memory.ops import Inline
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.memory.documents import Documents
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.command_frame import parser_for, report, run_to_end, timed
from chaos.documents import process
from chaos.documents.audit import audit
from chaos.documents.process import SPACE, STRATEGIES, AgentConfig, Deed, deeds_of

AGENTS: Final = 2
PAUSE_S: Final = (0.5, 3.0)
"""Between which times an agent is killed."""
SHOWN: Final = 10
PRELOADED: Final = ("antiphon.runtime.memory.documents",)


class Run(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    writes: int
    """Of both agents together, under each strategy."""
    kills: int
    seed: int = 1


class AgentProcess(ChildProcess):
    """One agent."""

    def __init__(self, home: StateDirectory, directory: Path, number: int, writes: int) -> None:
        self.name = f"agent-{number}"
        self.journal = directory / f"{self.name}.journal"
        self._log = directory / f"{self.name}.log"
        config = AgentConfig(
            home=home.path, key=self.name, journal=self.journal, log=self._log, writes=writes
        )
        super().__init__(process.main, config, PRELOADED)

    async def ended(self) -> None:
        """Wait until it has written everything."""
        while (alive := self.running) is not None:
            await asyncio.to_thread(alive.join, 1.0)
        if self.exitcode != 0:
            tail = self._log.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"{self.name} failed:\n{tail}")


async def kill_agents(agents: list[AgentProcess], run: Run) -> int:
    """Kill and restart them in turn, as often as the run says and while they run."""
    chance, kills = random.Random(run.seed), 0
    while kills < run.kills and all(one.running for one in agents):
        await asyncio.sleep(chance.uniform(*PAUSE_S))
        victim = chance.choice(agents)
        if victim.running is None:
            break
        await asyncio.to_thread(victim.kill)
        victim.start()
        kills += 1
        if kills % 10 == 0:
            say(f"{kills} of {run.kills} killed")
    return kills


async def resolve_rest(session: Session) -> None:
    """What agents left open when they ended; one put ends all of it."""
    documents = Documents(session)
    for strategy in STRATEGIES:
        document = await documents.read(SPACE, strategy)
        if document is not None and document.siblings:
            await documents.put(
                Wanted(
                    space=SPACE,
                    key=strategy,
                    agent="person",
                    value=Inline(text='{"resolved":1}'),
                    base=document.revision,
                    resolves=tuple(one.op for one in document.siblings),
                )
            )


async def trial(directory: Path, run: Run) -> dict[str, object]:
    """The whole run, and what the log says."""
    home = StateDirectory(directory / "home")
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, Rules(authority="open"))
        owner = await stack.enter_async_context(assembly.join(home, "owner", key="owner"))
        await owner.session.sync_control()
        each = run.writes // AGENTS
        agents = [AgentProcess(home, directory, one, each) for one in range(AGENTS)]
        for one in agents:
            stack.callback(one.kill)
            one.start()
        kills = await kill_agents(agents, run)
        for one in agents:
            await one.ended()
        await resolve_rest(owner.session)
        deeds = [deed for one in agents for deed in deeds_of(one.journal)]
        return {"kills": kills, **await judged(owner.session, deeds)}


async def judged(session: Session, deeds: list[Deed]) -> dict[str, object]:
    """What the log says of a run, as numbers."""
    lost, unlisted, unresolved, writes, conflicts = list[str](), list[str](), 0, 0, 0
    for strategy in STRATEGIES:
        view = await session.read(document_key(SPACE, strategy))
        own = [deed for deed in deeds if deed.strategy == strategy]
        found = audit(strategy, view.history, own)
        lost += found.lost
        unlisted += found.unlisted
        state = view.lane.state
        listed = {one.op for one in state.siblings} if state is not None else set()
        unlisted += [f"{one} is in no list" for one in found.open ^ listed]
        unresolved += len(listed)
        writes += sum(deed.outcome != "" for deed in own)
        conflicts += sum(deed.outcome == "conflict" for deed in own)
    for line in (lost + unlisted)[:SHOWN]:
        say(line)
    return {
        "writes": writes,
        "conflicts": conflicts,
        "lost": len(lost),
        "unlisted": len(unlisted),
        "unresolved": unresolved,
    }


async def execute(run: Run) -> int:
    summary = await timed(lambda directory: trial(directory, run))
    summary |= {"seed": run.seed}
    wrong = (summary["lost"], summary["unlisted"], summary["unresolved"])
    return report(summary, holds=bool(summary["writes"] and not any(wrong)))


def main(argv: list[str]) -> int:
    parser = parser_for("documents", "100 writes under each strategy")
    parser.add_argument("--writes", type=int, help="under each strategy; default: 10,000")
    parser.add_argument("--kills", type=int)
    args = parser.parse_args(argv)
    writes = args.writes or (100 if args.quick else 10_000)
    kills = args.kills or (4 if args.quick else 100)
    return run_to_end(execute(Run(writes=writes, kills=kills, seed=args.seed)))
