"""Where bytes lie beside the log: a mesh's blobs, this machine's cache of them, other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.errors import Misconfigured
from antiphon.runtime.artifacts.blob_cache import BlobCache
from antiphon.runtime.artifacts.mirrored_blobs import MirroredBlobs
from antiphon.runtime.artifacts.store import Artifacts

if TYPE_CHECKING:
    from antiphon.assembly.mesh_connection import MeshConnection
    from antiphon.ports import Blobs
    from antiphon.runtime.artifacts.waiting_blobs import WaitingBlobs
    from antiphon.runtime.file_store import FileStore
    from antiphon.runtime.identity.state_directory import StateDirectory

MEGABYTE: Final = 1024 * 1024


def artifacts_of(
    connection: MeshConnection, home: StateDirectory | None, waiting: WaitingBlobs | None = None
) -> Artifacts:
    """A connection's artifacts; without a state directory there is no cache.

    `waiting` is where content waits while the engine cannot be reached.
    """
    from antiphon.settings import load

    chosen = load()
    max_bytes = chosen.cache_mb * MEGABYTE
    return Artifacts(
        blobs_of(connection),
        BlobCache(home.cache, max_bytes=max_bytes) if home is not None and max_bytes else None,
        value_bytes=chosen.value_mb * MEGABYTE,
        waiting=waiting,
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

    bucket = Bucket(url=chosen.blobs, endpoint=chosen.s3_endpoint, region=chosen.s3_region)
    return MirroredBlobs(open_bucket(bucket, connection.session.mesh), engine.blobs)


def files_at(place: str | Path) -> FileStore:
    """The files of an archive or a backup, in a directory or in `s3://bucket/prefix`."""
    from antiphon.runtime.file_store import FolderStore
    from antiphon.settings import check_bucket, is_bucket, load

    if isinstance(place, Path) or not is_bucket(place):
        return FolderStore(Path(place))
    try:
        check_bucket(place)
    except ValueError as wrong:
        raise Misconfigured(f"{place} cannot be used: {wrong}") from None
    from antiphon.engines.objects import Bucket, open_files

    chosen = load()
    bucket = Bucket(url=place, endpoint=chosen.s3_endpoint, region=chosen.s3_region)
    return open_files(bucket)
