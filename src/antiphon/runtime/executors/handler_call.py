"""One call of a handler: its arguments, its `JobContext`, and the output made of its result."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.core.manifest import Manifest
from antiphon.core.proof.output import Output
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.errors import Malformed
from antiphon.runtime.executors.executor import LiveOutput, NoLiveOutput

RESULT: Final = "result"
JSON: Final = "application/json"
MAX_RESULT_BYTES: Final = 64 * 1024


class JobContext(Struct, frozen=True, kw_only=True):
    """What a handler may know about the job it runs."""

    kind: str
    job_id: str
    fence: str
    """Give this to every resource that the handler writes to, which then refuses lower ones."""
    attempt: int
    """1 for the first tenure of this job."""
    live: LiveOutput = NoLiveOutput()
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when the job is no longer this worker's; `stop.wait(seconds)` is a sleep that it ends."""

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted: cancelled, timed out, or lost.

        Coroutines and processes are stopped. A thread cannot be, and should check this.
        """
        return self.stop.is_set()

    def progress(self, done: float, note: str = "") -> None:
        """Report the job's progress, from 0 to 1; from any thread, as often as you like.

        It is not stored, and only the newest is sent.
        """
        self.live.progress(done, note)


def call_text(args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """The arguments of a handler call as the one canonical-JSON argument of a manifest."""
    return codec.canonical_json({"args": list(args), "kwargs": kwargs})


def call_of(manifest: Manifest) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from a manifest."""
    if len(manifest.args) != 1:
        raise Malformed("a handler takes exactly one JSON argument", reason="manifest")
    match codec.parse_json(manifest.args[0]):
        case {"args": list(args), "kwargs": dict(kwargs)}:
            return args, kwargs
        case _:
            raise Malformed(
                "a handler's argument is {'args': [...], 'kwargs': {...}}", reason="manifest"
            )


def result_text(value: object) -> str:
    """A handler's return value as JSON."""
    text = codec.canonical_json(value)
    size = len(text.encode())
    if size > MAX_RESULT_BYTES:
        raise Malformed(
            f"the result has {size:,} bytes as JSON; a record can have {MAX_RESULT_BYTES:,}",
            reason="result_size",
            hint="keep large data as an artifact (mesh.keep) and return its hash",
        )
    return text


def inline_output(name: str, text: str, media_type: str) -> Output:
    """A small output that travels inside the completion, with both digests."""
    raw = text.encode()
    return Output(
        name=name,
        hash=digest(raw),
        size=len(raw),
        type=media_type,
        sha256=sha256(raw).hexdigest(),
        text=text,
    )
