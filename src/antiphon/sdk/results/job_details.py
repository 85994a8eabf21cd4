"""What a person wants to know about a job first: what it was asked to do, and its last error."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core.families.jobs.ops import DEGRADED, Failure
from antiphon.core.manifest import stored_arguments
from antiphon.errors import Malformed
from antiphon.runtime.caller.job_status import last_failure
from antiphon.runtime.executors.handler_call import call_of
from antiphon.runtime.executors.printed_output import OUTPUT

if TYPE_CHECKING:
    from antiphon.core.manifest import Manifest
    from antiphon.runtime.log.lane_reader import JobView

MAX_WORDS: Final = 1_000
"""Letters of the arguments as a person sees them."""


class Details(Struct, frozen=True, kw_only=True):
    """A job's arguments, and the last failure of one of its runs."""

    arguments: dict[str, Any]
    """`args` and `kwargs` of a call, `command` of a command, or `stored` with a digest."""
    words: str
    """The same for people; empty if there are none."""
    failure: Failure | None


def details_of(view: JobView) -> Details:
    """What a job's lane says about these."""
    body = view.submitted_with
    arguments = _arguments(body.manifest) if body is not None else {}
    words = _words(arguments)
    if len(words) > MAX_WORDS:
        words = f"{words[:MAX_WORDS]}… ({len(words):,} letters)"
    return Details(arguments=arguments, words=words, failure=last_failure(view))


def _arguments(manifest: Manifest) -> dict[str, Any]:
    if manifest.handler is None:
        return {"command": [*manifest.command, *manifest.args]}
    stored = stored_arguments(manifest)
    if stored is not None:
        return {"stored": stored.hash}
    try:
        args, kwargs = call_of(manifest)
    except Malformed:
        return {"text": list(manifest.args)}
    return {"args": args, "kwargs": kwargs}


def _words(arguments: dict[str, Any]) -> str:
    if "command" in arguments:
        return shlex.join(arguments["command"])
    if "stored" in arguments:
        return f"stored outside the log as {arguments['stored']}"
    if "text" in arguments:
        return " ".join(arguments["text"])
    values = [_json(one) for one in arguments.get("args", ())]
    named = [f"{name}={_json(one)}" for name, one in arguments.get("kwargs", {}).items()]
    return ", ".join([*values, *named])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


__all__ = ["DEGRADED", "OUTPUT", "Details", "details_of"]
