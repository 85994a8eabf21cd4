"""`chaos gitface`: jobs are committed, pushed and read with git alone while the bridge is killed.

Several people with SSH keys push signed commits to a repository, each until it was taken. The
bridge is killed at random and started again. In the end every pushed commit must be exactly one
job with one accepted result, and a fresh clone must prove all of it: the bundles, the commits that
follow from them, and, with git alone, the trailers. Each commit also goes to a branch of its own,
which is followed: a plan answers it with one job, and a note on the commit says how that ended. A
second part runs many jobs and measures how a repository with all of them behaves.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from blake3 import blake3
from msgspec import Struct

from antiphon import assembly, on
from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import Rejected
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.sdk.git.ssh_signature import did_of_ssh_key
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.proofs import bundles
from bench.measurement.report import say
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.process_events import wait_for_event
from chaos.gitface import size
from chaos.gitface.writers import BRANCH, KIND, Writer, git, run_git

PATIENCE_S: Final = 180.0
ROUND_S: Final = 0.5
SEALED_EVERY_S: Final = 4.0
KILLED_AFTER_S: Final = (0.2, 3.0)
PUSH: Final = "git.push.jobs"
CHECK: Final = "ci.check"
NOTE: Final = ("notes", "--ref=antiphon", "show")
ANTIPHON: Final = str(Path(sys.executable).parent / "antiphon")


class Plan(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    jobs: int
    writers: int
    kills: int
    size: int
    seed: int


class KilledBridge:
    """An `antiphon git serve` that is killed again and again, and started again each time."""

    def __init__(self, home: Path, repository: Path, chance: random.Random) -> None:
        follow = ("--follow", f"{BRANCH}*", "--json", "--home", str(home))
        self._words = ("git", "serve", str(repository), *follow)
        self._chance = chance
        self._process: Process | None = None
        self.killed = 0

    async def start(self) -> None:
        """Start it; it has caught up with the log then."""
        self._process = await start_owned(ANTIPHON, *self._words, stdout=PIPE)
        await wait_for_event(self._process, "ready", within_s=PATIENCE_S)

    async def torment(self, kills: int) -> None:
        """Kill it so often, sometimes before it is ready."""
        for _ in range(kills):
            await asyncio.sleep(self._chance.uniform(*KILLED_AFTER_S))
            await self.end()
            self.killed += 1
            if self._chance.random() < 0.3:
                self._process = await start_owned(ANTIPHON, *self._words, stdout=PIPE)
                await asyncio.sleep(self._chance.uniform(0.3, 1.0))
                await self.end()
                self.killed += 1
            await self.start()

    async def end(self) -> None:
        """Kill it; safe twice."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def trial(directory: Path, plan: Plan) -> dict[str, Any]:
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1", "localhost"))
    home, repository = directory / "owner", directory / "jobs.git"
    runs: Counter[int] = Counter()
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(
            hosted_mesh.found_and_host(home, name="gitface", listen=listen)
        )
        owner = Mesh.open(home=home, role="client")

        @owner.task(KIND)
        async def squares(number: int) -> int:
            runs[number] += 1
            return number * number

        @owner.task(CHECK)
        async def check() -> str:
            return "checked"

        await stack.enter_async_context(owner)
        await hosted.coordinate(await _node(stack, home))
        await stack.enter_async_context(owner.worker(slots=32))
        writers = [Writer(directory / f"writer-{one}") for one in range(plan.writers)]
        async with with_authority(home) as authority:
            for number, writer in enumerate(writers):
                terms = Terms(can=("schedule",), kinds=("sum.*",), alias=f"writer-{number}")
                await authority.authority.grant(did_of_ssh_key(writer.key), terms)
        await owner.plans.put("ci", on("succeeded", kind=PUSH), check.bind())
        bridge = KilledBridge(home, repository, random.Random(plan.seed))
        stack.push_async_callback(bridge.end)
        await bridge.start()
        pushing = [_push_all(one, repository, at, plan) for at, one in enumerate(writers)]
        tormenting = asyncio.ensure_future(bridge.torment(plan.kills))
        pushed = await asyncio.gather(*pushing)
        await tormenting
        jobs = dict(pair for pairs in pushed for pair in pairs)
        say(f"{len(jobs)} commits are pushed, {bridge.killed} times the bridge was killed")
        for job in jobs.values():
            await owner.job(KIND, job).result(timeout=PATIENCE_S)
        # A pushed job, the push of its commit to a branch, and what the plan answered.
        await _until_bundled(repository, 3 * len(set(jobs.values())))
        await bridge.end()
        owner_key = (await owner.authority.who()).owner
        found = await asyncio.to_thread(_check, directory, repository, jobs, owner_key)
        kinds = (KIND, PUSH, CHECK)
        on_log = [len(await owner.jobs(kind=one, limit=10_000)) for one in kinds]
        several = sum(max(found - len(jobs), 0) for found in on_log)
        found |= {
            "killed": bridge.killed,
            "twice": several + sum(count > 1 for count in runs.values()),
            "refused_pushes": sum(one.refused for one in writers),
        }
        sized = await size.measure(owner, directory / "size.git", plan.size) if plan.size else {}
        return found | sized


