"""Options of tasks and of single calls: when a job runs, how often, how long, where.

The dictionaries are what people write and type checkers know; `Scheduling` is the same, checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import msgspec
from blake3 import blake3
from msgspec import Struct

from antiphon.core import manifest as manifests
from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.priority import PRIORITIES, Priority
from antiphon.core.manifest import Manifest, NonceInput
from antiphon.core.policy.rate_limit import parse_rate
from antiphon.core.policy.selection import MAX_REQUIRED, check_labels
from antiphon.core.record.subjects import check_kind
from antiphon.core.tempo.budget import Budget, read_budget
from antiphon.core.tempo.score import Score, read_score
from antiphon.errors import Malformed, Misconfigured
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.sdk.defaults import RETRY_BASE_S, RETRY_CAP_S, TIMEOUT_S
from antiphon.sdk.durations import seconds

if TYPE_CHECKING:
    from antiphon.ports import Entropy


class AnyJob(Protocol):
    """Stands for a job: a handle, or a step of a graph."""

    def job_key(self) -> tuple[str, str]:
        """Its kind and its id; `Misconfigured` if it is not submitted."""


Duration = float | timedelta | str
"""Seconds, a timedelta, or text such as "90s", "15m", "1h30m"."""


class Retry(Struct, frozen=True, kw_only=True):
    """How a task's jobs are retried (docs/do/tasks.md)."""

    attempts: int | None = None
    """Attempts before a job counts as failed. None: the mesh's rule."""
    base: Duration = RETRY_BASE_S
    """The pause before the second attempt; doubled before each further one, and jittered."""
    cap: Duration = RETRY_CAP_S
    """The longest such pause."""
    give_up_on: tuple[type[BaseException] | str, ...] = ()
    """Errors that are not worth another attempt, by class or by name, with their subclasses."""

    def __post_init__(self) -> None:
        self.body()

    def body(self) -> ops.Retry:
        """As it is in the op that submits a job; `Misconfigured` if it is out of bounds."""
        names = [given if isinstance(given, str) else given.__name__ for given in self.give_up_on]
        said = {
            "attempts": self.attempts,
            "base_ms": _ms(self.base),
            "cap_ms": _ms(self.cap),
            "give_up_on": names,
        }
        try:
            return msgspec.convert(said, ops.Retry)
        except msgspec.ValidationError as problem:
            raise Misconfigured(
                f"these retry options are not valid: {problem}",
                hint="use 1 to 1000 attempts, pauses of up to an hour, at most 64 names",
            ) from problem


class CallOptions(TypedDict, total=False):
    """How a job is scheduled: of a task, for all its calls, or of one call."""

    timeout: Duration
    """How long one attempt may run, in whole seconds; part of the job's id."""
    priority: Priority
    """Which waiting job is handed out first."""
    delay: Duration
    """The job begins no sooner than so long after it was submitted."""
    at: datetime
    """The job begins no sooner than then; a time with its zone."""
    start_by: Duration | datetime
    """The job must begin by then, or so long after it may begin; else it is aborted."""
    idempotency_key: str
    """Submitted again with this key and the same arguments, it is the same job."""
    once: bool
    """Submitted again with the same arguments, it is the same job: no key is needed."""
    attempts: int
    """Short for `retry=Retry(attempts=…)`."""
    retry: Retry
    lease: Duration
    """How long a worker that stopped answering keeps the job."""
    lease_max: Duration
    requires: Sequence[str]
    """Labels that a worker must have: `"gpu=a100"`, or `"gpu"` for any (docs/do/selection.md)."""
    concurrency: str
    """The limit under which it is counted; without it, that of its kind, if there is one."""
    after: Sequence[object]
    """Handles of jobs, or steps of the same graph, that have to end first (docs/do/graphs.md)."""
    any_outcome: bool
    """Whether it also begins after jobs that failed; not after those whose results it reads."""
    replicas: int
    """How many times it is run, by whoever claims it; `quorum` of these have to agree."""
    quorum: int
    """How many independent workers have to reach the same result; if left out, most of them."""
    budget: Budget | Mapping[str, Any]
    """What it may use up, and the account that pays for it (docs/do/cost.md)."""
    score: Score | Mapping[str, Any]
    """Its beats: how long its phases may take, and how long it may wait (docs/do/scores.md)."""


class TaskOptions(CallOptions, total=False):
    """The same for all calls of a task, and how a worker runs its function."""

    run_in: Literal["loop", "thread", "process"]
    rate: str
    on_disconnect: Literal["stop", "continue"]
    keep_output: bool
    """Whether what it prints is stored with its end, as the output `output`."""
    env: Sequence[str]


