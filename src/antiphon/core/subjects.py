"""Where a record belongs: kinds, subjects and lanes (spec §8).

A mesh's log lives under `ap.<mesh>`:

    ctl.<what>…                  control ops
    wait.<kind…>.<job>           schedules that wait for something
    call.<class>.<kind…>.<job>   schedules and offers: the announcement of work
    job.<kind…>.<job>            everything that happens to a job afterwards
    seal                         the coordinator's seals

A job is the pair (kind, job id); its *lane* is every record on its wait, call and job subjects.
Kinds are subject tokens, so filters and permissions follow prefixes. A kind's first token begins
with a letter, which keeps `call.1.render` and a kind named `1.render` apart; no token has 64
characters, so a kind never looks like a job.
"""

from __future__ import annotations

import re

from antiphon.errors import Malformed

ROOT = "ap"
CLASSES = (0, 1, 2)
"""0 urgent, 1 normal, 2 whenever."""
_CLASS_TOKENS = frozenset(map(str, CLASSES))

MAX_KIND_LENGTH = 128
MAX_KIND_TOKENS = 8
_TOKEN = r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_KIND = re.compile(rf"(?=[a-z]){_TOKEN}(?:\.{_TOKEN}){{0,{MAX_KIND_TOKENS - 1}}}", re.ASCII)
_JOB = re.compile(r"[0-9a-f]{64}", re.ASCII)


def is_kind(text: str) -> bool:
    """Whether `text` is a well-formed kind, such as `render.video.h264`."""
    return len(text) <= MAX_KIND_LENGTH and _KIND.fullmatch(text) is not None


def is_job(text: str) -> bool:
    """Whether `text` is a job id: 64 lower-case hex digits."""
    return _JOB.fullmatch(text) is not None


def check_kind(text: str) -> str:
    """`text` itself, or `Malformed` with what a kind may look like."""
    if not is_kind(text):
        raise Malformed(
            f"{text!r} is not a kind",
            reason="kind",
            hint="use dotted lower-case words such as 'render.video' (a-z, 0-9, '-' and '_')",
        )
    return text


def covers(prefix: str, kind: str) -> bool:
    """Whether a kind prefix covers a kind: itself, or anything below it."""
    return kind == prefix or kind.startswith(prefix + ".")


def root(mesh: str) -> str:
    """The subject under which the whole log of a mesh lies."""
    return f"{ROOT}.{mesh}"


def control(mesh: str, what: str) -> str:
    """The subject of a control op."""
    return f"{ROOT}.{mesh}.ctl.{what}"


def all_control(mesh: str) -> str:
    """Filter: every control op."""
    return f"{ROOT}.{mesh}.ctl.>"


def wait(mesh: str, kind: str, job: str) -> str:
    """The subject of a schedule that waits."""
    return f"{ROOT}.{mesh}.wait.{kind}.{job}"


def call(mesh: str, urgency: int, kind: str, job: str) -> str:
    """The subject of a schedule or offer: the announcement."""
    return f"{ROOT}.{mesh}.call.{urgency}.{kind}.{job}"


def job(mesh: str, kind: str, job_id: str) -> str:
    """The subject of what happens to a job."""
    return f"{ROOT}.{mesh}.job.{kind}.{job_id}"


def seal(mesh: str) -> str:
    """The subject of the coordinator's seals."""
    return f"{ROOT}.{mesh}.seal"


def lane(mesh: str, kind: str, job_id: str) -> tuple[str, ...]:
    """The literal subjects that make up one job's lane."""
    return (
        wait(mesh, kind, job_id),
        *(call(mesh, urgency, kind, job_id) for urgency in CLASSES),
        job(mesh, kind, job_id),
    )


def lane_filters(mesh: str, kind: str, job_id: str) -> tuple[str, str]:
    """The same lane as two wildcard filters, the fewest reads that cover it.

    For a one-token kind that equals a class digit the first filter could touch a stranger's call
    subject; kinds begin with a letter, so it cannot.
    """
    return (
        f"{ROOT}.{mesh}.*.{kind}.{job_id}",
        f"{ROOT}.{mesh}.call.*.{kind}.{job_id}",
    )


def calls_of(mesh: str, urgency: int, kind: str, *, below: bool) -> str:
    """Filter: announcements of exactly one kind, or of every kind below a prefix."""
    return f"{ROOT}.{mesh}.call.{urgency}.{kind}.{'>' if below else '*'}"


def queue_name(kind: str, urgency: int) -> str:
    """The shared queue of one kind and class: the same for every worker.

    Engines allow no dot in a queue's name; `=` cannot occur in a kind, so names stay distinct.
    """
    return f"{kind.replace('.', '=')}={urgency}"


def lane_of(subject: str) -> tuple[str, str] | None:
    """(kind, job id) of a subject that belongs to a lane, else None."""
    tokens = subject.split(".")
    if len(tokens) < 5:  # noqa: PLR2004 - ap.<mesh>.job.<kind>.<job> is the shortest
        return None
    match tokens[2]:
        case "wait" | "job":
            kind_tokens = tokens[3:-1]
        case "call" if tokens[3] in _CLASS_TOKENS:
            kind_tokens = tokens[4:-1]
        case _:
            return None
    if not kind_tokens:
        return None
    return ".".join(kind_tokens), tokens[-1]


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a filter with `*` (one token) and `>` (one or more)."""
    if pattern in (">", subject):
        return True
    wanted = pattern.split(".")
    tokens = subject.split(".")
    for at, want in enumerate(wanted):
        if want == ">":
            return len(tokens) > at
        if at >= len(tokens) or want not in ("*", tokens[at]):
            return False
    return len(wanted) == len(tokens)
