"""`chaos pulse`: whoever sends the beats is killed, again and again, on a real server.

Candidates in processes of their own hold the lease in turn. At a random moment of a beat the leader
is killed with SIGKILL; another must be heard within two beats, and the dead one is started again.
All the while it is suggested to them to change the tempo, and listeners count beats. What was sent
and followed is held against the laws of the simulated pulse.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import assembly
from antiphon.core.authority.rules import Rules
from antiphon.core.bus.signed_message import Message, Refused
from antiphon.core.bus.subjects import BEAT
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.tempo.messages import BeatFrame
from antiphon.core.tempo.policy import TempoPolicy, read_policy
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.tempo_messages import BEAT_FRAMES
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.command_frame import parser_for, report, run_to_end, timed
from chaos.pulse import process
from chaos.pulse.process import CandidateConfig
from simulator.tempo import tempo_laws
from simulator.tempo.tempo_laws import Counted, Sent

CANDIDATES: Final = 3
AGENTS: Final = 5
BPM: Final = 30
"""Beats of two seconds: leases are whole seconds, and the server ends them up to one later."""
HEARD_WITHIN_S: Final = 60.0
SPARE_BPM: Final = 2
P95: Final = 0.95
PRELOADED: Final = ("antiphon.runtime.tempo.pulse",)


class Run(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    kills: int
    bpm: int = BPM
    seed: int = 1


class Candidate(ChildProcess):
    """One of them."""

    def __init__(self, home: StateDirectory, directory: Path, number: int, bpm: int) -> None:
        name = f"candidate-{number}"
        held = home.key(name, SystemEntropy())
        self.did = held.keyring.did
        held.release()
        self.log = directory / f"{name}.log"
        span = (bpm - SPARE_BPM, bpm + SPARE_BPM)
        config = CandidateConfig(home=home.path, key=name, log=self.log, bpm=span)
        super().__init__(process.main, config, PRELOADED)


class Agent:
    """One that follows the beats, and counts them."""

    def __init__(self, name: str, session: Session) -> None:
        self.clock = BeatClock(session)
        self.followed: list[Sent] = []
        self.counted: Counted | None = None
        self.off_ms: list[float] = []
        """How far each beat was from where the one before it and the tempo put it."""
        self._name = name

    async def run(self) -> None:
        self.clock.watchers.append(self._note)
        async with self.clock.listen() as beats:
            async for beat in beats:
                now_s, counted = time.monotonic(), self.counted
                if self.clock.mode() == "local" and counted is None:
                    continue
                if counted is None:
                    self.counted = Counted(self._name, now_s, beat.epoch_ms, now_s, beat.epoch_ms)
                    continue
                expected_ms = beat.epoch_ms - counted.last_ms
                self.off_ms.append(abs((now_s - counted.last_s) * 1000 - expected_ms))
                counted.count(now_s, beat)

    def _note(self, message: Message[BeatFrame]) -> None:
        self.followed.append(Sent(time.monotonic(), message.body))


class Tap:
    """Every frame as it was sent, in order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.sent: list[Sent] = []
        self.leader = ""
        self._news = asyncio.Event()

    async def run(self) -> None:
        session = self._session
        async with session.engine.bus.subscribe(BEAT.at()) as frames:
            async for frame in frames:
                opened = BEAT_FRAMES.open(
                    frame.payload,
                    mesh=session.mesh,
                    subject=BEAT.at(),
                    now_ms=session.wall.now_ms(),
                )
                if not isinstance(opened, Refused) and opened.body.revision:
                    self.sent.append(Sent(time.monotonic(), opened.body))
                    self.leader = opened.author
                    self._news.set()

    async def next(self) -> Sent:
        """The next frame of a leader."""
        self._news.clear()
        async with asyncio.timeout(HEARD_WITHIN_S):
            await self._news.wait()
        return self.sent[-1]


async def kill_leaders(
    tap: Tap, candidates: list[Candidate], run: Run, chance: random.Random
) -> list[float]:
    """Kill the leader, wait for the next, start the dead one again; when each was killed."""
    died_s: list[float] = []
    by_did = {one.did: one for one in candidates}
    for number in range(run.kills):
        beat_s = (await tap.next()).frame.beat_ms / 1000
        await asyncio.sleep(chance.uniform(0, beat_s))
        leader, term = by_did[tap.leader], tap.sent[-1].frame.revision
        died_s.append(time.monotonic())
        await asyncio.to_thread(leader.kill)
        while (await tap.next()).frame.revision == term:
            pass
        await asyncio.to_thread(leader.start)
        if number % 10 == 9:
            say(f"{number + 1} of {run.kills} leaders killed")
    await tap.next()
    return died_s


