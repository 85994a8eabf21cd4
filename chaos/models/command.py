"""`chaos audit`: agents call models with the stock clients while audit is in force.

Every call has to have a snapshot that its job's completion names, that is of just that call, and
that a bundle proves. One more worker has had the capture taken out: none of its completions may be
accepted. The key that the clients send, a canary, may be nowhere: not in a record, a snapshot, a
replica, nor in anything that a process wrote.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.families.jobs.audited_calls import snapshots_in
from antiphon.core.families.jobs.ops import JobComplete, Retry, ScheduleBody
from antiphon.core.families.jobs.state import job_key
from antiphon.core.record.verdict import Verdict
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.model_calls import ModelCall, calls_on
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import FullNode
from antiphon.sdk.proofs import bundles
from antiphon.testing.model_server import ModelServer
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.mesh import SHORT_LEASES
from chaos.cluster.process_events import wait_for_event
from chaos.models.process import CALLS, FORMS, HIDDEN, KIND

READY_S: Final = 120.0
PATIENCE_S: Final = 240.0
LOOK_S: Final = 0.1
SEALED_EVERY_S: Final = 1.0
AUDITED: Final = replace(SHORT_LEASES, audit_inference=True, lease_ms=5_000, lease_ms_max=10_000)
WORDS: Final = "the words of the question"
SHOWN: Final = 10
PAGE: Final = 500


class Plan(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    jobs: int
    hidden: int
    """Jobs that the worker without the capture runs."""
    workers: int
    bundles: int
    is_stock: bool = True
    """Whether the stock clients are used: they take seconds to import."""


class Found(Struct, kw_only=True):
    """What the log and the store say."""

    jobs_ended: int = 0
    snapshots: int = 0
    linked: int = 0
    wrong: int = 0


@asynccontextmanager
async def _worker(home: Path, url: str, key: str, log: Path, *how: str) -> AsyncIterator[None]:
    place = ("--home", str(home), "--url", url, "--key", key)
    with log.open("wb") as errors:
        process = await start_owned(
            sys.executable, "-m", "chaos.models.process", *place, *how, stdout=PIPE, stderr=errors
        )
        try:
            await wait_for_event(process, "ready", within_s=READY_S)
            yield
        finally:
            if process.returncode is None:
                process.kill()
            rest = await process.stdout.read() if process.stdout is not None else b""
            errors.write(rest)
            await process.wait()


async def _submit(session: Session, kind: str, form: str, words: str) -> str:
    text = call_text((form, words), {})
    content = manifest.author({"command": [f"@{kind}"], "args": [text], "timeout": 60})
    attempts = 1 if kind == HIDDEN else 3
    body = ScheduleBody(kind=kind, manifest=content, retry=Retry(attempts=attempts))
    return (await submission.submit(session, body)).id


async def _look(session: Session, job: str, form: str, found: Found) -> list[ModelCall]:
    """The calls of a job that has ended, held against what its completion names."""
    view = await session.read_lane(KIND, job)
    calls = await calls_on(view, Artifacts(session.engine.blobs))
    ended = submission.ended_of(view)
    named = [one.hash for one in snapshots_in(ended.outputs)] if ended is not None else []
    found.jobs_ended += ended is not None and ended.job.outcome == "succeeded"
    found.snapshots += len(calls)
    for one in calls:
        is_linked = one.hash in named and one.snapshot is not None
        found.linked += is_linked
        if not is_linked or not _is_whole(one):
            found.wrong += 1
            if found.wrong <= SHOWN:
                say(f"{form} {job[:8]} call {one.number}: {one.where}, {one.snapshot}")
    return calls


def _is_whole(call: ModelCall) -> bool:
    """Whether a snapshot has what was asked and what was answered."""
    made = call.snapshot
    return (
        made is not None
        and made.telemetry.is_complete
        and bool(made.model.id and made.model.version and made.answers)
        and WORDS in str((made.prompt, made.context))
    )


async def _until(is_so: Any, what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not await is_so():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what} took longer than {PATIENCE_S:.0f} s")
        await asyncio.sleep(LOOK_S)


async def _refusals(session: Session, jobs: list[str]) -> int:
    """Completions of the worker without the capture that got the verdict `audit`."""
    count = 0
    for job in jobs:
        history = (await session.read_lane(HIDDEN, job)).history
        ends = [one for one in history if isinstance(one.opened.op, JobComplete)]
        count += any(one.verdict is Verdict.AUDIT for one in ends)
        count -= any(one.verdict is Verdict.OK for one in ends)
    return count


async def _proved(node: FullNode, session: Session, jobs: list[str]) -> int:
    """Jobs whose bundle proves their snapshots: the bytes have the digests that it names."""
    store, count = Artifacts(session.engine.blobs), 0
    for job in jobs:
        data: bytes | None = None

        async def is_sealed(job: str = job) -> bool:
            nonlocal data
            data = await bundles.bundle_bytes(node.replica, job_key(KIND, job))
            return data is not None

        await _until(is_sealed, "a seal")
        shown = bundles.open_bundle(data or b"")
        if shown.completion is None:
            continue
        named = snapshots_in(shown.completion.body.outputs)
        read = [await store.read(one, job=(KIND, job), max_bytes=one.size) for one in named]
        digests = [f"blake3:{blake3(raw).hexdigest()}" for raw in read]
        count += bool(named) and digests == [one.hash for one in named]
    return count


async def _told(session: Session, calls: list[ModelCall]) -> bytes:
    """Every record of the log, and every snapshot."""
    records, after, more = list[bytes](), 0, True
    while more:
        page = await session.log.read(after, limit=PAGE)
        records += [one.payload for one in page.records]
        more, after = page.more, page.records[-1].seq if page.records else after
    store = Artifacts(session.engine.blobs)
    content = [
        await store.read(one.hash, job=(one.kind, one.job_id), max_bytes=1 << 22) for one in calls
    ]
    return b"\n".join([*records, *content])


def _holding(value: str, directory: Path, told: bytes) -> int:
    """In how many places a value is: in what was told, or in a file of the run."""
    raw = value.encode()
    files = (one for one in directory.rglob("*") if one.is_file() and not one.is_symlink())
    return (raw in told) + sum(raw in one.read_bytes() for one in files)


async def trial(directory: Path, plan: Plan) -> dict[str, object]:
    """The whole run."""
    home, canary = StateDirectory(directory / "home"), f"canary-{secrets.token_hex(12)}"
    found = Found()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ModelServer())
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, AUDITED)
        caller = await stack.enter_async_context(assembly.join(home, "client"))
        # With the owner's key it coordinates, and seals what the bundles need.
        connection = await stack.enter_async_context(assembly.join(home, "node", key="owner"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, connection)
        )
        node = await stack.enter_async_context(
            assembly.replicating(connection, replica, caretaking=True, bar_s=SEALED_EVERY_S)
        )
        how = ("--stock",) if plan.is_stock else ()
        starting = [
            _worker(home.path, server.url, canary, directory / f"worker-{one}.log", *how)
            for one in range(plan.workers)
        ]
        log = directory / "without.log"
        starting.append(_worker(home.path, server.url, canary, log, "--without-capture"))
        await asyncio.gather(*(stack.enter_async_context(one) for one in starting))
        session = caller.session
        await session.sync_control()
        hidden = [
            await _submit(session, HIDDEN, "chat", f"{WORDS} {number}")
            for number in range(plan.hidden)
        ]
        forms = [FORMS[number % len(FORMS)] for number in range(plan.jobs)]
        jobs = [
            await _submit(session, KIND, form, f"{WORDS} {number}")
            for number, form in enumerate(forms)
        ]
        for job in jobs:
            await submission.wait_for_end(session, KIND, job)
        calls = [
            one
            for job, form in zip(jobs, forms, strict=True)
            for one in await _look(session, job, form, found)
        ]

        async def all_refused() -> bool:
            return abs(await _refusals(session, hidden)) >= plan.hidden

        await _until(all_refused, "the refusals")
        refused = await _refusals(session, hidden)
        proved = await _proved(node, session, jobs[: plan.bundles])
        told = await _told(session, calls)
        requests = len(server.requests)
        sent = sum(canary in str(one["headers"]) for one in server.requests)
    return {
        "snapshots": found.snapshots,
        "linked": found.linked,
        "rejected_without": refused,
        "jobs": found.jobs_ended,
        "calls": sum(CALLS.get(form, 1) for form in forms),
        "hidden": plan.hidden,
        "wrong": found.wrong,
        "bundles": proved,
        "requests": requests,
        "canary_sent": sent,
        "canary_found": _holding(canary, directory, told),
        "words_found": min(_holding(WORDS, directory, told), 1),
    }


def is_well(plan: Plan, summary: dict[str, Any]) -> bool:
    """Whether a run shows what it should."""
    return (
        summary["snapshots"] == summary["linked"] == summary["calls"]
        and summary["rejected_without"] == plan.hidden
        and summary["jobs"] == plan.jobs
        and summary["bundles"] == plan.bundles
        and summary["canary_sent"] == summary["requests"]
        and (summary["wrong"], summary["canary_found"], summary["words_found"]) == (0, 0, 1)
    )


async def run(plan: Plan) -> int:
    """Run it, and report."""
    begun = time.monotonic()
    with run_directory() as directory:
        summary = await trial(directory, plan)
    summary["seconds"] = round(time.monotonic() - begun, 1)
    return report(summary, holds=is_well(plan, summary))


def main(argv: list[str]) -> int:
    parser = parser_for("audit", "30 jobs", has_seed=False)
    parser.add_argument("--jobs", type=int)
    args = parser.parse_args(argv)
    jobs = args.jobs or (30 if args.quick else 200)
    workers = 1 if args.quick else 3
    return run_to_end(run(Plan(jobs=jobs, hidden=max(jobs // 10, 1), workers=workers, bundles=6)))