class Scheduling(Struct, frozen=True, kw_only=True):
    """Options, checked."""

    timeout_s: int = TIMEOUT_S
    priority: Priority = "normal"
    delay_ms: int | None = None
    at_ms: int | None = None
    start_by_ms: int | None = None
    start_within_ms: int | None = None
    idempotency_key: str | None = None
    once: bool = False
    retry: ops.Retry = ops.Retry()
    lease_ms: int | None = None
    lease_ms_max: int | None = None
    requires: tuple[str, ...] = ()
    concurrency: str | None = None
    after: tuple[AnyJob, ...] = ()
    any_outcome: bool = False
    replicas: int | None = None
    quorum: int | None = None
    budget: Budget | None = None
    score: Score | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Scheduling:
        """What these options say; `Misconfigured` for what they cannot say."""
        unknown = options.keys() - CallOptions.__annotations__.keys()
        if unknown:
            raise _unknown(unknown)
        if "delay" in options and "at" in options:
            raise Misconfigured("a job has a delay or a time, not both")
        if options.get("once") and "idempotency_key" in options:
            raise Misconfigured("once=True is for all calls with the same arguments; a key is not")
        start_by = options.get("start_by")
        replicas, quorum = _replicas(options.get("replicas"), options.get("quorum"))
        return cls(
            timeout_s=math.ceil(seconds(options.get("timeout", TIMEOUT_S))),
            priority=_priority(options.get("priority", "normal")),
            delay_ms=_optional_ms(options.get("delay")),
            at_ms=_wall_ms(options["at"]) if options.get("at") is not None else None,
            start_by_ms=_wall_ms(start_by) if isinstance(start_by, datetime) else None,
            start_within_ms=None if isinstance(start_by, datetime) else _optional_ms(start_by),
            idempotency_key=_key(options.get("idempotency_key")),
            once=bool(options.get("once", False)),
            retry=_retry(options),
            lease_ms=_optional_ms(options.get("lease")),
            lease_ms_max=_optional_ms(options.get("lease_max")),
            requires=_requires(options.get("requires", ())),
            concurrency=_label(options.get("concurrency")),
            after=_after(options.get("after", ())),
            any_outcome=bool(options.get("any_outcome", False)),
            replicas=replicas,
            quorum=quorum,
            budget=_budget(options.get("budget")),
            score=_score(options.get("score")),
        )

    def handler_call(self, kind: str, where: Mapping[str, Any], nonce: NonceInput) -> Manifest:
        """The manifest of a call whose arguments are there: a new job, unless `once` or a key."""
        job = manifests.author(
            {"command": [f"@{check_kind(kind)}"], "timeout": self.timeout_s, **where}
        )
        if self.once:
            return job
        if self.idempotency_key is None:
            return manifests.with_nonce(job, nonce.nonce, nonce.origin)
        key = blake3(self.idempotency_key.encode()).hexdigest(32)
        return manifests.with_nonce(job, key, "key")

    def body(self, kind: str, job: Manifest, *, now_ms: int) -> ops.ScheduleBody:
        """The body of the op that submits this job; `Misconfigured` if it waits for none."""
        not_before_ms = self.at_ms if self.delay_ms is None else now_ms + self.delay_ms
        start_by_ms = self.start_by_ms
        if self.start_within_ms is not None:
            start_by_ms = (not_before_ms or now_ms) + self.start_within_ms
        return ops.ScheduleBody(
            kind=check_kind(kind),
            manifest=job,
            priority=self.priority,
            retry=self.retry,
            lease_ms=self.lease_ms,
            lease_ms_max=self.lease_ms_max,
            start_by=start_by_ms,
            not_before=not_before_ms,
            requires=self.requires,
            concurrency=self.concurrency,
            after=tuple(one.job_key() for one in self.after),
            after_any_outcome=self.any_outcome,
            replicas=self.replicas,
            quorum=self.quorum,
            budget=self.budget,
            score=self.score,
        )