def policy_of(bpm: int) -> TempoPolicy:
    limits = {"min_bpm": bpm - SPARE_BPM, "max_bpm": bpm + SPARE_BPM}
    return read_policy(
        {
            "initial_bpm": bpm,
            "bar_len_beats": 4,
            "limits": limits,
            "adaptation": {"enable": True},
        }
    )


async def trial(directory: Path, run: Run) -> dict[str, object]:
    """The whole run, and what the laws say."""
    home = StateDirectory(directory / "home")
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, Rules(authority="open"))
        owner = await stack.enter_async_context(assembly.join(home, "owner", key="owner"))
        await owner.session.sync_control()
        body = TempoBody(policy=policy_of(run.bpm))
        await write_one(owner.session, Intent(MeshTempo, body), BEHIND)
        tap, agents = Tap(owner.session), list[Agent]()
        for number in range(AGENTS):
            connection = await stack.enter_async_context(assembly.join(home, "client"))
            await connection.session.sync_control()
            agents.append(Agent(f"agent {number}", connection.session))
        candidates = [Candidate(home, directory, one, run.bpm) for one in range(CANDIDATES)]
        for one in candidates:
            stack.callback(one.kill)
            one.start()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(tap.run())]
            running += [tasks.create_task(one.run()) for one in agents]
            await tap.next()
            died_s = await kill_leaders(tap, candidates, run, random.Random(run.seed))
            ended_s = time.monotonic()
            for task in running:
                task.cancel()
    return judged(run, tap.sent, agents, died_s, ended_s)


def judged(
    run: Run, sent: list[Sent], agents: list[Agent], died_s: list[float], ended_s: float
) -> dict[str, object]:
    """What the laws say of a run, as numbers."""
    took = [beats for beats, _ in tempo_laws.takeover(died_s, sent)]
    two = list(tempo_laws.one_leader(sent))
    for agent in agents:
        two += tempo_laws.followed_once("agent", agent.followed)
    off = list(tempo_laws.on_downbeats(sent))
    for violation in (*two, *off):
        say(f"{violation.law}: {violation.what}")
    counted = [one.counted for one in agents if one.counted is not None]
    off_ms = sorted(one for agent in agents for one in agent.off_ms)
    tempi = [one.frame.tempo_bpm for one in sent]
    silent_s = max((ended_s - one.last_s for one in counted), default=float("inf"))
    return {
        "kills": len(took),
        "takeover_beats_max": round(max(took, default=0.0), 2),
        "takeover_beats_median": round(sorted(took)[len(took) // 2], 2) if took else 0.0,
        "two_leaders": len(two),
        "off_downbeat_changes": len(off),
        "drift_pct": round(100 * max(map(tempo_laws.drift, counted), default=100.0), 3),
        "jitter_p95_ms": round(off_ms[int(P95 * (len(off_ms) - 1))], 1) if off_ms else 0.0,
        "gap_ms_max": round(1000 * max([silent_s, *(one.longest_s for one in counted)])),
        "beat_ms": round(60_000 / run.bpm),
        "tempo_changes": sum(one != two for one, two in pairwise(tempi)),
        "terms": len({one.frame.revision for one in sent}),
        "agents": len(counted),
        "beats_counted": sum(one.beats for one in counted),
        "seed": run.seed,
    }


async def execute(run: Run) -> int:
    summary = await timed(lambda directory: trial(directory, run))
    is_right = (
        summary["kills"] == run.kills
        and not summary["two_leaders"]
        and not summary["off_downbeat_changes"]
        and float(str(summary["takeover_beats_max"])) <= tempo_laws.TAKEOVER_BEATS
        and float(str(summary["drift_pct"])) <= 100 * tempo_laws.DRIFT
    )
    return report(summary, holds=bool(is_right))


def main(argv: list[str]) -> int:
    parser = parser_for("pulse", "5 kills")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--bpm", type=int, default=BPM, help="60 or slower: leases last a second")
    args = parser.parse_args(argv)
    kills = args.kills or (5 if args.quick else 50)
    return run_to_end(execute(Run(kills=kills, bpm=args.bpm, seed=args.seed)))
