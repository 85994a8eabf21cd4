"""What holds at every record, whatever happens (SPEC §15).

Each law is a function from what is known of the lane so far and the record just committed to the
sentences that say how it was broken. Laws read facts (`facts.py`) and the verdict; they do not
ask the core. The ledger below is their memory: who held what, since when and until when, derived
from accepted records with code of its own.

`LAWS` is the whole list. `commit` applies it to one record and then moves the ledger on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct, field

from antiphon.core.reasons import Reason
from antiphon.ports import Record
from antiphon.testing.simulation.facts import Fact, Key

WORD_DEFAULTS: Final = {
    "max_drift_ms": 2_000,
    "start_by_ms": 7 * 24 * 3_600_000,
    "horizon_ms": 30 * 24 * 3_600_000,
    "retry_after_max_ms": 3_600_000,
    "attempts": 3,
    "yields_max": 32,
}
"""Rule values that the laws need, where the mesh does not say otherwise."""

NEVER_HONEST: Final = frozenset(
    {
        Reason.PREV,
        Reason.SIGNATURE,
        Reason.SUBJECT,
        Reason.MALFORMED,
        Reason.FRAME,
        Reason.CANONICAL,
        Reason.SIZE,
        Reason.VERSION,
        Reason.TYPE,
        Reason.AUTHOR,
        Reason.MESH,
    }
)
"""Verdicts that only a broken or lying writer earns."""


class Violation(Struct, frozen=True):
    """One broken law."""

    law: str
    what: str
    key: Key | None = None
    seq: int = 0


class Committed(Struct, frozen=True):
    """A record, what it says, what the rules said, and who really sent it."""

    record: Record
    fact: Fact | None
    key: Key | None
    verdict: Reason
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


class LaneFacts(Struct):
    """What accepted records say about one job."""

    is_scheduled: bool = False
    held: Tenure | None = None
    fences: list[str] = field(default_factory=list)
    newest: tuple[int, int] = (0, 0)
    start_by_ms: int = 0
    start_window_ms: int = 0
    retry_after_ms: int = 0
    cooling: dict[str, int] = field(default_factory=dict)
    attempts_left: int = 0
    yields: int = 0
    results: int = 0
    ended_seq: int = 0


class Ledger:
    """The laws' own memory of a mesh."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.lanes: dict[Key, LaneFacts] = {}
        self.rules: dict[str, int] = dict(WORD_DEFAULTS)
        self.signed: dict[str, set[bytes]] = {}
        """What each key really signed."""

    def lane(self, key: Key | None) -> LaneFacts:
        """The facts of a lane so far."""
        if key is None:
            return LaneFacts()
        return self.lanes.setdefault(key, LaneFacts())

    def move(self, now: Committed) -> None:
        """Take in a record that was accepted."""
        if not now.took_effect or now.fact is None:
            return
        if now.key is None:
            rules: dict[str, Any] = now.fact.body.get("rules", {})
            if now.fact.type in {"mesh.genesis", "mesh.rules"}:
                self.rules = {
                    name: rules.get(name, default) for name, default in WORD_DEFAULTS.items()
                }
            return
        _MOVES[now.fact.type](self, self.lane(now.key), now, now.fact)


# --- how a lane moves ------------------------------------------------------------------------


def _schedule(ledger: Ledger, lane: LaneFacts, _: Committed, fact: Fact) -> None:
    lane.is_scheduled = True
    lane.newest = (fact.wall_ms, fact.logical)
    start_by_ms = fact.body.get("start_by", fact.wall_ms + ledger.rules["start_by_ms"])
    lane.start_by_ms = min(start_by_ms, fact.wall_ms + ledger.rules["horizon_ms"])
    lane.start_window_ms = lane.start_by_ms - fact.wall_ms
    lane.attempts_left = fact.body.get("retry", {}).get("attempts") or ledger.rules["attempts"]