async def _node(stack: AsyncExitStack, home: Path) -> FullNode:
    """A full node that seals more often than usual: nobody waits for half a minute."""
    place = StateDirectory(home)
    connection = await stack.enter_async_context(assembly.join(place, "node"))
    replica = await stack.enter_async_context(
        assembly.owned_replica(place.replica, place, connection)
    )
    return await stack.enter_async_context(
        assembly.replicating(connection, replica, caretaking=True, bar_s=SEALED_EVERY_S)
    )


async def _push_all(writer: Writer, repository: Path, at: int, plan: Plan) -> list[tuple[str, str]]:
    numbers = range(at, plan.jobs, plan.writers)
    return [await writer.submit(repository, number) for number in numbers]


async def _until_bundled(repository: Path, jobs: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        names = await asyncio.to_thread(
            git, repository, "for-each-ref", "--format=%(refname)", "refs/gatos"
        )
        if sum(one.endswith("/bundle") for one in names.split()) >= jobs:
            return
        await asyncio.sleep(ROUND_S)
    say("not every job has a bundle")


def _check(directory: Path, repository: Path, jobs: dict[str, str], owner: str) -> dict[str, Any]:
    """What a fresh clone proves, with nothing but the clone and the owner's id."""
    clone = directory / "clone.git"
    git(directory, "clone", "--quiet", "--mirror", str(repository), str(clone))
    refs = dict(
        line.split()
        for line in git(
            clone, "for-each-ref", "--format=%(refname) %(objectname)", "refs/gatos"
        ).splitlines()
    )
    lost = verified = trailers = noted = 0
    for commit, job in jobs.items():
        folder = f"refs/gatos/jobs/{job}/"
        lost += refs.get(f"{folder}pushed") != commit or f"{folder}result" not in refs
        trailers += f"{folder}result" in refs and _agree(clone, folder, job)
        verified += f"{folder}bundle" in refs and _is_valid(clone, folder, owner)
        noted += "Outcome: succeeded" in run_git(clone, *NOTE, commit).stdout
    whole = _verify(clone, owner)
    return {
        "jobs": len(jobs),
        "verified_from_clone": min(verified, int(whole["verified"])),
        "trailers_agree": trailers,
        "noted": noted,
        "notes_verified": int(whole["notes"]),
        "wrong": int(whole["wrong"]),
        "lost": lost,
    }


def _agree(clone: Path, folder: str, job: str) -> bool:
    """Whether the trailers, as git reads them, name the job and the proof that is there."""
    message = git(clone, "log", "-1", "--format=%B", f"{folder}result")
    parsed = git(clone, "interpret-trailers", "--parse", given=message + "\n")
    said = dict(line.split(": ", 1) for line in parsed.splitlines())
    proof = git(clone, "show", f"{folder}result:proof.json")
    wanted = {"Job-Id": f"blake3:{job}", "Outcome": "succeeded"}
    wanted["Proof-Of-Execution"] = f"blake3:{blake3(proof.encode()).hexdigest()}"
    return wanted.items() <= said.items()


def _is_valid(clone: Path, folder: str, owner: str) -> bool:
    """What `antiphon verify` says about a bundle."""
    data = git(clone, "show", f"{folder}bundle:bundle.json") + "\n"
    try:
        bundles.open_bundle(data.encode(), owner=owner)
    except Rejected as problem:
        say(f"{folder}: {problem.message}")
        return False
    return True


def _verify(clone: Path, owner: str) -> dict[str, Any]:
    words = [ANTIPHON, "git", "verify", str(clone), "--owner", owner, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    for one in found["findings"]:
        say(f"{one['ref']}: {one['problem']}")
    return found


def holds(summary: dict[str, Any], plan: Plan) -> bool:
    """Whether the claim holds: every commit is one job, and the clone proves it."""
    jobs = summary["jobs"]
    return (
        jobs == plan.jobs
        and jobs == summary["verified_from_clone"] == summary["trailers_agree"]
        and jobs == summary["noted"] == summary["notes_verified"]
        and summary["killed"] >= plan.kills
        and not any(summary[name] for name in ("lost", "twice", "wrong"))
    )


async def run(plan: Plan) -> int:
    with run_directory() as directory:
        summary = await trial(directory, plan)
    return report(summary, holds=holds(summary, plan))


def main(argv: list[str]) -> int:
    parser = parser_for("gitface", "12 jobs, 2 kills, a repository of 200 jobs")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--size", type=int, help="jobs in the repository that is measured")
    args = parser.parse_args(argv)
    jobs, kills, sized = (12, 2, 200) if args.quick else (150, 20, 10_000)
    plan = Plan(
        jobs=jobs if args.jobs is None else args.jobs,
        kills=kills if args.kills is None else args.kills,
        size=sized if args.size is None else args.size,
        writers=args.writers,
        seed=args.seed,
    )
    return run_to_end(run(plan))
