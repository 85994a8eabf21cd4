"""Opening an archive, and finding in it what may no longer be on the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.assembly.artifact_store import files_at
from antiphon.core import bundle as core_bundle
from antiphon.core.archive.checkpoint import CHECKPOINT
from antiphon.core.bundle import Bundle, Report
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.state import Job, job_key
from antiphon.core.record.branches import LaneKey
from antiphon.errors import Misconfigured, Rejected
from antiphon.runtime.archive.archive_check import ArchiveReport, check_archive
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.bundle_assembly import assembled, written
from antiphon.runtime.archive.place_index import PlaceIndex
from antiphon.runtime.file_store import FileStore
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.environment import read_environment

INDEX: Final = "archive-index.db"
SHOWN: Final = 4


class ArchiveStatus(Struct, frozen=True, kw_only=True):
    """What an archive says about itself; nothing of it is checked."""

    place: str
    mesh: str
    records: int
    upto: int
    sealed_by: str
    root: str
    vkey: str


class Archive:
    """One archive, open for reading."""

    def __init__(self, reader: ArchiveReader) -> None:
        """Use `open_archive`."""
        self.reader = reader

    async def status(self) -> ArchiveStatus:
        """How far it goes."""
        reader = self.reader
        seal = await reader.newest_seal()
        vkey = await reader.store.read("vkey") or b""
        return ArchiveStatus(
            place=str(reader.store),
            mesh=reader.mesh,
            records=reader.size,
            upto=seal.body.upto if seal is not None else 0,
            sealed_by=seal.op.author if seal is not None else "",
            root=reader.checkpoint.root.hex(),
            vkey=vkey.decode(errors="replace").strip(),
        )

    async def check(self, told: Callable[[int, int], None] = lambda *_: None) -> ArchiveReport:
        """Check every file; `Corrupt` says which one is wrong."""
        return await check_archive(self.reader, told=told)

    async def find(self, prefix: str) -> LaneKey:
        """The one job, or other thing, whose name begins so; `Rejected` if there is none."""
        wanted = prefix.strip().removeprefix("blake3:")
        found = await self._named(wanted) or await self._named(wanted.lower())
        if not found:
            raise Rejected(
                f"nothing in the archive {self.reader.store} has a name that begins with"
                f" {wanted[:8]}",
                reason="no_job",
                hint="antiphon jobs --archived lists the newest",
            )
        if len(found) > 1:
            some = ", ".join(f"{key.name[:12]} ({key.kind})" for key in found[:SHOWN])
            raise Rejected(
                f"several names begin with {wanted[:8]}: {some}",
                reason="ambiguous",
                hint="type more of it",
            )
        return found[0]

    async def _named(self, prefix: str) -> list[LaneKey]:
        """What is named so; a job that was forgotten, and not the order to."""
        found = await self.reader.lanes_named(prefix)
        jobs = {(key.kind, key.name) for key in found if key.family == JOBS.name}
        return [key for key in found if key.family == JOBS.name or key[1:] not in jobs]

    async def export(self, key: LaneKey) -> bytes:
        """The bundle of a lane, composed from the archive alone."""
        return await written(await self._bundle(key))

    async def report(self, key: LaneKey) -> Report:
        """What the archive proves about a lane."""
        return core_bundle.check(self.reader.protocol, await self._bundle(key))

    async def _bundle(self, key: LaneKey) -> Bundle:
        bundle = await assembled(self.reader, key)
        if bundle is None:
            raise Rejected(
                f"{key.kind} {key.name[:8]} never began, or was not accepted", reason="no_job"
            )
        return bundle

    async def jobs(self, *, kind: str = "", limit: int = 20) -> list[Job]:
        """The newest jobs that ended, each checked as its bundle is."""
        found: list[Job] = []
        async with aclosing(self.reader.newest_lanes(JOBS.name)) as lanes:
            async for key in lanes:
                if kind and not f"{key.kind}.".startswith(f"{kind}."):
                    continue
                try:
                    found.append((await self.report(job_key(key.kind, key.name))).job)
                except Rejected:
                    continue  # not ended yet, or erased
                if len(found) == limit:
                    break
        return found


def archive_files(home: Path | None = None) -> FileStore:
    """Where this process's archive is: `ANTIPHON_ARCHIVE`, or `archive` in the state directory."""
    chosen = read_environment().archive
    return files_at(chosen if chosen is not None else StateDirectory.find(home).path / "archive")


async def has_archive(home: Path | None = None) -> bool:
    """Whether there is an archive where this process looks for one."""
    try:
        return await archive_files(home).has(CHECKPOINT)
    except Misconfigured:
        return False


@asynccontextmanager
async def open_archive(
    place: str | Path | None = None, *, home: Path | None = None
) -> AsyncIterator[Archive]:
    """Open an archive in a directory or a bucket, or the one of this process.

    An index of what is where is kept in the state directory; without one, it is built each time.
    """
    store = files_at(place) if place is not None else archive_files(home)
    try:
        index = PlaceIndex(StateDirectory.find(home).path / INDEX)
    except Misconfigured:
        index = PlaceIndex()
    try:
        yield Archive(await ArchiveReader.open(store, index=index))
    finally:
        index.close()


__all__ = ["Archive", "ArchiveReport", "ArchiveStatus", "has_archive", "open_archive"]
