"""`chaos restore`: a mesh is backed up under load, its host destroyed, and restored elsewhere.

A member submits jobs and runs them, takes locks, writes documents, sends messages and stores
values, and keeps a full node. Meanwhile the mesh is backed up several times. Then it goes on for a
while; host and server are killed, and their directory is removed. The backup is restored at another
address. Then:

- every record of the backup is on the new log, with its place, its time, its bytes and its verdict;
- so is every message and every stored value that was confirmed before the last backup began;
- the member's node stops, and names every record that was confirmed and is not on the new log;
- the member goes on without a new ticket, and a job that it submits is run and proved.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon.assembly import backups, moving, restoration
from antiphon.assembly.replaced_log import Accepted, accept_replaced
from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import LogReplaced
from antiphon.runtime.backup.host_files import key_files
from antiphon.runtime.backup.key_file import KeyFile
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica import Replica
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.proofs import bundles
from bench.measurement.report import say
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.command_frame import parser_for, report, run_to_end, timed
from chaos.restore import process
from chaos.restore.load import KIND, SHOP, Acknowledged, Load
from chaos.restore.process import HostConfig

READY_S: Final = 120.0
LOOK_S: Final = 0.05
SHOWN: Final = 10
PRELOADED: Final = (
    "antiphon.engines.nats.gate.blob_service",
    "antiphon.engines.nats.gate.read_service",
    "antiphon.engines.nats.server.certificate_authority",
    "antiphon.runtime.coordinator.coordinator",
    "antiphon.runtime.coordinator.quorums",
    "antiphon.runtime.messages.message_desk",
    "antiphon.runtime.node.sealer",
    "antiphon.runtime.plans.plan_runner",
    "antiphon.runtime.tempo.reverb",
    "antiphon.sdk.hosting.hosted_mesh",
)


class Run(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    backups: int
    rounds: int
    """Rounds of the load between two backups, and after the last."""
    proves: bool = False
    """Whether the last job is proved by a bundle, which waits for a seal."""


class Host(ChildProcess):
    """A machine that hosts the mesh."""

    def __init__(self, directory: Path, name: str) -> None:
        self.home = StateDirectory(directory / name)
        self._ready, self._log = directory / f"{name}.ready", directory / f"{name}.log"
        config = HostConfig(home=self.home.path, ready=self._ready, log=self._log)
        super().__init__(process.main, config, PRELOADED)

    async def serve(self) -> None:
        """Start it, and wait until members can connect."""
        await asyncio.to_thread(self.start)
        deadline = time.monotonic() + READY_S
        while not self._ready.exists():
            if self.running is None or time.monotonic() > deadline:
                raise RuntimeError(f"the host failed:\n{self._log.read_text()[-2000:]}")
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """Kill it, and the server that it started; safe twice."""
        self.kill()
        if self._ready.exists():
            pid = int(self._ready.read_text())
            self._ready.unlink()
            os.kill(pid, signal.SIGKILL)


async def loaded(directory: Path, run: Run, host: Host) -> tuple[list[Acknowledged], int, int]:
    """Back up under load; what was confirmed, before the last backup and in all, and the end."""
    member = StateDirectory(directory / "member")
    ticket = hosted_mesh.invite(host.home, Terms(can=("all",), alias="member"))
    await hosted_mesh.redeem(member, ticket, alias="member")
    async with Mesh.open(home=member.path) as mesh:
        register(mesh)
        async with mesh.node() as node, mesh.worker():
            load, is_over = Load(mesh, directory), asyncio.Event()
            running = asyncio.create_task(load.run(is_over))
            before = 0
            for number in range(run.backups + 1):
                target = len(load.acknowledged) + 5 * run.rounds
                while len(load.acknowledged) < target and not running.done():
                    await asyncio.sleep(LOOK_S)
                if number < run.backups:
                    before = len(load.acknowledged)
                    done = await backups.back_up(host.home, FolderStore(directory / "backup"))
                    say(f"backup {number + 1}: {done.records} new records, {done.bytes} bytes")
            is_over.set()
            await running
            last = await mesh.connection.session.log.last()
            seen = last.seq if last is not None else 0
            await node.reached(seen)
    return load.acknowledged, before, seen


def register(mesh: Mesh) -> None:
    """The task that the member runs."""

    @mesh.task(KIND)
    async def restored(number: int) -> int:
        return number + 1


async def trial(directory: Path, run: Run) -> dict[str, Any]:
    """The whole run, and what was found."""
    async with AsyncExitStack() as stack:
        first = Host(directory, "first")
        stack.callback(first.end)
        await first.serve()
        confirmed, before, seen = await loaded(directory, run, first)
        keys = KeyFile(mesh=first.home.mesh().mesh, made_ms=0, files=key_files(first.home.path))
        await asyncio.to_thread(first.end)
        shutil.rmtree(first.home.path)
        begun = time.monotonic()
        second = Host(directory, "second")
        stack.callback(second.end)
        port = free_port()
        listen = hosted_mesh.Listen(host="127.0.0.1", port=port, names=("127.0.0.1",))
        done = await restoration.restore(
            FolderStore(directory / "backup"), second.home, keys, listen=listen
        )
        await second.serve()
        restored_s = time.monotonic() - begun
        say(f"restored {done.report.records} of {seen} records in {restored_s:.1f} s")
        await moving.follow_address(StateDirectory(directory / "member"), f"127.0.0.1:{port}")
        known = Known(confirmed=confirmed, before=before, upto=done.report.upto)
        found = await compared(directory, known, second, proves=run.proves)
        size = sum(one.stat().st_size for one in (directory / "backup").rglob("*") if one.is_file())
        return {
            "records": done.report.records,
            **found,
            "confirmed": len(confirmed),
            "after_backup": seen - done.report.upto,
            "restored_s": round(restored_s, 2),
            "mb": round(size / 1e6, 3),
        }


def free_port() -> int:
    """One that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Known(Struct, frozen=True, kw_only=True):
    """What is known of the mesh that was destroyed."""

    confirmed: list[Acknowledged]
    before: int
    """How many of them were confirmed before the last backup began."""
    upto: int
    """Where that backup ends."""


