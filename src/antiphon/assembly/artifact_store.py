"""Assembles the artifact store: where a mesh's blobs are, and this machine's cache of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.runtime.artifacts.blob_cache import BlobCache
from antiphon.runtime.artifacts.mirrored_blobs import MirroredBlobs
from antiphon.runtime.artifacts.store import Artifacts

if TYPE_CHECKING:
    from antiphon.assembly.mesh_connection import MeshConnection
    from antiphon.ports import Blobs
    from antiphon.runtime.identity.state_directory import StateDirectory

MEGABYTE: Final = 1024 * 1024


def artifacts_of(connection: MeshConnection, home: StateDirectory | None) -> Artifacts:
    """A connection's artifacts; without a state directory there is no cache."""
    from antiphon.settings import load

    chosen = load()
    max_bytes = chosen.cache_mb * MEGABYTE
    return Artifacts(
        blobs_of(connection),
        BlobCache(home.cache, max_bytes=max_bytes) if home is not None and max_bytes else None,
        value_bytes=chosen.value_mb * MEGABYTE,
    )


def blobs_of(connection: MeshConnection) -> Blobs:
    """The engine's own blobs, behind a bucket if one is configured.

    A mesh inside one process keeps its own: it ends with the process, and a bucket would not.
    """
    from antiphon.engines.memory import MemoryEngine

    engine = connection.engine
    if isinstance(engine, MemoryEngine):
        return engine.blobs
    from antiphon.settings import load

    chosen = load()
    if chosen.blobs is None:
        return engine.blobs
    from antiphon.engines.objects import Bucket, open_bucket

    bucket = Bucket(url=chosen.blobs, endpoint=chosen.blobs_endpoint, region=chosen.blobs_region)
    return MirroredBlobs(open_bucket(bucket, connection.session.mesh), engine.blobs)
