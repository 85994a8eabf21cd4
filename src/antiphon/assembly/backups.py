"""Backs up the mesh that a state directory hosts, and checks backups."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from antiphon.assembly.logins import Purpose, connect
from antiphon.assembly.mesh_connection import OWNER
from antiphon.assembly.mesh_connection import place as placed
from antiphon.core.archive.checkpoint import CHECKPOINT
from antiphon.errors import Misconfigured
from antiphon.files import replace_file
from antiphon.read_back import read_back
from antiphon.runtime.backup.backup_check import BackupReport, Progress, check_backup
from antiphon.runtime.backup.backup_files import BackupFiles
from antiphon.runtime.backup.backup_writer import Source, Written, write_backup
from antiphon.runtime.backup.host_files import KEYS, checked_files, key_files
from antiphon.runtime.backup.key_file import KeyFile, seal, unseal
from antiphon.runtime.file_store import FileStore, writing
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import SEED_BYTES, SeedKeyring, lock_file
from antiphon.runtime.log.author import NoMark
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.record_verifier import RecordVerifier
from antiphon.runtime.replica.replica import Replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antiphon.engines.nats import NatsEngine
    from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory


async def back_up(
    home: StateDirectory, place: FileStore, *, archive: FileStore | None = None
) -> Written:
    """Bring the backup in a folder or a bucket up to date with the mesh that `home` hosts."""
    described = require_host(home)
    backup = BackupFiles(place)
    async with backup.locked(), _archive(archive) as source:
        return await _back_up(home, described, backup, source)


async def _back_up(
    home: StateDirectory, described: MeshFile, backup: BackupFiles, archive: FileStore | None
) -> Written:
    async with _engine(home, described) as engine:
        source = Source(
            mesh=described.mesh,
            name=described.name,
            engine=described.engine,
            log=engine.copy_of("log"),
            messages=engine.copy_of("messages"),
            blobs=engine.own_blobs,
            home=home.path,
            archive=archive,
        )
        now_ms = time.time_ns() // 1_000_000
        return await write_backup(source, backup, home.signer(OWNER), now_ms=now_ms)


@asynccontextmanager
async def _engine(home: StateDirectory, described: MeshFile) -> AsyncIterator[NatsEngine]:
    """A connection to the host's server; one that does not run is started for as long."""
    from antiphon.engines.nats import NatsEngine
    from antiphon.engines.nats.server.process import is_in_use

    if not is_in_use(home.server):
        words = f"{home.path} is about to be hosted"
        lock = lock_file(home.path / "dev.lock", words)  # as whoever hosts it has it
        try:
            async with quiet_engine(home, described.mesh, described.name) as engine:
                yield engine
        finally:
            lock.release()
        return
    found = await connect(described, home.access(), Purpose(name="backup"), home=home)
    try:
        if not isinstance(found, NatsEngine):
            raise Misconfigured("a backup needs a NATS server, and all permissions there")
        yield found
    finally:
        await found.close()


@asynccontextmanager
async def quiet_engine(
    home: StateDirectory, mesh: str, name: str, *, create: bool = False
) -> AsyncIterator[NatsEngine]:
    """The directory's own server on a free loopback port, where nobody else looks for it."""
    from antiphon.engines.nats import Accounts, LocalServer, Login, NatsEngine, UserKey

    accounts = None
    if (home.server / "accounts.json").is_file():
        accounts = Accounts.open(home.server, name)
    async with LocalServer(home.server, accounts=accounts) as server:
        login = server.login
        if accounts is not None:
            user, now_s = UserKey.new(), int(time.time())
            jwt = accounts.user_jwt(user.public, None, expires_s=None, name="own", issued_s=now_s)
            login = Login(jwt=jwt, user_seed=user.seed)
        async with await NatsEngine.connect(server.url, mesh, login=login, create=create) as engine:
            yield engine


@asynccontextmanager
async def _archive(store: FileStore | None) -> AsyncIterator[FileStore | None]:
    """The archive, which nobody else writes while the block runs; None if there is none."""
    if store is None or not await store.has(CHECKPOINT):
        yield None
        return
    async with writing(store):
        yield store


def require_host(home: StateDirectory) -> MeshFile:
    """The mesh that a state directory hosts; `Misconfigured` if it only takes part in one."""
    described = home.mesh()
    if not home.hosts_mesh:
        raise Misconfigured(
            f"{home.path} does not host the mesh {described.name!r}",
            hint="back up on the machine where 'antiphon up' or 'antiphon dev' runs",
        )
    return described


def store_keys(home: StateDirectory, file: Path, passphrase: str) -> KeyFile:
    """Write the keys of a host into a file that the passphrase opens."""
    described = require_host(home)
    keys = KeyFile(
        mesh=described.mesh, made_ms=time.time_ns() // 1_000_000, files=key_files(home.path)
    )
    data = seal(keys, passphrase)
    read_back("the file of keys", keys, _restorable, data, passphrase)
    replace_file(file, data)
    return keys


def _restorable(data: bytes, passphrase: str) -> KeyFile:
    """The keys as a restore takes them."""
    keys = unseal(data, passphrase)
    checked_files(keys.files, patterns=KEYS)
    return keys


async def check(
    place: FileStore, *, replica: Path | str = ":memory:", told: Progress = lambda *_: None
) -> BackupReport:
    """Check a backup without its mesh; a full node's replica of it is left in `replica`."""
    from antiphon.engines.memory import MemoryEngine, MemoryServer

    backup = BackupFiles(place)
    manifest = await backup.require_manifest()
    engine = MemoryEngine(MemoryServer(SystemClock()), manifest.mesh)
    reader = SeedKeyring(SystemEntropy().token(SEED_BYTES))
    session = placed(engine, manifest.mesh, reader, "backup", NoMark()).session
    kept = Replica(replica, mesh=manifest.mesh)
    try:
        with RecordVerifier(session.protocol, manifest.mesh) as verifier:
            node = FullNode(session, kept, verifier)
            return await check_backup(backup, manifest, node, told=told)
    finally:
        kept.close()
        await engine.close()
