"""The snapshot of one model call: what was asked, what was answered, by whom, when (spec §12).

It is JSON, stored outside the log as an artifact of the type `likewise.inference.snapshot`. The
record that stores it and the completion that names it have its digest. Its first bytes are always
the same, so that nobody can have other bytes removed by calling them a snapshot; and it names its
job and its number, so that no two calls share one.

Headers are never part of it, except for the few that `TOLD_HEADERS` names. What the policy of the
mesh redacts is there as a digest and a size.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.ids import digest
from antiphon.core.record.json_schema import published
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

SNAPSHOT_TYPE: Final = "likewise.inference.snapshot"
SCHEMA_ID: Final = "urn:antiphon:inference-snapshot:1"
SNAPSHOT_BEGINS: Final = b'{"type":"likewise.inference.snapshot","version":1,"source":'
TOLD_HEADERS: Final = frozenset(
    {
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "x-request-id",
    }
)
"""Headers that say how a call was made and nothing about who made it; all others are left out."""

Api = Literal[
    "openai.chat",
    "openai.responses",
    "openai.completions",
    "openai.embeddings",
    "anthropic.messages",
    "raw",
]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Stamp = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z", description="HLC, 16 hex digits.")]
Word = Annotated[str, Meta(max_length=1024)]


class _Part(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a snapshot; defaults are not written."""


class Source(_Part, frozen=True, kw_only=True):
    """The call's place: the job that made it, under which fence, and its number in the job."""

    mesh: Word
    kind: Word
    job: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    fence: Stamp
    worker: Annotated[Word, Meta(description="The did:key of the worker.")]
    call: Count


class Backend(_Part, frozen=True, kw_only=True):
    """What was called, and through which library."""

    url: Annotated[str, Meta(max_length=4096, description="Without its query and credentials.")]
    method: Word
    api: Api
    library: Word
    headers: dict[str, Word] = {}


class Model(_Part, frozen=True, kw_only=True):
    """Which model was asked for, and which one answered."""

    id: Word = ""
    version: Annotated[Word, Meta(description="The model that the answer names.")] = ""
    fingerprint: Word = ""


class Content(_Part, frozen=True, kw_only=True):
    """A part of the call: its value, or what is left of it.

    The value is JSON as it was sent; of a call that could not be parsed, its text.
    """

    value: Any = None
    base64: Annotated[str, Meta(description="Bytes that are no text.")] = ""
    redacted: Annotated[str, Meta(description="Why the value is not here.")] = ""
    hash: Annotated[str, Meta(description="BLAKE3 of what was redacted or cut.")] = ""
    size: Count = 0


class ToolCall(_Part, frozen=True, kw_only=True):
    """A call of a tool that the model asked for."""

    name: str
    id: str = ""
    arguments: Any = None


class Answer(_Part, frozen=True, kw_only=True):
    """One answer of a model."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: str = ""
    other: Annotated[tuple[Any, ...], Meta(description="Blocks of other kinds, as sent.")] = ()


class Tokens(_Part, frozen=True, kw_only=True):
    """What the answer says that it took. It is no part of a job's cost."""

    input: Count | None = None
    output: Count | None = None
    details: Any = None


class Telemetry(_Part, frozen=True, kw_only=True):
    """How the exchange went."""

    status: Count | None = None
    is_stream: bool = False
    events: Count = 0
    is_complete: Annotated[bool, Meta(description="Whether the answer was read to its end.")] = True
    duration_ms: Count = 0
    first_byte_ms: Count | None = None
    headers: dict[str, Word] = {}
    error: str = ""


class Snapshot(_Part, frozen=True, kw_only=True, omit_defaults=False):
    """One model call."""

    type: Literal["likewise.inference.snapshot"] = "likewise.inference.snapshot"
    version: Literal[1] = 1
    source: Source
    model: Model
    backend: Backend
    started: Stamp
    ended: Stamp
    prompt: Content
    """Messages as they were sent. A place `{"context": N}` stands for an entry of `context`."""
    context: tuple[Content, ...] = ()
    """What the prompt has of tools, documents and searches: the retrieved context."""
    parameters: dict[str, Any] = {}
    """Everything else that was asked for: tools, temperature, limits."""
    output: Content
    """A list of `Answer`; of a call that could not be parsed, what came back."""
    tokens: Tokens = Tokens()
    telemetry: Telemetry = Telemetry()
    redacted: tuple[str, ...] = ()
    """What is not here though it was said: parts, by the policy; `secret`; `size`."""

    @property
    def answers(self) -> list[Answer]:
        """Its answers; none where it was not parsed, or they are redacted."""
        if self.backend.api == "raw" or not isinstance(self.output.value, list):
            return []
        try:
            return msgspec.convert(self.output.value, list[Answer])
        except msgspec.ValidationError:
            return []


_decoder = msgspec.json.Decoder(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    """Its bytes, as they are stored."""
    return msgspec.json.encode(snapshot)


def decode(raw: bytes) -> Snapshot:
    """The snapshot in these bytes; `Malformed` if they are none."""
    try:
        found = _decoder.decode(raw)
    except UNREADABLE as problem:
        raise Malformed(f"the bytes are no snapshot: {problem}", reason="snapshot") from problem
    if not raw.startswith(SNAPSHOT_BEGINS):
        raise Malformed("the bytes do not begin as a snapshot does", reason="snapshot")
    return found


def redacted(content: Content, why: str) -> Content:
    """The digest and the size in place of a value."""
    if content.redacted:
        return content
    raw = content.base64.encode() if content.base64 else msgspec.json.encode(content.value)
    return Content(redacted=why, hash=digest(raw), size=len(raw))


def with_redactions(snapshot: Snapshot, parts: tuple[str, ...]) -> Snapshot:
    """The same without the parts that a policy names."""
    if not parts:
        return snapshot
    why = "policy"
    changed: dict[str, Any] = {}
    if "prompt" in parts:
        changed["prompt"] = redacted(snapshot.prompt, why)
    if "context" in parts:
        changed["context"] = tuple(redacted(one, why) for one in snapshot.context)
    if "output" in parts:
        changed["output"] = redacted(snapshot.output, why)
    told = tuple(dict.fromkeys((*snapshot.redacted, *parts)))
    return msgspec.structs.replace(snapshot, redacted=told, **changed)


def json_schema() -> dict[str, Any]:
    """A snapshot as JSON Schema 2020-12, for other programs; generated from the closed types."""
    _, parts = msgspec.json.schema_components([Snapshot, Answer])
    top = parts.pop("Snapshot")
    top["title"] = "Snapshot of a model call"
    return published(SCHEMA_ID, {**top, "$defs": parts})
