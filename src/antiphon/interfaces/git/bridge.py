"""The bridge between a mesh and a repository while it runs."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.interfaces.git.bridge_folder import BridgeFolder
from antiphon.interfaces.git.mirror import Mirror
from antiphon.interfaces.git.push_service import PushPace, PushService, listening
from antiphon.interfaces.git.receive_hooks import install_hooks
from antiphon.interfaces.git.repository import open_repository
from antiphon.sdk.git.job_feed import JobFeed
from antiphon.sdk.git.pushed_jobs import PushedJobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.mesh import Mesh


class Bridge(Struct, frozen=True, kw_only=True):
    """A repository that is served."""

    repository: Repository
    mirror: Mirror
    pushes: PushService | None = None
    """None if it takes no jobs."""


@asynccontextmanager
async def serving(
    path: Path, mesh: Mesh, *, has_bundles: bool = True, takes_jobs: bool = True
) -> AsyncIterator[Bridge]:
    """Be the bridge of a repository while the block runs; the repository is made if need be."""
    repository = await open_repository(path, create=True)
    folder = BridgeFolder(repository.path)
    async with AsyncExitStack() as stack:
        stack.enter_context(folder.locked())
        feed = JobFeed(mesh)
        mirror = Mirror(repository, feed, folder, mesh=mesh.id, has_bundles=has_bundles)
        pushes = None
        if takes_jobs:
            await install_hooks(repository)
            pushes = PushService(repository, PushedJobs(mesh), PushPace())
            await stack.enter_async_context(listening(pushes, folder.path))
        yield Bridge(repository=repository, mirror=mirror, pushes=pushes)
