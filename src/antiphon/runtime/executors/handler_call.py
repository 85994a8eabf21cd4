"""One call of a handler: its arguments, its `JobContext`, and the output made of its result.

Arguments and results are JSON texts. Small ones travel in the records themselves; larger ones are
stored as artifacts, and the records name them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct, UnsetType

from antiphon.core.manifest import ARGUMENTS, BlobInput, Manifest, stored_arguments
from antiphon.core.proof.output import Output
from antiphon.core.record.ids import digest
from antiphon.errors import Malformed, Misconfigured
from antiphon.runtime.artifacts.store import Artifacts, JobName
from antiphon.runtime.executors.executor import Assignment, LiveOutput, NoLiveOutput
from antiphon.runtime.values.later_values import fill, is_place
from antiphon.runtime.values.signature import plain_call, read_call
from antiphon.runtime.values.value_codec import PLAIN

RESULT: Final = "result"
JSON: Final = "application/json"
INLINE_BYTES: Final = 64 * 1024
"""Arguments and results up to this size travel in the record itself."""
MAX_VALUE_BYTES: Final = 256 * 1024 * 1024
"""Arguments or a result as JSON; what is larger belongs into a file (docs/values.md)."""


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


# --- arguments --------------------------------------------------------------------------------


def call_text(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """The arguments of a call, plain JSON, as the one argument of a manifest."""
    return plain_call(args, kwargs).decode()


def call_of(manifest: Manifest) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from a manifest that has them, as plain JSON."""
    if len(manifest.args) != 1:
        raise Malformed("a handler takes exactly one JSON argument", reason="manifest")
    try:
        call = read_call(manifest.args[0])
    except TypeError as wrong:
        raise Malformed(str(wrong), reason="manifest") from None
    named = {name: PLAIN.decode(raw) for name, raw in call.kwargs.items()}
    return [PLAIN.decode(raw) for raw in call.args], named


def inline_arguments(text: bytes) -> dict[str, Any] | None:
    """The fields of a manifest that has a call's arguments in it; None if they are too large."""
    return {"args": [text.decode()]} if len(text) <= INLINE_BYTES else None


async def keep_arguments(text: bytes, artifacts: Artifacts) -> dict[str, Any]:
    """The fields of a manifest that names a call's arguments, which are an artifact."""
    check_size(len(text), "the arguments have")
    kept = await artifacts.keep_bytes(text, ARGUMENTS, media_type=JSON)
    given = {"kind": "blobptr", "algo": "blake3", "hash": kept.hash, "size": kept.size}
    return {"args": [], "inputs": [{**given, "name": ARGUMENTS}]}


async def arguments_of(
    manifest: Manifest, artifacts: Artifacts | None, *, job: JobName
) -> str | bytes:
    """The text of a job's arguments, wherever it is."""
    stored = stored_arguments(manifest)
    if stored is not None:
        return await _read(stored, artifacts, job)
    if len(manifest.args) != 1:
        raise Malformed("a handler takes exactly one JSON argument", reason="manifest")
    return manifest.args[0]


async def filled(
    call: str | bytes, assignment: Assignment, artifacts: Artifacts | None
) -> str | bytes:
    """A call's text with the results of other jobs in their places."""
    given = () if isinstance(assignment.manifest.inputs, UnsetType) else assignment.manifest.inputs
    job, values = (assignment.kind, assignment.job_id), dict[str, str | bytes]()
    for one in given:
        if isinstance(one, BlobInput) and is_place(one.name):
            text = assignment.texts.get(one.hash)
            values[str(one.name)] = await _read(one, artifacts, job) if text is None else text
    return fill(call, values) if values else call


# --- results ----------------------------------------------------------------------------------


async def keep_result(text: bytes, artifacts: Artifacts | None) -> Output:
    """The output that is a handler's result."""
    if len(text) <= INLINE_BYTES:
        return inline_output(RESULT, text.decode(), JSON)
    check_size(len(text), "the result has")
    if artifacts is None:
        raise _no_artifacts()
    return await artifacts.keep_bytes(text, RESULT, media_type=JSON)


async def result_of(
    outputs: Sequence[Output], artifacts: Callable[[], Artifacts | None], *, job: JobName
) -> str | bytes | None:
    """The text of a handler's result; None for a command, which has none."""
    for output in outputs:
        # A command's file may have this name, too; that is not a result in JSON.
        if output.name == RESULT and output.type == JSON:
            if output.text is not None:
                return output.text
            return await _read(output, artifacts(), job)
    return None


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


# --- size -------------------------------------------------------------------------------------


def check_size(size: int, what: str) -> None:
    """`Malformed` for a value that is too large to be one."""
    if size > MAX_VALUE_BYTES:
        raise Malformed(
            f"{what} {size:,} bytes as JSON; the limit is {MAX_VALUE_BYTES:,}",
            reason="value_size",
            hint="store the data as a file with mesh.keep(path) and pass on its hash",
        )


async def _read(wanted: Output | BlobInput, artifacts: Artifacts | None, job: JobName) -> bytes:
    if artifacts is None:
        raise _no_artifacts()
    found = wanted if isinstance(wanted, Output) else wanted.hash
    return await artifacts.read(found, job=job, max_bytes=MAX_VALUE_BYTES)


def _no_artifacts() -> Misconfigured:
    return Misconfigured("this value is stored as an artifact, and no artifact store is known here")
