"""Blobs and files in a bucket, on any store that speaks the S3 protocol.

Not an engine: a mesh keeps its log, leases and bus where they are, and only the bytes of
artifacts, archives and backups go elsewhere. Needs the extra `antiphon[s3]`; nothing here loads
it before a bucket is opened.
"""

from antiphon.engines.objects.connection import Bucket, open_bucket, open_files

__all__ = ["Bucket", "open_bucket", "open_files"]
