"""`chaos locks`: many processes contend for a few locks while they and their server are killed.

Every contender is a process with a key of its own. At random moments one of them is killed with
SIGKILL and replaced, or stopped with SIGSTOP for longer than a hold lasts and continued; the server
is killed and started again. Holders write on a page that refuses a lower fence. Each notes when it
asked, got, was certain to hold, and let go, by a clock that all share; what the notes say together
is judged by `chaos.locks.audit`.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon import assembly
from antiphon.core.families.locks.ops import LOCK
from antiphon.core.policy.locks.lock_time import fixed
from antiphon.core.record.ids import name_of_key
from antiphon.engines.nats import LocalServer
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.log.session import Session
from antiphon.sdk.locks.lock import Lock
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.command_frame import parser_for, report, run_to_end, timed
from chaos.cluster.mesh import SHORT_LEASES
from chaos.locks import audit, process
from chaos.locks.process import SCOPE, TTL_MS, ContenderConfig, end_of, notes_of

RULES: Final = replace(SHORT_LEASES, claim_window_ms=200)
"""A waiter that was killed costs those behind it little."""
MEASURED: Final = 30
SHOWN: Final = 10
STOPPED_S: Final = (1.0, 4.0)
"""For how long a process stands still: shorter and longer than a hold lasts."""
READY_S: Final = 300.0
"""How long it may take until all are connected, on a busy machine."""
LATE_S: Final = 20.0
"""How long after the end a contender may still be waiting."""
PRELOADED: Final = ("antiphon.sdk.locks.lock",)


class Run(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    processes: int
    locks: int
    seconds: float
    kills: int
    server_kills: int
    seed: int = 1


class ContenderProcess(ChildProcess):
    """One contender."""

    def __init__(self, config: ContenderConfig) -> None:
        super().__init__(process.main, config, PRELOADED)

    async def ended(self, by_s: float) -> None:
        """Wait for its end; whatever waits too long is killed."""
        await asyncio.to_thread(self.join, max(by_s - time.monotonic(), 0.0))
        self.kill()


async def measured(session: Session) -> tuple[float, float]:
    """The medians of a take that nobody contends, and of one bare append, in milliseconds."""
    time_of, takes, appends = fixed(TTL_MS), list[float](), list[float]()
    for number in range(MEASURED):
        line = LockLine(session, SCOPE, f"quiet-{number}", "main")
        began = time.perf_counter()
        lock = await Lock(line, lambda _after_ms: time_of, 0).take()
        takes.append(time.perf_counter() - began)
        await lock.release()
        subject = LOCK.subject(session.mesh, SCOPE, name_of_key(f"bare-{number}"))
        began = time.perf_counter()
        await session.log.append(subject, b"{}\n{}", message_id=f"bare-{number}", expected_last=0)
        appends.append(time.perf_counter() - began)
    middle = MEASURED // 2
    return sorted(takes)[middle] * 1000, sorted(appends)[middle] * 1000


async def begin(directory: Path, run: Run) -> float:
    """Wait until every contender is connected, and tell them when the run ends."""
    async with asyncio.timeout(READY_S):
        while len(list(directory.glob("*.journal"))) < run.processes:
            await asyncio.sleep(0.1)
    ends_s = time.monotonic() + run.seconds
    fresh = directory / "ends.new"
    fresh.write_text(str(ends_s))
    fresh.replace(end_of(directory))
    return ends_s


async def disturb(contenders: list[ContenderProcess], run: Run, ends_s: float) -> tuple[int, int]:
    """Kill and stop contenders, evenly over the run; how many of each."""
    chance, kills, stops = random.Random(run.seed), 0, 0
    pause_s = run.seconds / (run.kills + 1)
    async with asyncio.TaskGroup() as group:
        for number in range(run.kills):
            await asyncio.sleep(pause_s * chance.uniform(0.6, 1.4))
            if time.monotonic() > ends_s:
                break
            victim = chance.choice(contenders)
            if number % 2:
                stops += 1
                group.create_task(victim.stand_still(chance.uniform(*STOPPED_S)))
            else:
                kills += 1
                await asyncio.to_thread(victim.kill)
                victim.start()
    return kills, stops


async def kill_server(server: LocalServer, run: Run) -> int:
    """Kill the server and start it again, evenly over the run."""
    for _ in range(run.server_kills):
        await asyncio.sleep(run.seconds / (run.server_kills + 1))
        server.kill()
        await server.start()
    return run.server_kills


async def trial(directory: Path, run: Run) -> dict[str, object]:
    """The whole run, and what its notes say."""
    home = StateDirectory(directory / "home")
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, RULES)
        owner = await stack.enter_async_context(assembly.join(home, "owner", key="owner"))
        await owner.session.sync_control()
        take_ms, engine_ms = await measured(owner.session)
        contenders = [
            ContenderProcess(
                ContenderConfig(
                    home=home.path,
                    key=f"contender-{number}",
                    directory=directory,
                    keys=run.locks,
                    seed=run.seed,
                )
            )
            for number in range(run.processes)
        ]
        for one in contenders:
            stack.callback(one.kill)
            one.start()
        ends_s = await begin(directory, run)
        (kills, stops), server_kills = await asyncio.gather(
            disturb(contenders, run, ends_s), kill_server(servers[0], run)
        )
        for one in contenders:
            await one.ended(ends_s + LATE_S)
    summary = judged(directory)
    times = {"take_p50_ms": round(take_ms, 2), "engine_p50_ms": round(engine_ms, 2)}
    return {**summary, **times, "kills": kills, "stops": stops, "server_kills": server_kills}


def judged(directory: Path) -> dict[str, object]:
    """What the notes of all processes say, as numbers."""
    attempts: list[audit.Attempt] = []
    refused = 0
    for journal in directory.glob("*.journal"):
        notes = notes_of(journal)
        refused += sum(note.event == "refused" for note in notes)
        attempts += audit.attempts_of(journal.stem, notes)
    two, back = audit.violations(attempts), audit.regressions(attempts)
    answers = audit.linearizable(attempts, TTL_MS / 1000)
    for line in (two + back)[:SHOWN]:
        say(line)
    handover = sorted(audit.handovers_ms(attempts)) or [0.0]
    return {
        "acquisitions": sum(one.has for one in attempts),
        "violations": len(two),
        "fence_regressions": len(back),
        "linearizable": all(one == "yes" for one in answers.values()),
        "histories": answers,
        "stale_writes_refused": refused,
        "handovers": len(handover),
        "handover_p50_ms": round(handover[len(handover) // 2], 1),
        "handover_p99_ms": round(handover[int(len(handover) * 0.99)], 1),
    }


async def execute(run: Run) -> int:
    summary = await timed(lambda directory: trial(directory, run))
    summary |= {"processes": run.processes, "locks": run.locks, "seed": run.seed}
    is_right = (
        summary["acquisitions"]
        and not summary["violations"]
        and not summary["fence_regressions"]
        and summary["linearizable"]
    )
    return report(summary, holds=bool(is_right))


def main(argv: list[str]) -> int:
    parser = parser_for("locks", "6 processes, 2 locks, 8 s")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--locks", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--kills", type=int)
    args = parser.parse_args(argv)
    quick = args.quick
    run = Run(
        processes=args.processes or (6 if quick else 50),
        locks=args.locks or (2 if quick else 5),
        seconds=args.seconds or (8.0 if quick else 60.0),
        kills=args.kills or (6 if quick else 60),
        server_kills=1 if quick else 3,
        seed=args.seed,
    )
    return run_to_end(execute(run))
