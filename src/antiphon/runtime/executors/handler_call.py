"""One call of a handler: what it is given, what it may know, and what its result becomes."""

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
from antiphon.runtime.executors.executor import Live, Unheard

RESULT: Final = "result"
JSON: Final = "application/json"
MAX_RESULT_BYTES: Final = 64 * 1024


class JobContext(Struct, frozen=True, kw_only=True):
    """What a handler may know about the job it runs."""

    kind: str
    job_id: str
    fence: str
    """Give this to any resource the handler writes to: it refuses whoever comes with a lower."""
    attempt: int
    """1 for the first tenure of this job."""
    live: Live = Unheard()
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when the job is no longer this worker's; `stop.wait(seconds)` is a sleep that ends."""

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the result any more: cancelled, out of time, or lost.

        Coroutines and processes are stopped; a thread cannot be, and should look here.
        """
        return self.stop.is_set()

    def progress(self, done: float, note: str = "") -> None:
        """Tell whoever waits how far the job is, from 0 to 1; from any thread, at any pace.

        Nothing of it is stored, and only the newest is sent on.
        """
        self.live.progress(done, note)


def call_text(args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """The one canonical-JSON argument that a call of a handler travels as."""
    return codec.canonical_json({"args": list(args), "kwargs": kwargs})


def call_of(manifest: Manifest) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments out of a manifest."""
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
    """What a handler returned, as the JSON that travels."""
    text = codec.canonical_json(value)
    size = len(text.encode())
    if size > MAX_RESULT_BYTES:
        raise Malformed(
            f"the result has {size:,} bytes as JSON; a record holds {MAX_RESULT_BYTES:,}",
            reason="result_size",
            hint="keep large data as an artifact (mesh.keep) and return its hash",
        )
    return text


def inline_output(name: str, text: str, media_type: str) -> Output:
    """A small output that travels inside the completion, under both digests."""
    raw = text.encode()
    return Output(
        name=name,
        hash=digest(raw),
        size=len(raw),
        type=media_type,
        sha256=sha256(raw).hexdigest(),
        text=text,
    )
