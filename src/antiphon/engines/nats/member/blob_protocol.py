"""What a member asks the gate about blobs, and how the gate answers: the words of both sides.

A member asks on `apg.<mesh>.<user>.blob`, where only it may publish, and is given an *errand*: a
token of the one gate that took the question. The bytes then go to and fro on
`apg.<mesh>.<user>.blob.<gate>.<blob_request>.<step>`, where a step is a chunk's number, `end` or
`leave`. Answers are plain, or a status with words where something is in the way.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from antiphon.engines.nats.connection.gate_subjects import gate_subject

BLOB: Final = "blob"
END: Final = "end"
LEAVE: Final = "leave"
WINDOW: Final = 8
"""Chunks of one errand that are under way at a time."""
ERRANDS_HEARD: Final = 512
STEPS_HEARD: Final = 16 * 1024
"""Messages, and KiB, of one member that the gate hears in a quarter of a second."""

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
    job: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""


class Taken(Struct, frozen=True, omit_defaults=True):
    """The gate's answer: where the errand goes on."""

    gate: Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?\Z")] = ""
    blob_request: Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?\Z")] = ""
    chunks: Annotated[int, Meta(ge=0)] = 0


def asking(mesh: str, user: str) -> str:
    """Where an errand begins."""
    return gate_subject(mesh, user, BLOB)


def steps(mesh: str, user: str, taken: Taken) -> str:
    """What the subjects of an errand's steps begin with."""
    return f"{asking(mesh, user)}.{taken.gate}.{taken.blob_request}"
