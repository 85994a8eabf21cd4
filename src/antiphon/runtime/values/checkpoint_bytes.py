"""A checkpoint as it is stored: a line that says what it is and of which job, then the bytes.

The line keeps two promises. Bytes that a worker names as a checkpoint, but are not one, are never
removed as such; and no two jobs share one, so that the end of one never takes it from another.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import Malformed

CHECKPOINT_BEGINS: Final = b"antiphon checkpoint of "


def packed_checkpoint(kind: str, job_id: str, data: bytes) -> bytes:
    """What is stored for a job's checkpoint."""
    return _head(kind, job_id) + data


def read_checkpoint(kind: str, job_id: str, stored: bytes) -> bytes:
    """The bytes that the job's handler gave; `Malformed` if these are no checkpoint of it."""
    head = _head(kind, job_id)
    if not stored.startswith(head):
        raise Malformed("the stored bytes are no checkpoint of this job", reason="checkpoint")
    return stored[len(head) :]


def stored_size(kind: str, job_id: str, size: int) -> int:
    """How many bytes are stored for so many of the handler's."""
    return len(_head(kind, job_id)) + size


def _head(kind: str, job_id: str) -> bytes:
    return CHECKPOINT_BEGINS + f"{kind} {job_id}\n".encode()