def _offer(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> None:
    """An announcement of a pending job changes nothing; waiting jobs are not simulated yet."""


def _claim(_: Ledger, lane: LaneFacts, __: Committed, fact: Fact) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lease_ms = int(fact.body["lease_ms"])
    deadline_ms = fact.wall_ms + lease_ms
    if lane.held is None:
        lane.held = Tenure(fact.own_fence, fact.author, deadline_ms, lease_ms)
        lane.fences.append(fact.own_fence)
    else:
        lane.held.deadline_ms = max(lane.held.deadline_ms, deadline_ms)
        lane.held.lease_ms = lease_ms


def _start(_: Ledger, lane: LaneFacts, __: Committed, fact: Fact) -> None:
    lane.newest = (fact.wall_ms, fact.logical)


def _complete(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lane.results += 1
    lane.ended_seq = lane.ended_seq or now.record.seq
    lane.held = None


def _yield(ledger: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lane.held = None
    is_error = fact.body["reason"] == "error"
    lane.attempts_left -= is_error
    lane.yields += not is_error
    if lane.attempts_left <= 0 or lane.yields > ledger.rules["yields_max"]:
        lane.ended_seq = lane.ended_seq or now.record.seq
    wanted_ms = int(fact.body.get("retry_after_ms", 0))
    lane.retry_after_ms = fact.wall_ms + min(wanted_ms, ledger.rules["retry_after_max_ms"])
    lane.start_by_ms = max(lane.start_by_ms, lane.retry_after_ms + lane.start_window_ms)


def _expire(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    if lane.held is None:
        lane.ended_seq = lane.ended_seq or now.record.seq
        return
    cooled_ms = fact.wall_ms + lane.held.lease_ms
    lane.cooling[lane.held.claimer] = cooled_ms
    lane.start_by_ms = max(lane.start_by_ms, cooled_ms + lane.start_window_ms)
    lane.held = None
    lane.attempts_left -= 1
    if lane.attempts_left <= 0:
        lane.ended_seq = lane.ended_seq or now.record.seq


def _cancel(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> None:
    lane.newest = (fact.wall_ms, fact.logical)
    lane.ended_seq = lane.ended_seq or now.record.seq
    lane.held = None


_MOVES: Final[dict[str, Callable[[Ledger, LaneFacts, Committed, Fact], None]]] = {
    "job.schedule": _schedule,
    "job.offer": _offer,
    "job.claim": _claim,
    "job.start": _start,
    "job.complete": _complete,
    "job.yield": _yield,
    "job.expire": _expire,
    "job.cancel": _cancel,
}


# --- the laws --------------------------------------------------------------------------------

Law = Callable[[Ledger, LaneFacts, Committed, Fact], Iterator[str]]


def one_result(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """At most one accepted result, by the holder, with the fence of the newest accepted claim."""
    if fact.type != "job.complete" or not now.took_effect:
        return
    if lane.results:
        yield "a second result was accepted"
    if lane.held is None:
        yield "a result was accepted while nobody held the job"
    elif lane.held.claimer != fact.author:
        yield "a result was accepted from someone who does not hold the job"
    newest = lane.fences[-1] if lane.fences else "none"
    if fact.fence != newest:
        yield f"the result carries fence {fact.fence}, the newest accepted claim began {newest}"


def fences_rise(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """Each tenure's fence is above all earlier ones, and nobody claims what is held."""
    if fact.type != "job.claim" or not now.took_effect:
        return
    if lane.held is None:
        if lane.fences and fact.own_fence <= lane.fences[-1]:
            yield f"fence {fact.own_fence} is not above {lane.fences[-1]}"
        return
    if lane.held.claimer != fact.author:
        yield "a claim was accepted on a job that someone else held"
    if fact.fence and fact.fence != lane.held.fence:
        yield f"a renewal of {fact.fence} was accepted in the tenure {lane.held.fence}"
    if max(fact.wall_ms, now.record.commit_ms) > lane.held.deadline_ms:
        yield "a renewal was accepted after the deadline"


def not_early(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """No expiry before both the author's clock and the engine's have passed the deadline."""
    if fact.type != "job.expire" or not now.took_effect:
        return
    due_ms = lane.held.deadline_ms if lane.held else lane.start_by_ms
    if fact.wall_ms <= due_ms:
        yield f"expired {due_ms - fact.wall_ms} ms early by its author's clock"
    if now.record.commit_ms <= due_ms:
        yield f"expired {due_ms - now.record.commit_ms} ms early by the engine's clock"


def patient(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """No tenure begins within a retry pause, or by one whose lease expired, within a lease."""
    if fact.type != "job.claim" or not now.took_effect or lane.held is not None:
        return
    if fact.wall_ms < lane.retry_after_ms:
        yield f"claimed {lane.retry_after_ms - fact.wall_ms} ms before the retry was due"
    if fact.wall_ms < lane.cooling.get(fact.author, 0):
        yield "claimed by a worker that had to wait one lease after its expiry"


def own_subject(_: Ledger, __: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """Nothing is accepted on a subject that is not its own."""
    if now.is_accepted and fact.home != now.record.subject:
        yield f"accepted on {now.record.subject}, but it belongs on {fact.home}"


def chained(_: Ledger, __: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """Whatever is accepted names the record before it on its subject."""
    if now.is_accepted and fact.prev != now.tail:
        yield f"accepted although it names {fact.prev} as its predecessor, not {now.tail}"


def in_order(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """Along accepted ops of a lane, time rises strictly."""
    if now.key is not None and now.took_effect and (fact.wall_ms, fact.logical) <= lane.newest:
        yield f"accepted at {fact.wall_ms}.{fact.logical}, not after {lane.newest}"


def in_time(ledger: Ledger, _: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """Nothing is accepted that lies further ahead of its commit than the drift."""
    ahead_ms = fact.wall_ms - now.record.commit_ms
    if now.is_accepted and ahead_ms > ledger.rules["max_drift_ms"]:
        yield f"accepted {ahead_ms} ms ahead of its commit"


def final(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """A job that has ended never changes again, and none acts that was not called."""
    if now.key is None or not now.took_effect:
        return
    if lane.ended_seq:
        yield f"{fact.type} took effect after the job had ended at {lane.ended_seq}"
    if lane.is_scheduled == (fact.type == "job.schedule"):
        yield f"{fact.type} took effect; was the job called before? {lane.is_scheduled}"


def authentic(ledger: Ledger, _: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """Nothing is accepted that its author never signed."""
    if now.is_accepted and fact.op_bytes not in ledger.signed.get(fact.author, ()):
        yield f"accepted in the name of {fact.author}, who never signed it"


def honest_writers(_: Ledger, __: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """The real runtime never writes what only a broken or lying writer writes."""
    if now.is_honest and now.verdict in NEVER_HONEST:
        yield f"an honest {fact.type} was rejected as {now.verdict.value}"


def no_racing(_: Ledger, lane: LaneFacts, now: Committed, fact: Fact) -> Iterator[str]:
    """An honest worker writes no claim on a job that it could know to be held or ended."""
    if not now.is_honest or fact.type != "job.claim" or fact.fence:
        return
    if lane.ended_seq or (lane.held is not None and lane.held.claimer != fact.author):
        yield "an honest worker claimed a job that was " + ("over" if lane.ended_seq else "held")


LAWS: Final[tuple[Law, ...]] = (
    one_result,
    fences_rise,
    not_early,
    patient,
    own_subject,
    chained,
    in_order,
    in_time,
    final,
    authentic,
    honest_writers,
    no_racing,
)


def commit(ledger: Ledger, now: Committed) -> list[Violation]:
    """Hold one record against every law, then let the ledger move on."""
    broken: list[Violation] = []
    fact, seq = now.fact, now.record.seq
    if fact is None:
        if now.is_accepted or now.is_honest:
            who = "an honest" if now.is_honest else "a hostile"
            what = f"{who} record that cannot be read got {now.verdict.value}"
            broken.append(Violation("readable", what, now.key, seq))
        return broken
    lane = ledger.lane(now.key)
    for law in LAWS:
        found = law(ledger, lane, now, fact)
        broken.extend(Violation(law.__name__, what, now.key, seq) for what in found)
    ledger.move(now)
    return broken
