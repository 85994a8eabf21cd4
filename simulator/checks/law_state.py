"""The state that the laws keep: who held what, since when, until when, and under what.

Everything here follows from accepted records, read with code of its own (`plain_record.py` for
what a record says, `authority_model.py` for who may do what). The core is not asked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field

from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from simulator.checks.authority_model import AuthorityModel, Call
from simulator.checks.plain_record import Key, PlainRecord, content_of

WORD_DEFAULTS: Final = {
    "max_drift_ms": 2_000,
    "start_by_ms": 7 * 24 * 3_600_000,
    "horizon_ms": 30 * 24 * 3_600_000,
    "retry_after_max_ms": 3_600_000,
    "lease_min_ms": 5_000,
    "lease_ms": 30_000,
    "lease_ms_max": 120_000,
    "lease_max_ms": 3_600_000,
    "attempts": 3,
    "yields_max": 32,
    "postponed_max": 100,
    "continuations_max": 1_000,
}
"""Rule values that the laws need, where the mesh does not say otherwise."""


READ_BY: Final = ("/job/read", "/job/claim", "/job/answer")
AFTER: Final = ", after "
"""In a simulated question: behind it is the answer that it follows from."""


class Committed(Struct, frozen=True):
    """A record, what it says, what the rules said, and who really sent it."""

    record: Record
    fact: PlainRecord | None
    key: Key | None
    verdict: Verdict
    tail: int
    """The last sequence on this subject before it."""
    is_honest: bool
    """Sent by a machine that runs the real runtime."""

    @property
    def is_accepted(self) -> bool:
        """Whether the rules let it stand."""
        return self.verdict.value in {"ok", "exists", "already"}

    @property
    def took_effect(self) -> bool:
        """Whether the rules let it change something, or announce."""
        return self.verdict.value == "ok"


class Tenure(Struct):
    """An accepted claim and its renewals."""

    fence: str
    claimer: str
    deadline_ms: int
    lease_ms: int
    auth: tuple[str, ...]
    """The delegations that the claim or its last renewal named."""
    auth_seq: int
    is_audited: bool
    """Whether audit of model calls was in force at its claim."""


class PlanFacts(Struct, frozen=True):
    """A plan that somebody put on the log; whether it was accepted does not matter here."""

    op_id: str
    author: str
    auth: tuple[str, ...]
    put_ms: int
    trigger: dict[str, Any]


class StepFacts(Struct, frozen=True):
    """The stored result of a step: by which tenure, and what it is."""

    fence: str
    value: str


class LaneFacts(Struct):
    """What accepted records say about one job."""

    is_scheduled: bool = False
    question: dict[str, Any] = field(default_factory=dict)
    """What people are asked; empty: it is no question."""
    answer: str = ""
    """What they answered, as JSON."""
    is_waiting: bool = False
    not_before_ms: int = 0
    offered_seq: int = 0
    """The offer that last ended its wait."""
    needs_coordinator: bool = False
    """Whether only the coordinator may offer it."""
    label: str = ""
    is_counted: bool = False
    """Whether it was offered under its label and has not ended."""
    after: tuple[Key, ...] = ()
    any_outcome: bool = False
    reads: tuple[Key, ...] = ()
    """Of these jobs, those whose results it reads."""
    children: tuple[Key, ...] = ()
    """The jobs that it was last given back for, until they have ended."""
    yielded_by: str = ""
    """Who gave it back for them."""
    continuations: int = 0
    unread: str = ""
    """Who could not read what it waits for, and which kind, when its wait began; often empty."""
    has_succeeded: bool = False
    quorum: int = 0
    """How many parties have to agree, where replicas are run in its place."""
    parent_seq: int = 0
    """The schedule that it is a replica of."""
    told: tuple[tuple[str, str, int, str], ...] | None = None
    """What it ended with, if it succeeded: what has to be equal among replicas."""
    done: Call = Call()
    """Who completed it, under the delegations of which claim."""
    called: Call = Call()
    held: Tenure | None = None
    fences: list[str] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)
    """Fences of the tenures that ended because their authority did."""
    newest: tuple[int, int] = (0, 0)
    start_by_ms: int = 0
    start_window_ms: int = 0
    lease_ms_max: int = 0
    tenure_ms_max: int = 0
    """How long after its beginning a tenure can still be renewed; 0: as long as it likes."""
    retry_after_ms: int = 0
    cooling: dict[str, int] = field(default_factory=dict)
    attempts_left: int = 0
    yields: int = 0
    postponed: int = 0
    results: int = 0
    ended_seq: int = 0
    artifacts: Counter[str] = field(default_factory=Counter)
    """How many of each sort its runs have stored."""
    steps: dict[str, StepFacts] = field(default_factory=dict)
    """The first of each name."""
    snapshots: list[str] = field(default_factory=list)
    """The digests of what its runs have stored of model calls."""
    calls_stored: Counter[str] = field(default_factory=Counter)
    """How many of them under each fence."""
    parts: list[Any] = field(default_factory=list)
    """What its stream has, as far as it is in records."""

    @property
    def awaited(self) -> tuple[Key, ...]:
        """The jobs that it waits for."""
        return self.children or self.after


class LawState:
    """The laws' own memory of a mesh."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.lanes: dict[Key, LaneFacts] = {}
        self.rules: dict[str, int] = dict(WORD_DEFAULTS)
        self.authority_model = AuthorityModel()
        self.signed: dict[str, set[bytes]] = {}
        """What each key really signed: ops and delegations."""
        self.calls_made: Counter[tuple[Key, str]] = Counter()
        """How many model calls a handler has made, by job and fence."""
        self.audits_all = False
        """Whether the rules audit the model calls of every tenure."""
        self.limits: dict[str, int] = {}
        """How many jobs with each label may be offered at once."""
        self.counted: Counter[str] = Counter()
        self.plans: dict[int, PlanFacts] = {}
        """By their place on the log."""
        self.derived: dict[tuple[str, str], Key] = {}
        """The job that was derived from a plan, by its op id, at a tick or from a cause."""
        self.newest_tick: dict[str, int] = {}
        self.asked: dict[str, Key] = {}
        """The first question about each thing (`asked_about`)."""
        self.delayed: dict[Key, LaneFacts] = {}
        """Jobs that wait for their time alone, and perhaps some that no longer do."""

    def lane(self, key: Key | None) -> LaneFacts:
        """The facts of a lane as of now: a tenure ends where its authority does."""
        if key is None:
            return LaneFacts()
        lane = self.lanes.setdefault(key, LaneFacts())
        held = lane.held
        if held is not None and self.authority_model.has_ended(
            held.claimer, held.auth, held.auth_seq
        ):
            lane.cut_off.append(held.fence)
            lane.held = None
            again_ms = held.deadline_ms + lane.start_window_ms
            if not lane.question:
                lane.start_by_ms = max(lane.start_by_ms, again_ms)
        return lane

    def parent(self, fact: PlainRecord) -> LaneFacts:
        """The job that a schedule says to be a replica of."""
        return self.lane((fact.body["kind"], fact.body["replica"]["of"]))

    def plan_of(self, fact: PlainRecord) -> PlanFacts | None:
        """The plan that a schedule says to follow from."""
        return self.plans.get(fact.deps[0]) if fact.deps else None

    def move(self, now: Committed) -> None:
        """Take in a record that was accepted."""
        fact = now.fact
        if fact is not None and fact.type.startswith("plan."):
            if fact.type == "plan.put":
                self.plans[now.record.seq] = PlanFacts(
                    fact.op_id, fact.author, fact.auth, fact.wall_ms, fact.body["trigger"]
                )
            return
        if not now.took_effect or now.fact is None:
            return
        if now.key is None:
            rules: dict[str, Any] = now.fact.body.get("rules", {})
            if now.fact.type in {"mesh.genesis", "mesh.rules"}:
                self.audits_all = rules.get("audit_inference", False)
                self.limits = {one["label"]: one["at_once"] for one in rules.get("limits", [])}
                self.rules = {
                    name: rules.get(name, default) for name, default in WORD_DEFAULTS.items()
                }
            self.authority_model.move(now.record.seq, now.fact)
            return
        lane = self.lane(now.key)
        _MOVES[now.fact.type](self, lane, now, now.fact)
        is_counted = bool(lane.label) and not lane.is_waiting and not lane.ended_seq
        self.counted[lane.label] += is_counted - lane.is_counted
        lane.is_counted = is_counted

    def unread(self, lane: LaneFacts, at_ms: int) -> str:
        """Who may not read what a job waits for, and which kind; empty: all may."""
        may, kinds = self.authority_model.may, dict.fromkeys(kind for kind, _ in lane.awaited)
        for who in filter(None, (lane.called.author, lane.yielded_by if lane.children else "")):
            for kind in kinds:
                if not any(may(who, command, kind, at_ms) for command in READ_BY):
                    return f"{who} may not read {kind}"
        return ""


