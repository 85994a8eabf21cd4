"""`antiphon audit`: what jobs asked models, and what those answered."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import some_seconds
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_job, complete_kind, find_job
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import Piece, moment, out, span

if TYPE_CHECKING:
    from antiphon.sdk.authority.delegation import Holdings
    from antiphon.sdk.handle import ModelCall
    from antiphon.sdk.mesh import Mesh

INDENT = "  "


@command
async def audit(
    mesh: Mesh,
    job: str | None = typer.Argument(
        None,
        metavar="[JOB]",
        help="A job's id, or its first digits. Default: list the calls of all jobs.",
        show_default=False,
        autocompletion=complete_job,
    ),
    *,
    model: str = typer.Option("", help="Only models whose name begins so."),
    since: float | None = typer.Option(
        None,
        parser=some_seconds,
        metavar="TIME",
        help="Only calls within this time: 2h, 7d.",
    ),
    kind: str = typer.Option(
        "", help="Only this kind and kinds below it.", autocompletion=complete_kind
    ),
    limit: int = typer.Option(50, min=1, max=500, help="List this many calls at most."),
) -> Answer:
    """Show the model calls of audited jobs.

    With a job, everything about each call: model, prompt, context, output, tokens and duration,
    and what was redacted. Without one, a table of calls, newest first. --json prints the snapshots.

    \b
      antiphon rules audit_inference=true
      antiphon audit 3f9a
      antiphon audit --model gpt --since 24h
    """  # noqa: D301 - \b keeps the lines apart
    held = await mesh.authority.who()
    if job is None:
        begin = None if since is None else datetime.fromtimestamp(time.time() - since, UTC)
        page = await mesh.queries.model_calls(model=model, kind=kind, since=begin, limit=limit)
        return Answer({"calls": [_facts(one) for one in page]}, lambda: _table(page, held))
    if model or kind or since is not None:
        raise WrongUsage(
            "JOB names one job, so --model, --kind and --since say nothing",
            hint="antiphon audit JOB, or antiphon audit --model NAME --since 24h",
        )
    found_job = await find_job(mesh, job)
    calls = await mesh.job(found_job.kind, found_job.id).model_calls()

    def words() -> None:
        if not calls:
            why = "it made none" if found_job.is_audited else "they are not audited"
            out.say(f"job {short(found_job.id)} has no recorded model calls: {why}")
        for one in calls:
            _page(one, len(calls), held)

    about = {"job": found_job.id, "kind": found_job.kind, "is_audited": found_job.is_audited}
    return Answer({**about, "calls": [_facts(one) for one in calls]}, words)


# --- for programs ---------------------------------------------------------------------------------


def _facts(call: ModelCall) -> dict[str, Any]:
    from msgspec import to_builtins

    names = ("kind", "number", "model", "worker", "fence", "at_ms", "hash", "where")
    return {"job": call.job_id, **fields(call, *names), "snapshot": to_builtins(call.snapshot)}


# --- for people -----------------------------------------------------------------------------------


def _table(calls: list[ModelCall], held: Holdings) -> None:
    if not calls:
        out.say("no model calls are recorded")
        return
    heads = ("WHEN", "JOB", "CALL", "KIND", "MODEL", "TOKENS", "TOOK", "STATUS", "WORKER")
    rows = [_row(one, held) for one in calls]
    out.table(heads, rows, flexible=4)


def _row(call: ModelCall, held: Holdings) -> list[Piece]:
    found = call.snapshot
    took = span(found.telemetry.duration_ms / 1000) if found is not None else ""
    return [
        (moment(call.at_ms), "quiet"),
        (short(call.job_id), "strong"),
        (str(call.number + 1), ""),
        (call.kind, ""),
        (call.model, ""),
        (_tokens(call), ""),
        (took, ""),
        (_status(call), "" if found is not None else "failed"),
        (held.called(call.worker), "quiet"),
    ]


def _tokens(call: ModelCall) -> str:
    found = call.snapshot
    if found is None or (found.tokens.input is None and found.tokens.output is None):
        return ""
    return f"{found.tokens.input or 0:,} in, {found.tokens.output or 0:,} out"


def _status(call: ModelCall) -> str:
    found = call.snapshot
    if found is None:
        return {"evicted": "evicted", "gone": "missing"}.get(call.where, "not what was recorded")
    return str(found.telemetry.status or "") or "no answer"


def _page(call: ModelCall, of: int, held: Holdings) -> None:
    found = call.snapshot
    head = f"call {call.number + 1} of {of}  "
    out.pieces((head, "quiet"), (call.model, "strong"), (f"  {_status(call)}", ""))
    if found is None:
        out.say(f"{INDENT}recorded {moment(call.at_ms)} by {held.called(call.worker)}; its digest:")
        out.say(f"{INDENT}{call.hash}")
        return
    asked, backend, told = found.model, found.backend, found.telemetry
    version = f", answered by {asked.version}" if asked.version else ""
    mark = f" ({asked.fingerprint})" if asked.fingerprint else ""
    lines = {
        "model": f"{asked.id or 'not named'}{version}{mark}",
        "backend": f"{backend.method} {backend.url}, read as {backend.api}, by {backend.library}",
        "when": f"{moment(call.at_ms)}, took {span(told.duration_ms / 1000)}",
        "hlc": f"{found.started} to {found.ended}",
        "worker": f"{held.called(call.worker)} under fence {call.fence}",
        "tokens": _tokens(call),
        "redacted": ", ".join(found.redacted),
        "problem": told.error or ("" if told.is_complete else "the answer was not read to its end"),
    }
    for name, value in lines.items():
        if value:
            out.pieces((f"{INDENT}{name:<9}", "quiet"), (value, ""))
    _part("prompt", _content(found.prompt))
    for number, one in enumerate(found.context):
        _part(f"context {number}", _content(one))
    answers = found.answers
    if not answers:
        _part("output", _content(found.output))
    for answer in answers:
        calls = [f"calls {one.name}({_json(one.arguments)})" for one in answer.tool_calls]
        other = [_json(one) for one in answer.other]
        stop = [f"[{answer.stop}]"] if answer.stop else []
        _part("output", "\n".join(filter(None, [answer.text, *calls, *other, *stop])))


def _part(name: str, text: str) -> None:
    out.pieces((f"{INDENT}{name}", "strong"))
    for line in text.splitlines() or [""]:
        out.say(f"{INDENT * 2}{line}")


def _content(content: Any) -> str:
    """A part of a call as text: messages one below the other, everything else as JSON."""
    if content.redacted:
        why = "by the mesh's policy" if content.redacted == "policy" else "it was too long"
        return f"(redacted, {why}: {content.size:,} bytes, {content.hash or 'not read'})"
    if content.base64:
        return f"(bytes, as base64) {content.base64}"
    value = content.value
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return _json(value)
    lines = [f"{one.get('role', 'said')}: {_json(one.get('content'))}" for one in messages]
    if isinstance(value, dict) and "system" in value:
        lines.insert(0, f"system: {_json(value['system'])}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
