"""Keeps what a handler prints, if its task says so, and stores it with its job's end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.families.jobs.ops import CompleteBody
from antiphon.errors import AntiphonError
from antiphon.runtime.executors.handler_call import inline_output
from antiphon.runtime.executors.printed_output import OUTPUT
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import Failure
    from antiphon.core.policy.attempt_end import Ending
    from antiphon.runtime.artifacts.store import Artifacts

KEPT_BYTES: Final = 1 << 20
"""The end of a run's output that is kept, both streams together."""
INLINE_BYTES: Final = 4096
"""Up to this size it is in the record itself, beside the result."""
TEXT: Final = "text/plain"

log = LazyLogger(__name__)


class KeptOutput:
    """What one run printed, up to a limit; from any thread."""

    def __init__(self) -> None:
        """Nothing is printed yet."""
        self._lock = threading.Lock()
        self._kept = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Keep what the handler wrote."""
        with self._lock:
            self._kept += data
            over = len(self._kept) - KEPT_BYTES
            if over > KEPT_BYTES // 8:  # not for every line
                del self._kept[:over]
                self._dropped += over

    def text(self) -> str:
        """What is to be stored; empty if nothing is."""
        with self._lock:
            kept, dropped = bytes(self._kept), self._dropped
        over = max(len(kept) - KEPT_BYTES, 0)
        text = kept[over:].decode("utf-8", "replace")
        if dropped + over:
            return f"... {dropped + over:,} bytes before this were not kept\n{text}"
        return text


async def with_output(end: Ending, kept: KeptOutput, artifacts: Artifacts | None) -> Ending:
    """The job's end with the output; a run that is tried again keeps none.

    That of a failure ends with its traceback, as a program's does on a terminal. A job does not
    fail because what it printed could not be stored.
    """
    if not isinstance(end, CompleteBody):
        return end
    text = _with_traceback(kept.text(), end.error)
    if not text:
        return end
    raw = text.encode()
    try:
        if len(raw) <= INLINE_BYTES or artifacts is None:
            output = inline_output(OUTPUT, raw[-INLINE_BYTES:].decode("utf-8", "ignore"), TEXT)
        else:
            output = await artifacts.keep_bytes(raw, OUTPUT, media_type=TEXT)
    except AntiphonError as problem:
        log.warning("output_not_kept", kind=end.kind, job=end.job, problem=problem.message)
        return end
    return replace(end, outputs=(*end.outputs, output))


def _with_traceback(text: str, error: Failure | None) -> str:
    if error is None or not error.traceback:
        return text
    if text and not text.endswith("\n"):
        text += "\n"
    return f"{text}{error.traceback}\n"
