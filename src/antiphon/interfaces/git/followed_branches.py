"""Makes a job of each commit that comes to a followed branch.

What counts is where the branches are, not what somebody says about them: a push, or anything else
that moves a branch, only makes it look sooner. So nothing is lost while no bridge runs, and a
bridge can be started anywhere. A branch that moved twice between two looks gives one job.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.errors import AntiphonError, Malformed, Rejected
from antiphon.interfaces.git.job_refs import JOBS
from antiphon.interfaces.git.push_pace import PushPace
from antiphon.interfaces.git.source_archive import write_source_file
from antiphon.sdk.git.pushes import SOURCE
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.git.pushes import Push, Pushes

LOOK_EVERY_S: Final = 30.0
PUSHES_PER_MINUTE: Final = 60
MOST_BRANCHES: Final = 1_000
"""Followed branches that are looked at; the others are counted in the log."""
MOST_PATTERNS: Final = 64
BRANCHES: Final = "refs/heads/"
_PATTERN: Final = re.compile(r"[^\x00-\x20\x7f~^:\\]{1,200}")

_log = LazyLogger(__name__)


class Noticed(Struct, frozen=True, kw_only=True):
    """A commit on a branch that became a job."""

    ref: str
    job: str


class Look(Struct, frozen=True, kw_only=True):
    """What was found on the branches."""

    noticed: list[Noticed]
    waiting: int
    """Branches that are looked at again later, since there were too many pushes."""


def branch_patterns(names: Sequence[str]) -> tuple[str, ...]:
    """What `--follow` names, as refs; `Malformed` if something cannot be a branch."""
    if len(names) > MOST_PATTERNS:
        raise Malformed(f"{len(names)} names of branches; at most {MOST_PATTERNS}", reason="ref")
    for name in names:
        if _PATTERN.fullmatch(name.removeprefix(BRANCHES)) is None:
            raise Malformed(
                f"{name[:200]!r} cannot be a branch",
                reason="ref",
                hint="--follow main, or a pattern such as --follow 'release/*'",
            )
    return tuple(BRANCHES + name.removeprefix(BRANCHES) for name in names)


class FollowedBranches:
    """Some branches of one repository."""

    def __init__(
        self,
        repository: Repository,
        pushes: Pushes,
        patterns: Sequence[str],
        pace: PushPace | None = None,
    ) -> None:
        """`patterns` are those of `branch_patterns`."""
        self._repository = repository
        self._pushes = pushes
        self._patterns = tuple(patterns)
        self._pace = pace or PushPace(each=PUSHES_PER_MINUTE)
        self._seen: dict[str, str] = {}
        self._refused: set[str] = set()
        """Tried again, after all others."""
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Look now and then until cancelled."""
        while True:
            try:
                await self.look()
            except AntiphonError as problem:
                _log.warning("git: branches not looked at, trying again", reason=problem.message)
            except Exception:  # noqa: BLE001 - the next look may succeed
                _log.exception("git: branches not looked at, trying again")
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> Look:
        """Make jobs of the commits that came to the branches since the last look."""
        async with self._turn:
            heads = await self._repository.refs(*self._patterns)
            if len(heads) > MOST_BRANCHES:
                _log.warning("git: too many branches are followed", branches=len(heads))
                heads = dict(sorted(heads.items())[:MOST_BRANCHES])
            self._seen = {ref: at for ref, at in self._seen.items() if heads.get(ref) == at}
            fresh = {ref: at for ref, at in heads.items() if ref not in self._seen}
            self._refused &= fresh.keys()
            commits = await self._repository.objects_named(set(fresh.values()))
            noticed: list[Noticed] = []
            for ref in sorted(fresh, key=lambda ref: (ref in self._refused, ref)):
                at = fresh[ref]
                try:
                    found = await self._notice(ref, at, commits.get(at, b""))
                except Malformed as problem:
                    _log.warning("git: a push is no job", ref=ref, reason=problem.message)
                    found = None
                except Rejected as problem:
                    if problem.reason == "pace":
                        break
                    _log.warning("git: a push was refused", ref=ref, reason=problem.message)
                    self._refused.add(ref)
                    continue
                self._seen[ref] = at
                noticed += [found] if found else []
            return Look(noticed=noticed, waiting=len(heads) - len(self._seen))

    async def _notice(self, ref: str, at: str, commit: bytes) -> Noticed | None:
        job = self._pushes.job(ref, at, commit)
        shown = f"{JOBS}{job.id}/pushed"
        if shown in await self._repository.targets([shown]):
            return None
        self._pace.submit(self._pushes.kind, asyncio.get_running_loop().time())
        await self._pushes.submit(job)
        # Afterwards: what the log did not accept is not shown. It also keeps the commit from
        # being pruned when the branch goes elsewhere.
        await self._repository.update([f"update {shown} {at}"])
        return Noticed(ref=ref, job=job.id)

    @asynccontextmanager
    async def source(self, push: Push, folder: Path) -> AsyncIterator[Path]:
        """The files of a push's commit, as an archive; `Malformed` if it was not pushed here."""
        if not await self._was_pushed(push):
            raise Malformed(
                f"{push.commit_id[:8]} did not come to {push.ref} of this repository",
                reason="push",
                hint="two repositories may have the same name: antiphon git serve REPO --name NAME",
            )
        path = folder / SOURCE
        await write_source_file(self._repository, push.commit_id, path)
        yield path

    async def _was_pushed(self, push: Push) -> bool:
        shown = f"{JOBS}{push.job}/pushed"
        if (await self._repository.targets([shown])).get(shown) == push.commit_id:
            return True
        asked = ("merge-base", "--is-ancestor", push.commit_id, push.ref)
        code, _, _ = await self._repository.try_git(*asked)
        return code == 0
