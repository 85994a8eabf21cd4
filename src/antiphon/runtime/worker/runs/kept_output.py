"""Stores what a handler printed with its job's end, if its task says so."""

from __future__ import annotations

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
    from antiphon.runtime.executors.printed_output import PrintedOutput

INLINE_BYTES: Final = 4096
"""Up to this size it is in the record itself, beside the result."""
TEXT: Final = "text/plain"

log = LazyLogger(__name__)


async def with_output(end: Ending, printed: PrintedOutput, artifacts: Artifacts | None) -> Ending:
    """The job's end with the output; a run that is tried again keeps none.

    That of a failure ends with its traceback, as a program's does on a terminal. A job does not
    fail because what it printed could not be stored.
    """
    if not printed.is_kept or not isinstance(end, CompleteBody):
        return end
    text = _with_traceback(printed.text(), end.error)
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
