"""The round in which an answer is lost just before two days without a connection.

Meanwhile the job ends, and its lane is archived and purged. Nothing but an archive knows then that
it ran. It is told in virtual time, on the memory engine: no server lets two days pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.errors import OutcomeUnknown, Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.outbox.outbox_item import OutboxItem, Submit
from antiphon.runtime.outbox.outbox_sender import OutboxSender
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.testing.host_clock import HostClock, SeededEntropy
from antiphon.testing.virtual_time import new_loop
from chaos.offline.process import KIND

EPOCH_MS: Final = 1_700_000_000_000
AWAY_S: Final = 2 * 24 * 3600
RULES: Final = Rules(authority="open", retention_ms=3_600_000)


class _Mesh:
    """One mesh in memory, with its owner."""

    def __init__(self, loop: Any) -> None:
        self.wall = HostClock(loop, epoch_ms=EPOCH_MS)
        self.entropy = SeededEntropy("offline")
        self.server = MemoryServer(self.wall)
        self.owner = SeedKeyring(self.entropy.token(32))
        self.signed = genesis.sign(
            self.owner, self.wall, name="chaos", recovery=self.owner.did, rules=RULES
        )

    async def session(self, keyring: SeedKeyring | None = None) -> Session:
        engine = MemoryEngine(self.server, self.signed.mesh)
        await genesis.write(engine.log, self.signed)
        key = keyring or SeedKeyring(self.entropy.token(32))
        author = Author(self.signed.mesh, key, self.wall, max_drift_ms=2_000, mark=NoMark())
        session = Session(engine, author, self.wall, self.entropy)
        await session.sync_control()
        return session


def told_after_an_archive(folder: Path, *, knows: bool) -> str:
    """What the laptop's item is in the end, where its machine's archive has the job or not.

    `ran twice` if the job was scheduled again.
    """
    loop = new_loop()
    try:
        told: str = loop.run_until_complete(_story(_Mesh(loop), folder, knows=knows))
    finally:
        loop.close()
    return told


async def _story(mesh: _Mesh, folder: Path, *, knows: bool) -> str:
    owner, laptop = await mesh.session(mesh.owner), await mesh.session()
    content = manifest.author({"command": ["true"], "timeout": 30})
    content = manifest.with_nonce(content, "0" * 32, "random")
    body, store = ScheduleBody(kind=KIND, manifest=content), OutboxStore(folder)
    job = manifest.job_id(content)
    hlc = laptop.author.tick()
    store.put(
        OutboxItem(
            what=Submit(body),
            author=laptop.author.did,
            hlc=(hlc[0], hlc[1]),
            at_ms=mesh.wall.now_ms(),
        )
    )

    async def archived(_kind: str, _job: str) -> bool:
        return knows

    sender = OutboxSender(store, laptop, deliver=_no_message, archived=archived)
    really: Callable[..., Awaitable[int]] = laptop.commit

    async def unanswered(*given: Any, **how: Any) -> int:
        await really(*given, **how)
        raise OutcomeUnknown("the answer was lost")

    laptop.commit = unanswered  # type: ignore[method-assign]
    try:
        await sender.send()
    except Unavailable:
        laptop.commit = really  # type: ignore[method-assign,assignment]
    await submission.cancel(owner, KIND, job, reason="it has ended")
    await asyncio.sleep(AWAY_S)
    now_ms = mesh.wall.now_ms()
    before = ArchiveBody(
        before=now_ms - RULES.retention_ms - 1_000,
        memo_before=max(0, now_ms - RULES.horizon_ms - 1_000),
    )
    await owner.sync_control()
    await write_one(owner, Intent(MeshArchive, before))
    seq = owner.control.archive.seq
    await owner.log.purge(f"ap.{owner.mesh}.jobs.*.{KIND}.{job}", upto=seq)
    await sender.send()
    (item,) = store.items()
    is_there = (await owner.read_lane(KIND, job)).lane.job is not None
    return "ran twice" if is_there else item.state


async def _no_message(_: object) -> None:
    raise TypeError("there is no message here")
