"""What holds of locks at every record, and of those who believe that they hold one.

The ledger follows each lock from accepted records with its own few lines: who holds it, since when,
until when, and under which delegations. It does not ask the core. Agents report to it when they
begin and stop to work under a lock, and what they store under its fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from simulator.checks.laws import ABOUT_AUTHORITY, BEFORE_AUTHORITY

if TYPE_CHECKING:
    from simulator.checks.authority_model import AuthorityModel
    from simulator.checks.law_state import Committed, LaneFacts, LawState
    from simulator.checks.laws import Law
    from simulator.checks.plain_record import PlainRecord
    from simulator.cluster import Cluster

COMMANDS: Final = {
    "lock.take": "/lock/take",
    "lock.release": "/lock/take",
    "lock.break": "/lock/break",
}
CLOCKS_MS: Final = 2_000
"""How far ahead the engine's clock and a taker's may be together, and no holder can know."""


class Holder(NamedTuple):
    """A node and one of its agents: two agents of one node exclude each other."""

    node: str
    agent: str


class HoldFacts(Struct):
    """A hold, as accepted records tell of it."""

    holder: Holder
    fence: str
    deadline_ms: int
    auth_by: str
    auth: tuple[str, ...]
    auth_seq: int

    def has_lost_authority(self, model: AuthorityModel) -> bool:
        """Whether the delegations that it is under were revoked, or its holder was quarantined."""
        since = self.auth_seq
        is_shown = model.was_shown(self.holder.node, since)
        return is_shown or model.has_ended(self.auth_by, self.auth, since)

    def is_over(self, wall_ms: int, commit_ms: int) -> bool:
        """Whether both clocks are past its deadline."""
        return min(wall_ms, commit_ms) > self.deadline_ms


class Worker(Struct, frozen=True, eq=False):
    """An agent that works under a lock."""

    holder: Holder
    key: str
    fence: str
    is_sure: Callable[[], bool]
    """Whether it believes, at this moment, that nobody else can hold the lock."""


class LockLedger:
    """All locks of one cluster. Its laws share it: `move` comes last."""

    def __init__(self) -> None:
        """No lock was ever taken."""
        self.cluster: Cluster | None = None
        self.holds: dict[str, HoldFacts | None] = {}
        self.fences: dict[str, list[str]] = {}
        self.given: dict[tuple[str, str], Holder] = {}
        """By key and fence: to whom the log gave it."""
        self.stored: dict[str, tuple[str, Holder]] = {}
        """By key: the highest fence with which somebody stored something, and who did."""
        self.workers: list[Worker] = []
        self.addresses: list[Callable[[], str]] = []
        """Of all agents, as they are now."""
        self.begun = self.renewed = self.passed = self.broken = self.expired = self.refused = 0

    @property
    def laws(self) -> tuple[Law, ...]:
        """In the order in which they are applied to a record."""
        return (
            self.locks_by_right,
            self.one_holder,
            self.lock_fences_rise,
            self.truly_locked,
            self.stops_in_time,
            self.move,
        )

    def _standing(self, ledger: LawState, key: str) -> HoldFacts | None:
        """The hold before this record; a revocation ends it at its place on the log."""
        hold = self.holds.get(key)
        is_lost = hold is not None and hold.has_lost_authority(ledger.authority_model)
        return None if is_lost else hold

    # --- laws -------------------------------------------------------------------------------

    def locks_by_right(
        self, ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """Locks are taken and broken by those alone who may, and are refused to nobody else."""
        said = now.verdict.value
        if said in BEFORE_AUTHORITY:
            return
        expected = ledger.authority_model.command_fault(
            fact, COMMANDS[fact.type], commit_ms=now.record.commit_ms
        )
        if said != expected and (expected or said in ABOUT_AUTHORITY):
            yield f"{fact.type} got {said}; by the delegations it is {expected or 'allowed'}"

    def one_holder(
        self, ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """Nobody takes what somebody holds, and only its holder renews, releases or passes it."""
        if not now.took_effect or fact.type == "lock.break":
            return
        hold = self._standing(ledger, fact.body["key"])
        wall_ms, commit_ms = fact.wall_ms, now.record.commit_ms
        if fact.type == "lock.take" and not fact.fence:
            if hold is not None and not hold.is_over(wall_ms, commit_ms):
                left_ms = hold.deadline_ms - min(wall_ms, commit_ms)
                yield f"taken {left_ms} ms before the hold of {hold.holder.agent} was over"
            return
        if hold is None or hold.holder != Holder(fact.author, fact.body["agent"]):
            yield f"{fact.type} took effect, and its author did not hold the lock"
        elif (fact.type == "lock.take" or "pass" in fact.body) and (
            max(wall_ms, commit_ms) > hold.deadline_ms
        ):
            yield f"{fact.type} took effect {max(wall_ms, commit_ms) - hold.deadline_ms} ms late"
        elif fact.type == "lock.take" and wall_ms + fact.body["ttl_ms"] < hold.deadline_ms:
            yield "a renewal took effect that ends before the hold would have"

    def lock_fences_rise(
        self, _: LawState, __: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """Each hold's fence is above all earlier ones, and only the newest can be used."""
        if not now.took_effect:
            return
        newest = self.fences.get(fact.body["key"], [""])[-1]
        if fact.fence and fact.fence != newest:
            yield f"{fact.type} took effect with fence {fact.fence}; the newest is {newest}"
        if _begins(fact) and fact.own_fence <= newest:
            yield f"fence {fact.own_fence} is not above {newest}"

    def truly_locked(
        self, ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """Nobody is refused because of a hold that is no more."""
        if now.verdict.value != "locked":
            return
        self.refused += 1
        hold = self._standing(ledger, fact.body["key"])
        if hold is None or hold.is_over(fact.wall_ms, now.record.commit_ms):
            yield "refused as locked, and nobody holds it"

    def stops_in_time(
        self, ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """A holder that was not told has stopped by itself before the next hold begins.

        That is promised of holds whose time runs out, as long as either the log's clock or the
        next holder's is right. Who is broken, or loses its delegation, learns of it afterwards.
        """
        key = fact.body["key"]
        hold = self._standing(ledger, key)
        is_next = now.took_effect and fact.type == "lock.take" and not fact.fence
        if hold is None or not is_next or self.cluster is None:
            return
        true_ms = self.cluster.true_ms
        if min(fact.wall_ms, now.record.commit_ms) > true_ms + CLOCKS_MS:
            return
        for one in self.workers:
            if one.key == key and one.fence == hold.fence and one.is_sure():
                yield f"{one.holder.agent} still works under {one.fence} and is sure of it"

    def move(
        self, ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """Take the record in; nothing is wrong with that."""
        yield from ()
        if not now.took_effect:
            return
        key, hold = fact.body["key"], self._standing(ledger, fact.body["key"])
        if _begins(fact):
            self.expired += fact.type == "lock.take" and hold is not None
            self._begin(key, now.record.seq, fact)
        elif fact.type == "lock.take" and hold is not None:
            hold.deadline_ms = fact.wall_ms + fact.body["ttl_ms"]
            hold.auth_by, hold.auth, hold.auth_seq = fact.author, fact.auth, now.record.seq
            self.renewed += 1
        else:
            self.broken += fact.type == "lock.break"
            self.holds[key] = None

    def _begin(self, key: str, seq: int, fact: PlainRecord) -> None:
        to = fact.body.get("pass")
        holder = Holder(fact.author, fact.body["agent"])
        if to is not None:
            holder = Holder(to["node"], to["agent"])
            self.passed += 1
        ttl_ms = int((to or fact.body)["ttl_ms"])
        fence = fact.own_fence
        self.holds[key] = HoldFacts(
            holder, fence, fact.wall_ms + ttl_ms, fact.author, fact.auth, seq
        )
        self.fences.setdefault(key, []).append(fence)
        self.given[key, fence] = holder
        self.begun += 1

    # --- what agents report -----------------------------------------------------------------

    def store(self, key: str, fence: str, by: Holder) -> bool:
        """Keep something under a fence, as a disk that all share; False if a later holder did."""
        newest, writer = self.stored.get(key, ("", by))
        if fence < newest:
            return False
        if self.cluster is not None:
            accuse = self.cluster.referee.accuse
            if fence == newest and writer != by:
                accuse("one_fence_one_holder", f"{writer.agent} and {by.agent} store under {fence}")
            if self.given.get((key, fence)) != by:
                accuse("one_fence_one_holder", f"the log did not give {fence} to {by.agent}")
        self.stored[key] = (fence, by)
        return True


def _begins(fact: PlainRecord) -> bool:
    return "pass" in fact.body or (fact.type == "lock.take" and not fact.fence)
