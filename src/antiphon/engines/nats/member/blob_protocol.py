"""The messages between member and gate about blobs.

A member asks on `apg.<mesh>.<user>.blob`, where only it may publish, and gets a *transfer*: a
token of the one gate that took the request. The bytes are then exchanged on
`apg.<mesh>.<user>.blob.<gate>.<blob_request>.<step>`, where a step is a chunk's number, `end` or
`leave`. An answer is data, or a status with a reason.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from antiphon.engines.nats.connection.gate_subjects import gate_subject

BLOB: Final = "blob"
END: Final = "end"
LEAVE: Final = "leave"
WINDOW: Final = 8
"""Chunks of one transfer that are under way at a time."""
TRANSFERS_HEARD: Final = 512
STEPS_HEARD: Final = 16 * 1024
"""Messages, and KiB, of one member that the gate receives in a quarter of a second."""

DENIED: Final = 403
ABSENT: Final = 404
GONE: Final = 410
TOO_LARGE: Final = 413
CORRUPT: Final = 422
BUSY: Final = 503
FAILED: Final = 500


class BlobRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a member wants to do with a blob. Reading needs the job that admits it."""

    do: Literal["put", "get", "has"]
    digest: Annotated[str, Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]
    kind: Annotated[str, Meta(max_length=255)] = ""
    job: Annotated[str, Meta(pattern=r"^([0-9a-f]{64}|[a-z2-7]{24})?\Z")] = ""


class Taken(Struct, frozen=True, omit_defaults=True):
    """The gate's answer: where the transfer continues."""

    gate: Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?\Z")] = ""
    blob_request: Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?\Z")] = ""
    chunks: Annotated[int, Meta(ge=0)] = 0


def asking(mesh: str, user: str) -> str:
    """The subject on which a transfer begins."""
    return gate_subject(mesh, user, BLOB)


def steps(mesh: str, user: str, taken: Taken) -> str:
    """The prefix of the subjects of a transfer's steps."""
    return f"{asking(mesh, user)}.{taken.gate}.{taken.blob_request}"
