"""Restores a mesh from a backup and a file of keys, into an empty state directory.

Everything is checked before anything is written, and what the server then holds is compared with
the backup, message by message. The directory names no mesh until all of that has succeeded, so a
restore that was killed is begun again, and never served.
"""

from __future__ import annotations

import shutil
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.assembly import backups
from antiphon.assembly.backups import quiet_engine
from antiphon.assembly.hosted_mesh import Listen
from antiphon.assembly.mesh_connection import OWNER
from antiphon.errors import Corrupt, Held, Misconfigured
from antiphon.files import replace_file
from antiphon.runtime.backup.backup_files import ARCHIVE, BackupFiles
from antiphon.runtime.backup.host_files import HOST, KEYS, put_back
from antiphon.runtime.file_store import FileStore, FolderStore, copy_files
from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from antiphon.engines.nats import NatsEngine
    from antiphon.ports import StoredMessage
    from antiphon.runtime.backup.backup_check import BackupReport, Progress
    from antiphon.runtime.backup.key_file import KeyFile
    from antiphon.runtime.backup.manifest import Manifest, Segment

MARKER: Final = "restoring"
"""The file that is there while a restore is under way, or after it was killed."""
_EXPIRES: Final = b"\r\nNats-TTL: "


class Restored(Struct, frozen=True, kw_only=True):
    """A mesh that was put back; `antiphon up` or `dev` serves it."""

    report: BackupReport
    mesh: MeshFile
    is_secured: bool
    expired: int
    """Messages whose time was over."""
    own: frozenset[str]
    """The keys that came back: of the owner, and of the processes of the mesh's host."""


async def restore(
    place: FileStore,
    home: StateDirectory,
    keys: KeyFile,
    *,
    listen: Listen | None = None,
    told: Progress = lambda *_: None,
) -> Restored:
    """Put a backup into an empty state directory; its server listens at `listen`, if given."""
    _require_empty(home)
    backup = BackupFiles(place)
    manifest = await backup.require_manifest()
    if keys.mesh != manifest.mesh:
        raise Misconfigured(
            f"these keys are of the mesh {keys.mesh}, and the backup is of {manifest.mesh}",
            hint="name the file that 'antiphon backup --keys' wrote for this mesh",
        )
    home.make()
    replace_file(home.path / MARKER, b"")
    report = await backups.check(place, replica=home.replica, told=told)
    if report.purged:
        for path in home.path.glob(f"{home.replica.name}*"):
            path.unlink()  # without those records it is none: the node makes its own
    put_back(home.path, keys.files, patterns=KEYS)
    put_back(home.path, await backup.host_files(manifest.host), patterns=HOST)
    if home.signer(OWNER).did != manifest.by:
        raise Misconfigured(
            "the owner's key in the file of keys is not the one that signed the backup",
            hint="the owner's key was replaced in between: take keys and backup of the same day",
        )
    if manifest.archive is not None:
        await copy_files(backup.archive, FolderStore(home.path / ARCHIVE))
    is_secured = (home.server / "accounts.json").is_file()
    expired = await _fill(backup, manifest, home)
    described = _described(home, manifest, listen, is_secured=is_secured)
    home.write(described, home.access())
    (home.path / MARKER).unlink()
    own = frozenset(home.signer(path.stem).did for path in home.path.glob("keys/*.key"))
    return Restored(report=report, mesh=described, is_secured=is_secured, expired=expired, own=own)


def _require_empty(home: StateDirectory) -> None:
    if (home.path / MARKER).exists():
        shutil.rmtree(home.path)  # an earlier restore did not come to its end
    if (home.path / "mesh.json").exists():
        raise Held(
            f"{home.path} already has the mesh {home.mesh().name!r}",
            hint="restore into another directory: --home DIR",
        )
    left = {path.name for path in home.path.iterdir()} if home.path.is_dir() else set()
    if left - {".gitignore"}:
        raise Held(
            f"{home.path} is not empty",
            hint="restore into a new directory: --home DIR",
        )


def _described(
    home: StateDirectory, manifest: Manifest, listen: Listen | None, *, is_secured: bool
) -> MeshFile:
    engine, ca = manifest.engine, ""
    if is_secured:
        if listen is not None:
            replace_file(home.server / "listen.json", msgspec.json.encode(listen))
            engine = f"nats://{listen.names[0]}:{listen.port}"
        ca = (home.server / "tls" / "ca.pem").read_text()
    return MeshFile(mesh=manifest.mesh, name=manifest.name, engine=engine, ca=ca)


# --- the server's store -----------------------------------------------------------------------


async def _fill(backup: BackupFiles, manifest: Manifest, home: StateDirectory) -> int:
    """Fill the store of a server that nobody else reaches; how many messages had expired."""
    from antiphon.engines.nats import LocalServer
    from antiphon.engines.nats.log.streams import log_name, messages_name
    from antiphon.engines.nats.store.block_files import fill_stream

    async with quiet_engine(home, manifest.mesh, manifest.name, create=True) as engine:
        if manifest.messages and engine.messages is not None:
            await engine.messages.open()
    streams = {log_name(manifest.mesh): manifest.log}
    if manifest.messages:
        streams[messages_name(manifest.mesh)] = manifest.messages
    for name, segments in streams.items():
        async with aclosing(_pages(backup, segments)) as pages:
            await fill_stream(LocalServer(home.server).store, name, pages)
    async with quiet_engine(home, manifest.mesh, manifest.name, create=True) as engine:
        if await _missing(backup, manifest.log, engine, "log"):
            raise Corrupt("the server does not show all records that were put back")
        expired = await _missing(backup, manifest.messages, engine, "messages")
        for blob in await backup.blobs(manifest.blobs):
            async with aclosing(backup.blob_parts(blob)) as parts:
                await engine.own_blobs.store(parts, digest=blob.digest, by=blob.by)
    return expired


async def _pages(
    backup: BackupFiles, segments: tuple[Segment, ...]
) -> AsyncGenerator[list[StoredMessage]]:
    for segment in segments:
        yield await backup.segment(segment)


async def _missing(
    backup: BackupFiles, segments: tuple[Segment, ...], engine: NatsEngine, what: str
) -> int:
    """Compare a stream with the backup; how many messages it lacks because they expired."""
    stream = engine.copy_of("log" if what == "log" else "messages")
    missing = 0
    for segment in segments:
        wanted = {one.seq: one for one in await backup.segment(segment)}
        after = segment.first - 1
        while page := await stream.read(after, segment.last):
            for one in page:
                if wanted.pop(one.seq, None) != one:
                    raise Corrupt(
                        f"the server shows another message {one.seq} than was put back",
                        hint="use the version of nats-server that the backup was made with",
                    )
            after = page[-1].seq
        if any(_EXPIRES not in one.header for one in wanted.values()):
            raise Corrupt(
                f"the server lacks {len(wanted)} messages that were put back",
                hint="use the version of nats-server that the backup was made with",
            )
        missing += len(wanted)
    return missing