async def compared(directory: Path, known: Known, host: Host, *, proves: bool) -> dict[str, Any]:
    """Hold what the member knows against the restored mesh."""
    member = StateDirectory(directory / "member")
    confirmed, before = known.confirmed, known.before
    stopped = await has_stopped(member)
    accepted = await accept_replaced(member)
    async with Mesh.open(home=member.path) as mesh:
        register(mesh)
        async with mesh.node() as node, mesh.worker():
            handle = await mesh.submit(KIND, 10**6)
            went_on = await handle.result("120s") == 10**6 + 1
            unverified = 0
            if proves:
                data = await bundles.export(mesh, KIND, handle.id)
                unverified = int(bundles.open_bundle(data).job.id != handle.id)
            changed = await asyncio.to_thread(different, accepted, member, node.replica, known.upto)
            lost, silent = await missing(mesh, confirmed, before, accepted)
            lost += await unread(mesh, confirmed[:before])
    async with Mesh.open(home=host.home.path) as owner:
        lost += await unstored(owner, confirmed[:before])
    await backups.back_up(host.home, FolderStore(directory / "again"))
    await backups.check(FolderStore(directory / "again"))
    return {
        "lost": lost + changed[0],
        "unverified": unverified + changed[1],
        "named": len(accepted.lost),
        "silent": silent,
        "stopped": stopped,
        "went_on": went_on,
    }


async def has_stopped(member: StateDirectory) -> bool:
    """Whether a full node that has seen more refuses to go on."""
    try:
        async with Mesh.open(home=member.path) as mesh, mesh.node():
            return False
    except LogReplaced:
        return True


def different(
    accepted: Accepted, member: StateDirectory, now: Replica, upto: int
) -> tuple[int, int]:
    """How many records of the backup are not there as they were; and how many other verdicts."""
    lost = unverified = 0
    path = accepted.kept or member.replica
    before = Replica(path, mesh=member.mesh().mesh)
    try:
        for seq in range(1, upto + 1):
            old, new = before.record(seq), now.record(seq)
            if old is None or new is None or old.record != new.record:
                lost += 1
            elif old.verdict is not new.verdict:
                unverified += 1
    finally:
        before.close()
    return lost, unverified


async def missing(
    mesh: Mesh, confirmed: list[Acknowledged], before: int, accepted: Accepted
) -> tuple[int, int]:
    """Records that were confirmed before the backup and are gone; and later ones not named."""
    lost = silent = 0
    named = {(one.kind, one.name) for one in accepted.lost}
    for number, one in enumerate(confirmed):
        if one.key is None:
            continue
        view = await mesh.connection.session.read(one.key)
        if view.history:
            continue
        if number < before:
            lost += _told(one.what, {one.key.name})
        elif (one.key.kind, one.key.name) not in named:
            say(f"not named: {one}")
            silent += 1
    return lost, silent


async def unread(mesh: Mesh, confirmed: list[Acknowledged]) -> int:
    """Messages that are not in the inbox any more."""
    notes = {one.name for one in confirmed if one.what == "message"}
    async for message in mesh.messages.inbox(agent=SHOP, wait="2s", prefetch=16):
        notes.discard(str(message.payload))
        await message.ack()
        if not notes:
            break
    return _told("message", notes)


async def unstored(owner: Mesh, confirmed: list[Acknowledged]) -> int:
    """Stored values that are not there any more."""
    blobs = owner.connection.session.engine.blobs
    values = {one.name for one in confirmed if one.what == "value"}
    return _told("value", {one for one in values if not await blobs.has(one)})


def _told(what: str, gone: set[str]) -> int:
    for one in sorted(gone)[:SHOWN]:
        say(f"lost: {what} {one}")
    return len(gone)


def main(argv: list[str]) -> int:
    parser = parser_for("restore", "one small trial, for CI", has_seed=False)
    options = parser.parse_args(argv)
    run = Run(backups=2, rounds=1) if options.quick else Run(backups=6, rounds=20, proves=True)
    summary = run_to_end(timed(lambda directory: trial(directory, run)))
    holds = (
        not summary["lost"]
        and not summary["unverified"]
        and not summary["silent"]
        and summary["stopped"]
        and summary["went_on"]
    )
    return report(summary, holds=holds)
