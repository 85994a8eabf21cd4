"""`chaos offline`: two laptops touch the same jobs, documents and inbox without a connection.

In each round both laptops, each with a state directory of its own, are cut off (`networks.py`).
Each submits a job that the other submits, too, and one of its own with a large argument, writes two
documents from the same revision (one under `remote`, a large one under `defer`), stores a file, and
sends a message. They come back one after the other, in either order. The first rounds count the
steps of a laptop's processes; in the others each is killed at one of them, one step after the
other, and started again.

In some rounds each laptop's worker is running a job when its connection goes (`worker_life.py`),
and in half of those another worker takes the job over meanwhile.

In the end the log is held against what each laptop was promised and told.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon import Rejected, assembly
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.memory.ops import Inline
from antiphon.core.families.memory.writing import Wanted
from antiphon.core.record.branches import LaneKey
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.memory.documents import Documents
from antiphon.sdk.handle import JobHandle
from antiphon.sdk.mesh import Mesh
from bench.measurement.report import say
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.command_frame import parser_for, report, run_to_end, timed
from chaos.network.namespaces import NamespacesUnavailable, prepare
from chaos.offline import process, worker_life
from chaos.offline.archived import told_after_an_archive
from chaos.offline.audit import Findings, judged, judged_run, lane_of
from chaos.offline.networks import LAPTOPS, Line, Namespaces, Networks, proxies
from chaos.offline.process import KEY, PRELOADED, SPACE, Deed, LaptopConfig, lines_of

SHOWN: Final = 10
WITHIN_S: Final = 120.0
"""For one life of a laptop's process."""
LIVES: Final = ("away", "back", "work")
LEASE_S: Final = 5
TURNS, WORK, TAKEN = 8, 1, 2
"""Of so many rounds, workers run jobs in two, and in the second of these others take them over."""


