"""The bridge between a mesh and a repository while it runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.interfaces.git.bridge_folder import BridgeFolder
from antiphon.interfaces.git.mirror import Mirror
from antiphon.interfaces.git.repository import open_repository
from antiphon.sdk.git.job_feed import JobFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.mesh import Mesh


class Bridge(Struct, frozen=True):
    """A repository that is served."""

    repository: Repository
    mirror: Mirror


@asynccontextmanager
async def serving(path: Path, mesh: Mesh, *, has_bundles: bool) -> AsyncIterator[Bridge]:
    """Be the bridge of a repository while the block runs; the repository is made if need be."""
    repository = await open_repository(path, create=True)
    folder = BridgeFolder(repository.path)
    with folder.locked():
        mirror = Mirror(repository, JobFeed(mesh), folder, mesh=mesh.id, has_bundles=has_bundles)
        yield Bridge(repository, mirror)
