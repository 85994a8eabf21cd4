"""The bridge between a mesh and a repository while it runs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.interfaces.git.bridge_folder import BridgeFolder
from antiphon.interfaces.git.followed_branches import FollowedBranches, branch_patterns
from antiphon.interfaces.git.mirror import Mirror
from antiphon.interfaces.git.push_pace import PushPace
from antiphon.interfaces.git.push_service import PushService, listening
from antiphon.interfaces.git.receive_hooks import install_hooks
from antiphon.interfaces.git.repository import open_repository
from antiphon.sdk.git.job_feed import JobFeed
from antiphon.sdk.git.pushed_jobs import PushedJobs
from antiphon.sdk.git.pushes import Pushes, name_of, push_kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.mesh import Mesh


class Bridge(Struct, frozen=True, kw_only=True):
    """A repository that is served."""

    repository: Repository
    mirror: Mirror
    kind: str
    """That of the pushes to it."""
    pushes: PushService | None = None
    """None if it takes no jobs."""
    branches: FollowedBranches | None = None
    """None if no branch is followed."""


class Following(Struct, frozen=True, kw_only=True):
    """Which branches make jobs, and under which name."""

    branches: tuple[str, ...] = ()
    """As `--follow` has them; none: no branch does."""
    name: str = ""
    """The last word of `git.push.<name>`; empty: from the repository's folder."""


@asynccontextmanager
async def serving(
    path: Path,
    mesh: Mesh,
    *,
    has_bundles: bool = True,
    takes_jobs: bool = True,
    following: Following | None = None,
) -> AsyncIterator[Bridge]:
    """Be the bridge of a repository while the block runs; the repository is made if need be."""
    wanted = following or Following()
    patterns = branch_patterns(wanted.branches)
    repository = await open_repository(path, create=True)
    kind = push_kind(wanted.name or name_of(repository.path))
    folder = BridgeFolder(repository.path)
    async with AsyncExitStack() as stack:
        stack.enter_context(folder.locked())
        feed = JobFeed(mesh)
        mirror = Mirror(
            repository, feed, folder, mesh=mesh.id, pushes=kind, has_bundles=has_bundles
        )
        branches = None
        if patterns:
            pushes = Pushes(mesh, kind)
            branches = FollowedBranches(repository, pushes, patterns)
            await stack.enter_async_context(pushes.running(branches.source))
        service = None
        if takes_jobs:
            await install_hooks(repository, follows=branches is not None)
            service = PushService(repository, PushedJobs(mesh), PushPace(), branches)
            await stack.enter_async_context(listening(service, folder.path))
        if branches is not None:
            looking = asyncio.ensure_future(branches.run())
            stack.push_async_callback(_end, looking)
        yield Bridge(
            repository=repository, mirror=mirror, kind=kind, pushes=service, branches=branches
        )


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