def merged(before: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, and others that override them: whichever way the number of attempts is said."""
    found = {**before, **options}
    retry = options.get("retry")
    if "attempts" not in options and retry is not None and retry.attempts is not None:
        found.pop("attempts", None)
    elif "attempts" in options and "retry" not in options and "retry" in before:
        found["retry"] = msgspec.structs.replace(before["retry"], attempts=None)
    return found


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], HandlerOptions]:
    """The options of `Mesh.task`, checked: how its jobs are scheduled, and how they are run."""
    ours = {name: options[name] for name in HandlerOptions.__struct_fields__ if name in options}
    calls = {name: given for name, given in options.items() if name not in ours}
    Scheduling.of(calls)
    if isinstance(ours.get("rate"), str):
        ours["rate"] = parse_rate(ours["rate"])
    if "env" in ours:
        ours["env"] = tuple(ours["env"])
    return calls, HandlerOptions(**ours)


def fresh_nonce(entropy: Entropy) -> NonceInput:
    """Makes a manifest a new job, although its content is the same."""
    return NonceInput(nonce=entropy.token(16).hex(), origin="random")


def _unknown(names: set[str]) -> Misconfigured:
    known = sorted(TaskOptions.__annotations__)
    return Misconfigured(
        f"unknown task option: {', '.join(sorted(names))}", hint=f"options are {', '.join(known)}"
    )


def _ms(duration: Duration) -> int:
    return round(seconds(duration) * 1000)


def _optional_ms(duration: Duration | None) -> int | None:
    return None if duration is None else _ms(duration)


def _wall_ms(moment: object) -> int:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise Misconfigured(
            f"{moment!r} is not a time with its zone",
            hint="datetime(2027, 1, 1, 3, 0, tzinfo=ZoneInfo('Europe/Berlin')), or delay='15m'",
        )
    return max(round(moment.timestamp() * 1000), 0)


def _priority(given: Priority) -> Priority:
    if given not in PRIORITIES:
        raise Misconfigured(
            f"{given!r} is not a priority", hint=f"use one of {', '.join(PRIORITIES)}"
        )
    return given


def _key(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given:
        raise Misconfigured(f"an idempotency key is some text, not {given!r}")
    return given


def _retry(options: Mapping[str, Any]) -> ops.Retry:
    retry: Retry = options.get("retry", Retry())
    attempts = options.get("attempts")
    if attempts is None:
        return retry.body()
    if retry.attempts not in (None, attempts):
        raise Misconfigured(
            f"attempts={attempts} and retry=Retry(attempts={retry.attempts}) contradict each other",
            hint="leave out one of them",
        )
    return msgspec.structs.replace(retry, attempts=attempts).body()


def _label(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        return check_labels([given])[0]
    except (ValueError, TypeError) as wrong:
        raise Misconfigured(str(wrong), hint="concurrency='gpu'") from wrong


def _after(given: Sequence[Any]) -> tuple[AnyJob, ...]:
    for one in given:
        if not hasattr(type(one), "job_key"):
            raise Misconfigured(
                f"a job can be after jobs only, not after {one!r}",
                hint="after=[handle], or after=[step] in the same graph",
            )
    if len(given) > ops.MAX_AFTER:
        raise Misconfigured(f"a job can be after {ops.MAX_AFTER} jobs; these are {len(given)}")
    return tuple(given)


def _replicas(replicas: int | None, quorum: int | None) -> tuple[int | None, int | None]:
    if replicas is None and quorum is None:
        return None, None
    if replicas is None:
        raise Misconfigured(
            "a quorum is some of a job's replicas, and no number of replicas is given",
            hint=f"such as replicas={quorum}, quorum={quorum}",
        )
    quorum = replicas // 2 + 1 if quorum is None else quorum
    if not ops.MIN_QUORUM <= quorum <= replicas <= ops.MAX_REPLICAS:
        raise Misconfigured(
            f"{quorum} of {replicas} replicas cannot be a quorum",
            hint=f"use {ops.MIN_QUORUM} to {ops.MAX_REPLICAS} replicas, and a quorum of"
            f" {ops.MIN_QUORUM} up to as many",
        )
    return replicas, quorum


def _budget(given: Budget | Mapping[str, Any] | None) -> Budget | None:
    if given is None or isinstance(given, Budget):
        return given
    try:
        return read_budget(given)
    except Malformed as wrong:
        raise Misconfigured(
            wrong.message, hint=wrong.hint or "budget={'max_bu': 8, 'charge_to': 'team-a'}"
        ) from wrong


def _score(given: Score | Mapping[str, Any] | None) -> Score | None:
    if given is None or isinstance(given, Score):
        return given
    try:
        return read_score(given)
    except Malformed as wrong:
        raise Misconfigured(
            wrong.message, hint="score={'phases': {'plan': 1, 'work': 4, 'review': 1}}"
        ) from wrong


def _requires(labels: Sequence[str]) -> tuple[str, ...]:
    try:
        return check_labels(labels, most=MAX_REQUIRED)
    except ValueError as wrong:
        raise Misconfigured(str(wrong), hint="labels look like 'eu' or 'gpu=a100'") from wrong


__all__ = [
    "CallOptions",
    "Duration",
    "Retry",
    "Scheduling",
    "TaskOptions",
    "fresh_nonce",
    "merged",
    "split_options",
]
