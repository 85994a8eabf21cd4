"""Opening a bucket: its address, and this process's credentials.

Credentials never pass through our settings: they come from the `AWS_*` environment variables, the
machine's role, or a credentials file.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.engines.objects.credentials import find_provider
from antiphon.errors import Misconfigured

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config

    from antiphon.engines.objects.files import ObjectFiles
    from antiphon.ports import Blobs

CONNECT_TIMEOUT_S: Final = 10
REQUEST_TIMEOUT_S: Final = 120
"""For one part or one range: enough for a line of 2 Mbit/s with all parts on it at once."""
MAX_RETRIES: Final = 4
RETRY_WITHIN_S: Final = 60
BUCKETS_OPEN: Final = 8
"""A bucket that is opened again keeps its connections."""


class Bucket(Struct, frozen=True, kw_only=True):
    """Where blobs or files are kept."""

    url: str
    """`s3://bucket/prefix`."""
    endpoint: str | None = None
    """The address of the store; None: Amazon's, or what `AWS_ENDPOINT_URL` says."""
    region: str | None = None


def open_bucket(bucket: Bucket, mesh: str) -> Blobs:
    """A mesh's blobs in a bucket; other meshes may share it. Nothing is asked of it yet."""
    _require_s3(bucket)
    from antiphon.engines.objects.blobs import ObjectBlobs

    return ObjectBlobs(_open(bucket), mesh, shown_as=bucket.url)


def open_files(bucket: Bucket) -> ObjectFiles:
    """The files of an archive or a backup in a bucket. Nothing is asked of it yet."""
    _require_s3(bucket)
    from antiphon.engines.objects.files import ObjectFiles

    return ObjectFiles(_open(bucket), shown_as=bucket.url)


def _require_s3(bucket: Bucket) -> None:
    with suppress(ModuleNotFoundError):
        import obstore  # noqa: F401 - only whether it is there

        return
    raise Misconfigured(
        f"{bucket.url} is a bucket, and the package for S3 is not installed",
        hint="pip install 'antiphon[s3]'",
    )


@lru_cache(maxsize=BUCKETS_OPEN)
def _open(bucket: Bucket) -> ObjectStore:
    from obstore.store import S3Store

    parts = urlsplit(bucket.url)
    config: S3Config = {
        # One request for one object: not every store has the call that deletes many.
        "disable_bulk_delete": True
    }
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
    }
    retries: RetryConfig = {
        "max_retries": MAX_RETRIES,
        "retry_timeout": timedelta(seconds=RETRY_WITHIN_S),
    }
    if bucket.endpoint is not None:
        # Both, since the environment may name either, and the second outranks the first.
        config["endpoint"] = config["aws_endpoint_url_s3"] = bucket.endpoint
        client["allow_http"] = bucket.endpoint.startswith("http://")
    if bucket.region is not None:
        config["region"] = bucket.region
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config=config,
        client_options=client,
        retry_config=retries,
        credential_provider=find_provider(),
    )