class Run(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    rounds: int
    minutes: float = 24 * 60.0
    """After which no further round begins."""
    first_step: int = 1
    """The step at which the first process is killed; the next ones follow it."""


class Machine:
    """A laptop: its state directory, its line, and its processes, one after the other."""

    def __init__(self, directory: Path, number: int, line: Line) -> None:
        """Nothing is started."""
        self.name = f"laptop-{number}"
        self.home = StateDirectory(directory / self.name)
        self.line = line
        self.did = ""
        self.killed: set[tuple[str, int]] = set()
        self.steps = dict.fromkeys(LIVES, 0)
        """How many steps each of its processes has; found by one that was not killed."""
        self._next = {life: count(1) for life in LIVES}
        self._directory = directory

    def begin_at(self, step: int) -> None:
        """Kill at this step first; the other laptop has those in between."""
        self._next = {life: count(step, LAPTOPS) for life in LIVES}

    def journal(self, number: int) -> Path:
        """Of one round."""
        return self._directory / f"{self.name}.{number}.journal"

    async def live(self, life: str, number: int, deeds: tuple[Deed, ...] = ()) -> None:
        """One process, killed at the next step that is due; and one more that is not."""
        steps = self.steps[life]
        at = (next(self._next[life]) - 1) % steps + 1 if steps else 0
        config = LaptopConfig(
            home=self.home.path,
            journal=self.journal(number),
            log=self._directory / f"{self.name}.log",
            deeds=deeds,
            kill_at=at,
            network=self.line.namespace,
        )
        if at and not await self._run(config):
            self.killed.add((life, at))
            config = replace(config, kill_at=0)
        elif at:
            return  # it had fewer steps this time
        if not await self._run(replace(config, kill_at=0)):
            raise RuntimeError(f"{self.name} failed:\n{config.log.read_text()[-2_000:]}")
        counted = [one.number for one in lines_of(config.journal) if one.said == "steps"]
        if not steps:
            self.steps[life] = counted[-1]

    @property
    def kind(self) -> str:
        """Of the jobs that its worker runs."""
        return f"chaos.of.{self.name}"

    async def work(self, number: int, cut: Callable[[], Awaitable[None]]) -> None:
        """Its worker's process: claims a job, loses its connection, and goes on with it.

        One that is killed is not started again: it has lost what it had not kept.
        """
        steps = self.steps["work"]
        at = (next(self._next["work"]) - 1) % steps + 1 if steps else 0
        config = LaptopConfig(
            home=self.home.path,
            journal=self.journal(number),
            log=self._directory / f"{self.name}.log",
            kind=self.kind,
            kill_at=at,
            network=self.line.namespace,
        )
        running = asyncio.ensure_future(self._run(config, worker_life.main))
        while not any(one.said == "claimed" for one in lines_of(config.journal)):
            await asyncio.wait({running}, timeout=worker_life.LOOK_S)
            if running.done():
                raise RuntimeError(f"{self.name} failed:\n{config.log.read_text()[-2_000:]}")
        await cut()
        config.journal.with_suffix(worker_life.CUT).touch()
        is_whole, lines = await running, lines_of(config.journal)
        if any(one.said == "late" for one in lines):
            return
        if not is_whole:
            self.killed.add(("work", at))
        if not steps:
            self.steps["work"] = [one.number for one in lines if one.said == "steps"][-1]

    async def _run(
        self, config: LaptopConfig, main: Callable[[LaptopConfig], None] = process.main
    ) -> bool:
        """Whether it came to its end."""
        child = ChildProcess(main, config, PRELOADED)
        child.start()
        try:
            async with asyncio.timeout(WITHIN_S):
                while child.running is not None:
                    await asyncio.to_thread(child.join, 1.0)
        except TimeoutError:
            if (still := child.running) is not None and still.pid is not None:
                os.kill(still.pid, process.EXPLAIN)
                await asyncio.to_thread(child.join, 1.0)
            say(f"{self.name} did not end:\n{config.log.read_text()[-20_000:]}")
            raise
        finally:
            child.kill()
        return child.exitcode == 0


class Trial:
    """All rounds of a run."""

    def __init__(self, mesh: Mesh, home: StateDirectory, machines: list[Machine]) -> None:
        """Nothing has begun."""
        self._mesh = mesh
        self._home = home
        self._machines = machines
        self._documents = Documents(mesh.connection.session)
        self.findings = Findings()
        self.lanes: set[LaneKey] = set()
        self.agreed = 0

    @property
    def _session(self) -> Session:
        return self._mesh.connection.session

    async def round(self, number: int) -> None:
        """Both go away, and come back."""
        deeds = {
            one.name: await self._deeds(one, number, last=not at)
            for at, one in enumerate(reversed(self._machines))
        }
        jobs = await self._work(number) if number % TURNS in (WORK, TAKEN) else {}
        if not jobs:
            for one in self._machines:
                await one.line.cut(number)
        lives = (one.live("away", number, deeds[one.name]) for one in self._machines)
        await asyncio.gather(*lives)
        order = self._machines if number % 2 else self._machines[::-1]
        for one in order:
            await one.line.join()
            await one.live("back", number)
        read = await self._read()
        found = Findings()
        for one in self._machines:
            lines = lines_of(one.journal(number))
            found.add(await judged(self._session, deeds[one.name], lines, one.did, read))
            if one.name in jobs:
                is_taken, job = number % TURNS == TAKEN, (one.kind, jobs[one.name].id)
                run = await judged_run(self._session, lines, job, one.did, is_taken=is_taken)
                found.add(run)
                self.lanes.add(job_key(*job))
                # What a killed worker left is given back. Whoever took it over in the next round
                # would have to read its steps, and has no connection.
                with suppress(Rejected):
                    await jobs[one.name].cancel("the round is over")
            for line in (line for line in lines if line.said == "kept"):
                lane = lane_of(deeds[one.name][line.number], line.name)
                if lane is not None:
                    self.lanes.add(lane)
        self.agreed += not found.disagreed
        self.findings.add(found)

    async def _work(self, number: int) -> dict[str, JobHandle[str]]:
        """Both have a job to do when they go; in some rounds others take it over."""
        is_taken = number % TURNS == TAKEN
        lease_s = LEASE_S if is_taken else worker_life.LONG_S
        jobs = {
            one.name: await self._mesh.submit(
                one.kind,
                f"{one.name}-{number}",
                options={"lease": lease_s, "lease_max": lease_s},
            )
            for one in self._machines
        }
        async with asyncio.TaskGroup() as tasks:
            for one in self._machines:
                tasks.create_task(one.work(number, partial(one.line.cut, number)))
        if is_taken:
            async with self._node(), self._mesh.worker(slots=LAPTOPS):
                for handle in jobs.values():
                    await handle.result(timeout=WITHIN_S)
        return jobs

    @asynccontextmanager
    async def _node(self) -> AsyncIterator[None]:
        """A full node, which ends leases that are over."""
        home = self._home
        async with (
            assembly.join(home, "node") as connection,
            assembly.owned_replica(home.replica, home, connection) as replica,
            assembly.replicating(connection, replica, caretaking=True),
        ):
            yield

    async def _deeds(self, one: Machine, number: int, *, last: bool) -> tuple[Deed, ...]:
        """What a laptop does; for the first that asks, the documents are made."""
        keys = [f"{strategy}-{number}" for strategy in ("remote", "defer")]
        bases = []
        for key in keys:
            if last:
                first = Inline(text='"first"')
                wanted = Wanted(space=SPACE, key=key, agent="main", value=first, base=0)
                await self._documents.put(wanted)
            document = await self._documents.read(SPACE, key)
            bases.append(document.revision if document is not None else 0)
        mine = f"{one.name}-{number}"
        large = mine.ljust(worker_life.LARGE)
        return (
            Deed(what="job", text=f"both-{number}"),
            Deed(what="put", text=mine, where=keys[0], base=bases[0]),
            Deed(what="message", text=mine, where=self._mesh.messages.address),
            Deed(what="put", text=large, where=keys[1], base=bases[1], strategy="defer"),
            Deed(what="call", text=large),
            Deed(what="file", text=large),
        )

    async def _read(self) -> list[str]:
        """The messages that have arrived, acknowledged."""
        read: list[str] = []
        async with self._mesh.messages.inbox(wait=0) as inbox:
            async for message in inbox:
                read.append(str(message.payload))
                await message.ack()
        return read

    async def agree(self, sessions: list[Session]) -> None:
        """Whether everybody reads the same on every lane that was written."""
        for key in sorted(self.lanes):
            states = [(await session.read(key)).lane.state for session in sessions]
            if any(one != states[0] for one in states[1:]):
                self.findings.disagreed.append(f"{key} is read in {len(states)} ways")


async def trial(directory: Path, run: Run, network: Networks = proxies) -> dict[str, object]:
    """The whole run, and what it came to."""
    home = StateDirectory(directory / "home")
    async with AsyncExitStack() as stack:
        connected = await stack.enter_async_context(network(directory, home))
        machines = []
        for number, (line, described) in enumerate(connected.laptops, 1):
            machine = Machine(directory, number, line)
            machine.begin_at(run.first_step + number - 1)
            machine.home.write(described, connected.access)
            held = machine.home.key(KEY, SystemEntropy())
            machine.did = held.keyring.did
            held.release()
            machines.append(machine)
        mesh = Mesh.open(home=home.path, key="owner")
        for machine in machines:
            mesh.task(machine.kind)(_theirs)
        await stack.enter_async_context(mesh)
        tried = Trial(mesh, home, machines)
        until_s = asyncio.get_running_loop().time() + run.minutes * 60
        rounds = 0
        while rounds < run.rounds and asyncio.get_running_loop().time() < until_s:
            await tried.round(rounds)
            rounds += 1
            if rounds % 10 == 0:
                say(f"{rounds} of {run.rounds} rounds")
        sessions = [mesh.connection.session]
        for machine in machines:
            reader = assembly.join(machine.home, "client", key="reader")
            sessions.append((await stack.enter_async_context(reader)).session)
            await sessions[-1].sync_control()
        await tried.agree(sessions)
        return summary_of(tried, machines, rounds, directory) | {"network": connected.name}


async def _theirs(text: str) -> str:
    return text


def summary_of(
    tried: Trial, machines: list[Machine], rounds: int, directory: Path
) -> dict[str, object]:
    """What the run came to, as numbers; with the round in which a lane was archived."""
    found = tried.findings
    ends = [told_after_an_archive(directory / f"archive-{one}", knows=one) for one in (True, False)]
    if ends != ["held", "asks"]:
        found.twice.append(f"after an archive: {ends}")
    for line in (found.lost + found.twice + found.disagreed)[:SHOWN]:
        say(line)
    killed = {step for machine in machines for step in machine.killed}
    return {
        "rounds": rounds,
        "agreed": tried.agreed if not found.disagreed else 0,
        "dropped_told": found.dropped_told,
        "lost": len(found.lost),
        "twice": len(found.twice),
        "steps_killed": len(killed),
        "steps": {life: max(one.steps[life] for one in machines) for life in LIVES},
        "archived": ends,
    }


async def execute(run: Run, network: Networks = proxies) -> int:
    """Run it and print what it came to."""
    summary = await timed(lambda directory: trial(directory, run, network))
    holds = summary["agreed"] == summary["rounds"] and not (summary["lost"] or summary["twice"])
    return report(summary, holds=bool(holds and summary["dropped_told"]))


def main(argv: list[str]) -> int:
    """The command. In a network namespace this process stays there."""
    parser = parser_for("offline", "2 rounds", has_seed=False)
    parser.add_argument("--rounds", type=int, help="default: 200")
    parser.add_argument("--minutes", type=float, help="begin no round after that many")
    parser.add_argument("--proxies", action="store_true", help="also where there are namespaces")
    args = parser.parse_args(argv)
    run = Run(rounds=args.rounds or (2 if args.quick else 200))
    if args.minutes:
        run = replace(run, minutes=args.minutes)
    namespaces = None if args.proxies else _namespaces()
    if namespaces is None:
        return run_to_end(execute(run))
    try:
        namespaces.enter()
        return run_to_end(execute(run, namespaces.network))
    finally:
        namespaces.close()


def _namespaces() -> Namespaces | None:
    """Network namespaces, if this machine and this user can have them."""
    try:
        prepare()
        return Namespaces()
    except NamespacesUnavailable as problem:
        say(f"with proxies instead of network namespaces: {problem}")
        return None