def asked_about(text: str) -> str:
    """What a simulated question is about, without the answer that it follows from."""
    return text.partition(AFTER)[0]


# --- how a lane moves ------------------------------------------------------------------------


def _schedule(ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    lane.is_scheduled = True
    lane.question = fact.body.get("question", {})
    if lane.question and now.key is not None:
        ledger.asked.setdefault(asked_about(lane.question["text"]), now.key)
    lane.not_before_ms = fact.body.get("not_before", 0)
    lane.label = fact.body.get("concurrency", "")
    inputs = fact.body["manifest"].get("inputs", [])
    lane.reads = tuple((one["of"][0], one["of"][1]) for one in inputs if one["kind"] == "result")
    lane.after = tuple((kind, job) for kind, job in fact.body.get("after", [])) + lane.reads
    lane.any_outcome = fact.body.get("after_any_outcome", False)
    lane.quorum = fact.body.get("quorum", 0)
    lane.needs_coordinator = bool(lane.label or lane.after or lane.quorum)
    lane.is_waiting = "not_before" in fact.body or lane.needs_coordinator
    if now.key is not None and lane.is_waiting and not lane.needs_coordinator:
        ledger.delayed[now.key] = lane
    lane.called = Call(fact.author, fact.auth, now.record.seq)
    if "replica" in fact.body:
        lane.parent_seq = fact.deps[0]
        caller = ledger.parent(fact).called
        lane.called = Call(caller.author, caller.auth, now.record.seq)
    derived = fact.body.get("derived")
    plan = ledger.plan_of(fact) if derived is not None else None
    if derived is not None and plan is not None and now.key is not None:
        lane.called = Call(plan.author, plan.auth, now.record.seq)
        ledger.derived[plan.op_id, origin_of(derived)] = now.key
        tick_ms = int(derived.get("tick_ms", 0))
        ledger.newest_tick[plan.op_id] = max(tick_ms, ledger.newest_tick.get(plan.op_id, 0))
    lane.unread = ledger.unread(lane, now.record.commit_ms)
    lane.newest = (fact.wall_ms, fact.logical)
    begin_ms = max(fact.wall_ms, lane.not_before_ms)
    start_by_ms = fact.body.get("start_by", begin_ms + ledger.rules["start_by_ms"])
    latest_ms = begin_ms + ledger.rules["horizon_ms"]
    lane.start_by_ms = latest_ms if lane.quorum else min(start_by_ms, latest_ms)
    lane.start_window_ms = lane.start_by_ms - begin_ms
    rules = ledger.rules
    lease_ms = fact.body.get("lease_ms") or rules["lease_ms"]
    lane.lease_ms_max = fact.body.get("lease_ms_max") or max(lease_ms, rules["lease_ms_max"])
    timeout_ms = fact.body["manifest"].get("timeout", 0) * 1000
    if timeout_ms:
        lane.tenure_ms_max = timeout_ms + rules["lease_max_ms"]
    lane.attempts_left = fact.body.get("retry", {}).get("attempts") or ledger.rules["attempts"]


def origin_of(derived: dict[str, Any]) -> str:
    """The tick or the cause of a derived job."""
    return str(derived.get("tick_ms") or f"{derived['kind']} {derived['job']}")


def _offer(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    """What waited is pending; an announcement of a pending job changes nothing."""
    if lane.is_waiting:
        lane.is_waiting = False
        lane.offered_seq = now.record.seq
        lane.newest = (fact.wall_ms, fact.logical)


def _claim(ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lease_ms = int(fact.body["lease_ms"])
    deadline_ms, seq = fact.wall_ms + lease_ms, now.record.seq
    if lane.held is None:
        grants = ledger.authority_model.grants
        is_audited = ledger.audits_all or any(
            grants[cid].claims.audits for cid in fact.auth if cid in grants
        )
        lane.held = Tenure(
            fact.own_fence, fact.author, deadline_ms, lease_ms, fact.auth, seq, is_audited
        )
        lane.fences.append(fact.own_fence)
    else:
        lane.held.deadline_ms = max(lane.held.deadline_ms, deadline_ms)
        lane.held.lease_ms = lease_ms
        lane.held.auth, lane.held.auth_seq = fact.auth, seq


def _start(_: LawState, lane: LaneFacts, __: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)


def _complete(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lane.results += 1
    lane.has_succeeded = fact.body["status"] == "succeeded"
    if lane.question:
        lane.answer = next((one.get("text", "") for one in fact.body.get("outputs", ())), "")
    lane.ended_seq = lane.ended_seq or now.record.seq
    if fact.body["status"] == "succeeded":
        lane.told = told(fact.body)
    if lane.held is not None:
        lane.done = Call(lane.held.claimer, lane.held.auth, lane.held.auth_seq)
    lane.held = None


def told(body: dict[str, Any]) -> tuple[tuple[str, str, int, str], ...]:
    """The outputs that have to be equal; simulated jobs have a result and nothing else."""
    outputs = (one for one in body.get("outputs", ()) if one["name"] == "result")
    return tuple(sorted((one["name"], *content_of(one)) for one in outputs))


def _resolve(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lane.results += 1
    lane.has_succeeded = True
    lane.ended_seq = lane.ended_seq or now.record.seq


def _wait_again(ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    """A tenure that gave its job back until other jobs have ended: no attempt."""
    lane.continuations += 1
    if lane.continuations > ledger.rules["continuations_max"]:
        lane.ended_seq = lane.ended_seq or now.record.seq
        return
    lane.children = tuple((kind, job) for kind, job in fact.body["after"])
    lane.yielded_by = fact.author
    lane.unread = ledger.unread(lane, now.record.commit_ms)
    lane.is_waiting = lane.needs_coordinator = True
    until_ms = min(fact.body.get("until", 0), fact.wall_ms + ledger.rules["horizon_ms"])
    waits_ms = max(fact.wall_ms, until_ms)
    lane.start_by_ms = max(lane.start_by_ms, waits_ms + lane.start_window_ms)


def _yield(ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lane.held = None
    reason = fact.body["reason"]
    if reason == "after":
        _wait_again(ledger, lane, now, fact)
        return
    is_attempt, is_later = reason in {"error", "overrun"}, reason == "later"
    lane.attempts_left -= is_attempt
    lane.postponed += is_later
    lane.yields += not is_attempt and not is_later
    is_too_often = (
        lane.yields > ledger.rules["yields_max"] or lane.postponed > ledger.rules["postponed_max"]
    )
    if lane.attempts_left <= 0 or is_too_often:
        lane.ended_seq = lane.ended_seq or now.record.seq
    wanted_ms = int(fact.body.get("retry_after_ms", 0))
    lane.retry_after_ms = fact.wall_ms + min(wanted_ms, ledger.rules["retry_after_max_ms"])
    lane.start_by_ms = max(lane.start_by_ms, lane.retry_after_ms + lane.start_window_ms)


def parts_in(body: dict[str, Any]) -> list[Any]:
    """The parts of a stream in a record; none where they are elsewhere, or are none."""
    try:
        found = json.loads(body.get("value", "[]"))
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _artifact(_: LawState, lane: LaneFacts, __: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    body = fact.body
    lane.artifacts[body["as"]] += 1
    if body["as"] == "step":
        lane.steps.setdefault(body["name"], StepFacts(fact.fence, body.get("value", "")))
    elif body["as"] == "part":
        lane.parts += parts_in(body)
    else:
        lane.calls_stored[fact.fence] += 1
        lane.snapshots.append(body.get("digest") or content_of({"text": body["value"]})[0])


def _expire(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    if lane.held is None:
        lane.ended_seq = lane.ended_seq or now.record.seq
        return
    cooled_ms = fact.wall_ms + lane.held.lease_ms
    lane.cooling[lane.held.claimer] = cooled_ms
    if lane.question:  # it stays open until its time, and has no attempts
        lane.held = None
        return
    lane.start_by_ms = max(lane.start_by_ms, cooled_ms + lane.start_window_ms)
    lane.held = None
    lane.attempts_left -= 1
    if lane.attempts_left <= 0:
        lane.ended_seq = lane.ended_seq or now.record.seq


def _cancel(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lane.ended_seq = lane.ended_seq or now.record.seq
    lane.held = None


def _evict(_: LawState, lane: LaneFacts, __: Committed, fact: PlainRecord) -> None:
    if lane.ended_seq:  # before the end only replaced checkpoints go, and nothing else changes
        lane.newest = (fact.wall_ms, fact.logical)


_MOVES: Final[dict[str, Callable[[LawState, LaneFacts, Committed, PlainRecord], None]]] = {
    "job.schedule": _schedule,
    "job.offer": _offer,
    "job.claim": _claim,
    "job.start": _start,
    "job.complete": _complete,
    "job.yield": _yield,
    "job.artifact": _artifact,
    "job.expire": _expire,
    "job.resolve": _resolve,
    "job.cancel": _cancel,
    "job.evict": _evict,
}
