"""Keeps a repository equal to what the log accepted about jobs.

Objects are stored first, then refs, then how far it is. Whatever is interrupted in between is done
again with the same bytes, so a mirror can be killed at any time, and started again anywhere: on an
empty repository, on a clone, on one that is years behind.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.errors import Corrupt, LogReplaced, Unavailable
from antiphon.interfaces.git.commit_notes import CommitNotes
from antiphon.interfaces.git.job_refs import JOBS, bundle_refs, refs_of
from antiphon.interfaces.git.objects import Objects
from antiphon.sdk.git.job_feed import Cursor
from antiphon.sdk.jobs.job_lookup import ID_LENGTH
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from antiphon.interfaces.git.bridge_folder import BridgeFolder
    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.git.job_feed import JobFeed

TIDY_REFS: Final = 3_000
"""Refs that are written before Git is asked to pack them."""
LONGEST_PAUSE_S: Final = 60.0
PUSHED: Final = "pushed"
"""The last word of the ref of a pushed commit, which the push itself writes."""

_log = LazyLogger(__name__)


class MirrorStatus(Struct, frozen=True, kw_only=True):
    """What a mirror has done since it started."""

    upto: int
    """The last record that it has."""
    jobs: int
    """Jobs whose refs changed."""
    bundles: int
    is_whole: bool
    """Whether this machine may read every kind: bundles need that."""


class Mirror:
    """One repository, and the jobs of one mesh."""

    def __init__(
        self,
        repository: Repository,
        feed: JobFeed,
        folder: BridgeFolder,
        *,
        mesh: str,
        pushes: str,
        has_bundles: bool = True,
    ) -> None:
        """`pushes` is the kind of this repository's, for notes; with bundles or without."""
        self._repository = repository
        self._feed = feed
        self._folder = folder
        self._mesh = mesh
        self._notes = CommitNotes(repository, pushes)
        self._has_bundles = has_bundles
        self._cursor = folder.load(mesh)
        self._jobs = self._bundles = self._untidy = 0
        self._is_whole = True
        self._turn = asyncio.Lock()

    @property
    def status(self) -> MirrorStatus:
        """What it has done so far."""
        return MirrorStatus(
            upto=self._cursor.seq,
            jobs=self._jobs,
            bundles=self._bundles,
            is_whole=self._is_whole,
        )

    async def run(self, ready: Callable[[MirrorStatus], None]) -> None:
        """Catch up, say so, and follow the log until cancelled."""
        async with self._feed.growth() as growth:
            await self.catch_up()
            ready(self.status)
            await self._follow(growth)

    async def _follow(self, growth: AsyncIterator[object]) -> None:
        pause_s = 1.0
        async for _ in growth:
            while True:
                try:
                    await self.catch_up()
                except LogReplaced:
                    raise
                except (Corrupt, Unavailable) as problem:
                    # Such as another git that holds a lock: nothing is lost, it is all done again.
                    _log.warning(
                        "git mirror: not written, trying again",
                        reason=problem.message,
                        pause_s=pause_s,
                    )
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                else:
                    pause_s = 1.0
                    break

    async def catch_up(self) -> None:
        """Write everything that is on the log now."""
        async with self._turn:
            while not await self._write_changes():
                await self._tidy(TIDY_REFS)
            while self._has_bundles and not await self._write_bundles():
                await self._tidy(TIDY_REFS)
            await self._tidy(TIDY_REFS)

    async def _write_changes(self) -> bool:
        """The next few jobs that changed; whether those are all."""
        async with self._feed.reading(self._cursor) as reader:
            changes = await reader.changes(self._cursor)
            self._is_whole = reader.is_whole
            made, refs = Objects(self._repository.algorithm), dict[str, str]()
            for history in changes.histories:
                refs |= refs_of(history, made)
            # With the refs of its jobs: a clone has both or neither.
            refs |= await self._notes.after(reader, changes.histories, made)
        await self._write(made, refs)
        self._jobs += len(changes.histories)
        self._go_on(changes.cursor)
        return changes.is_all

    async def _write_bundles(self) -> bool:
        """The next few bundles; whether those are all."""
        async with self._feed.reading(self._cursor) as reader:
            if not reader.is_whole:
                return True
            bundles = await reader.bundles(self._cursor)
        for job, why in bundles.failed:
            _log.warning("git mirror: a job has no bundle", job=job, reason=why)
        made, refs = Objects(self._repository.algorithm), dict[str, str]()
        for bundle in bundles.found:
            refs |= bundle_refs(bundle, made)
        await self._write(made, refs, keep=True)
        self._bundles += len(bundles.found)
        self._go_on(replace(self._cursor, bundled=bundles.bundled))
        return bundles.is_all

    def _go_on(self, cursor: Cursor) -> None:
        if cursor != self._cursor:
            self._folder.store(self._mesh, cursor)
            self._cursor = cursor

    async def _write(self, made: Objects, refs: Mapping[str, str], *, keep: bool = False) -> None:
        """Store objects and let refs point to them; with `keep`, those that exist stay."""
        known = await self._repository.targets(refs)
        changes = [
            f"create {name} {target}"
            if name not in known
            else f"update {name} {target} {known[name]}"
            for name, target in refs.items()
            if known.get(name) != target and not (keep and name in known)
        ]
        if not changes:
            return
        await self._repository.store(made)
        await self._repository.update(changes)
        self._untidy += len(changes)

    async def _tidy(self, after: int) -> None:
        """Have Git pack refs and objects, now and then."""
        if self._untidy < after:
            return
        await self._repository.git("pack-refs", "--all")
        await self._repository.git("-c", "gc.autoDetach=false", "gc", "--auto", "--quiet")
        self._untidy = 0

    async def rewrite(self) -> int:
        """Begin again: compare every job with the log, and delete what it does not have.

        How many refs and notes were deleted. Jobs that left the log for the archive stay. Bundles
        are written again; refs of pushed commits stay where their job names the commit.
        """
        async with self._turn:
            self._go_on(Cursor())
            wanted = await self._all_refs()
            there = await self._repository.refs(JOBS.removesuffix("/"))
            gone = [
                (name, target)
                for name, target in there.items()
                if name not in wanted or (name.endswith(PUSHED) and wanted[name] != target)
            ]
            known = {_job_in(name) for name in wanted}
            left = {job for job in {_job_in(name) for name, _ in gone} - known if job}
            made = Objects(self._repository.algorithm)
            async with self._feed.reading(self._cursor) as reader:
                left = {job for job in left if await reader.has_left(job)}
                wrong, refs = await self._notes.again(reader, made)
            extra = [f"delete {name} {at}" for name, at in gone if _job_in(name) not in left]
            await self._repository.update(extra)
            await self._write(made, refs)
        return len(extra) + wrong

    async def _all_refs(self) -> dict[str, str]:
        """Every ref that follows from the log, without bundles."""
        cursor, found = Cursor(), dict[str, str]()
        while True:
            async with self._feed.reading(cursor) as reader:
                changes = await reader.changes(cursor)
            for history in changes.histories:
                found |= refs_of(history, Objects(self._repository.algorithm))
                if history.commit:
                    found[f"{JOBS}{history.id}/{PUSHED}"] = history.commit
            cursor = changes.cursor
            if changes.is_all:
                return found


def _job_in(ref: str) -> str:
    """The job that a ref is about; empty if it is about none."""
    job = ref.removeprefix(JOBS).partition("/")[0]
    return job if len(job) == ID_LENGTH else ""
