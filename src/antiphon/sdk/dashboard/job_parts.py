"""Parts of a job's page: its steps, model calls, questions, cost, output, and why this worker."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, structs

from antiphon.core.families.jobs.ops import JobArtifact
from antiphon.core.policy.selection import Unfit
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.caller.model_calls import calls_on
from antiphon.runtime.executors.printed_output import OUTPUT
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.costs.cost_report import spent_words
from antiphon.sdk.dashboard.live_output import LETTERS, NOTHING, Piece, Printed, as_text
from antiphon.sdk.explanation import selection_words, wait_words
from antiphon.sdk.graphs.neighbours import Around, around

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from antiphon.core.families.jobs.state import Job
    from antiphon.core.inference.snapshot import Content
    from antiphon.core.proof.output import Output
    from antiphon.runtime.caller.model_calls import ModelCall
    from antiphon.runtime.log.lane_reader import JobView as Lane
    from antiphon.sdk.explanation import Explanation
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.mesh import Mesh

STEPS: Final = 50
CALLS: Final = 10
QUESTIONS: Final = 20
WORKERS: Final = 12
OUTPUTS: Final = 50
VALUE_LETTERS: Final = 600
CALL_LETTERS: Final = 2_000
READ_BYTES: Final = 256 * 1024
"""Of a stored output; the end of a longer one is not looked for."""
ROLL_S: Final = 0.25
PRINTED: Final = ("stdout", "stderr", OUTPUT)


class Step(Struct, frozen=True, kw_only=True):
    """A step whose result is stored."""

    name: str
    value: str
    """As JSON; empty: it is stored outside the log."""
    size: int
    at_ms: int
    by: str


class Call(Struct, frozen=True, kw_only=True):
    """A model call."""

    number: int
    model: str
    tokens: str
    took_ms: int
    status: str
    """What came back, in a word."""
    prompt: str
    answer: str
    redacted: str


class Awaited(Struct, frozen=True, kw_only=True):
    """A question that the job waits for, or went on with."""

    kind: str
    id: str
    text: str
    is_open: bool
    said: str
    """How it ended."""


class Lot(Struct, frozen=True, kw_only=True):
    """A worker that is online, and this job."""

    name: str
    rank: str
    draw: str
    words: str
    """Why it is no candidate, or that it has it."""
    is_holder: bool


class Why(Struct, frozen=True, kw_only=True):
    """Why this worker, or what it waits for."""

    how: str
    waits: list[str]
    lots: list[Lot]
    able: int
    """Workers that are not listed, and run its kind."""
    others: int
    """Workers that run other kinds."""


class Kept(Struct, frozen=True):
    """An output of the job."""

    name: str
    size: int
    type: str


class JobParts(Struct, frozen=True, kw_only=True):
    """The parts."""

    steps: list[Step]
    more_steps: int
    calls: list[Call]
    more_calls: int
    questions: list[Awaited]
    cost: str
    cost_by: list[tuple[str, str]]
    """By worker, where there were several."""
    outputs: list[Kept]
    why: Why | None
    graph: Around


async def job_parts(
    mesh: Mesh,
    job: Job,
    view: Lane,
    outputs: Iterable[Output],
    *,
    names: Callable[[str], str],
) -> JobParts:
    """Everything but the story."""
    stored = [
        (op, one.opened.commit_ms)
        for one in view.history
        if one.verdict is Verdict.OK and isinstance(op := one.opened.op, JobArtifact)
    ]
    steps = [_step(op, at_ms, names) for op, at_ms in stored if op.body.as_ == "step"]
    calls, more_calls = await _calls(mesh, view)
    by = [(names(node), spent_words(one)) for node, one in job.spent]
    return JobParts(
        steps=steps[:STEPS],
        more_steps=max(len(steps) - STEPS, 0),
        calls=calls,
        more_calls=more_calls,
        questions=await _questions(mesh, job),
        cost=spent_words(job.total_spent) if job.spent else "",
        cost_by=by if len(by) > 1 else [],
        outputs=[Kept(one.name, one.size, one.type or "") for one in outputs][:OUTPUTS],
        why=await _why(mesh.job(job.kind, job.id), job, names),
        graph=await around(mesh, job),
    )


async def printed_by(mesh: Mesh, job: Job, outputs: Iterable[Output]) -> Printed:
    """The end of what a job that has ended stored of what it printed."""
    pieces, is_cut, is_there = list[Piece](), False, False
    for one in outputs:
        if one.name not in PRINTED:
            continue
        is_there = True
        if one.size > READ_BYTES:
            is_cut = True
            continue
        if one.text is not None:
            text = one.text
        else:
            raw = b""
            with suppress(AntiphonError):  # it is not kept any more
                artifacts = mesh.connection.artifacts
                raw = await artifacts.read(one, job=(job.kind, job.id), max_bytes=READ_BYTES)
            text = raw.decode(errors="replace")
        is_cut = is_cut or len(text) > LETTERS
        pieces.append(Piece(as_text(text[-LETTERS:]), one.name == "stderr"))
    if not is_there:
        return NOTHING
    return Printed(pieces=[one for one in pieces if one.text], is_cut=is_cut, is_stored=True)


def _step(op: JobArtifact, at_ms: int, names: Callable[[str], str]) -> Step:
    body = op.body
    value, size = body.value or "", body.size or len((body.value or "").encode())
    return Step(
        name=body.name,
        value=_cut(value, VALUE_LETTERS),
        size=size,
        at_ms=at_ms,
        by=names(op.author),
    )


async def _calls(mesh: Mesh, view: Lane) -> tuple[list[Call], int]:
    job = view.lane.job
    if job is None or job.artifacts is None or not job.artifacts.snapshots:
        return [], 0
    snapshots = [
        one
        for one in view.history
        if isinstance(op := one.opened.op, JobArtifact) and op.body.as_ == "snapshot"
    ]
    newest = structs.replace(view, history=snapshots[-CALLS:])
    found = await calls_on(newest, mesh.connection.artifacts)
    return [_call(one) for one in found], job.artifacts.snapshots - len(found)


def _call(one: ModelCall) -> Call:
    found = one.snapshot
    if found is None:
        gone = {"evicted": "not kept any more", "gone": "missing"}
        status = gone.get(one.where, "not what was recorded")
        blank = {"tokens": "", "prompt": "", "answer": "", "redacted": ""}
        return Call(number=one.number + 1, model=one.model, took_ms=0, status=status, **blank)
    used = found.tokens
    is_counted = used.input is not None or used.output is not None
    texts = [
        "\n".join([answer.text, *(f"calls {call.name}" for call in answer.tool_calls)]).strip()
        for answer in found.answers
    ]
    return Call(
        number=one.number + 1,
        model=one.model,
        tokens=f"{used.input or 0:,} in, {used.output or 0:,} out" if is_counted else "",
        took_ms=found.telemetry.duration_ms,
        status=str(found.telemetry.status or "no answer"),
        prompt=_cut(_content(found.prompt), CALL_LETTERS),
        answer=_cut("\n".join(texts) or _content(found.output), CALL_LETTERS),
        redacted=", ".join(found.redacted),
    )


def _content(content: Content) -> str:
    if content.redacted:
        return f"(redacted: {content.size:,} bytes)"
    if content.base64:
        return "(bytes)"
    value: Any = content.value
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def _questions(mesh: Mesh, job: Job) -> list[Awaited]:
    """Questions that it waits for now, and those among its last children."""
    if job.question is not None:
        return []
    asked = list(dict.fromkeys((*job.awaited, *job.children)))[:QUESTIONS]
    found = list[Awaited]()
    async with mesh.replica() as replica:
        for key in asked:
            one = replica.ask(ReplicaJobs).job(*key)
            if one is not None and one.question is not None:
                is_gone = one.is_terminal and replica.ask(ReplicaErasures).about(one) is not None
                found.append(
                    Awaited(
                        kind=one.kind,
                        id=one.id,
                        text="forgotten" if is_gone else one.question.text,
                        is_open=not one.is_terminal,
                        said="answered" if one.state.value == "succeeded" else one.outcome,
                    )
                )
    return found


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


async def _why(handle: JobHandle[Any], job: Job, names: Callable[[str], str]) -> Why | None:
    if job.question is not None or job.replicas:
        return None
    try:
        told, cards = await handle.explain(wait_s=ROLL_S)
    except AntiphonError:
        return None
    aliases = {card.node: card.alias for card in cards if card.alias}

    def called(node: str) -> str:
        known = names(node)
        return known if known != short_node(node) else aliases.get(node, known)

    able = [one for one in told.lots if one.unfit != Unfit.OTHER_KINDS or one.node == job.claimer]
    # Without a draw, those that could run it differ in nothing: they are counted.
    held = {one.node for one in told.tenures}
    near = [one for one in able if one.draw or one.unfit or one.node in held]
    return Why(
        how=selection_words(told),
        waits=[wait_words(one, called, _moment, _moment) for one in told.waits_for],
        lots=[
            Lot(
                name=called(one.node),
                rank="" if one.rank is None else str(one.rank),
                draw=one.draw[:12],
                words=_lot_words(one.words, told, one.node, job),
                is_holder=one.node == job.claimer,
            )
            for one in near[:WORKERS]
        ],
        able=len(able) - len(near[:WORKERS]),
        others=len(told.lots) - len(able),
    )


def _lot_words(unfit: str, told: Explanation, node: str, job: Job) -> str:
    held = [one for one in told.tenures if one.node == node]
    if node == job.claimer:
        return "has it" if not job.is_terminal else "ran it last"
    if held:
        return f"had it: {held[-1].how}"
    return unfit


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} letters)"
