"""The reckoning: the whole log read once more by a newcomer, after the storm.

A full node that has seen nothing before gives every record its verdict. From verdicts and bare
JSON it is counted here what was called, what ended, what was accepted and how long a job lay
between a dead holder's lease and the next claim. The simulator's laws, which do not ask the core
either, are held against every record on the way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly
from antiphon.core.reasons import Reason
from antiphon.ports import Record
from antiphon.runtime.home import Home
from antiphon.runtime.node import Applied, FullNode
from antiphon.runtime.replica import Replica
from antiphon.runtime.services import beside
from antiphon.testing.simulation import facts, laws
from antiphon.testing.simulation.facts import Fact, Key
from antiphon.testing.simulation.laws import Violation
from antiphon.testing.simulation.ledger import Committed, Ledger
from chaos.witness import Tally

VIOLATIONS_KEPT: Final = 20


class Accepted(Struct, frozen=True):
    """A result that the rules let stand."""

    seq: int
    fence: str
    author: str
    status: str


class _Anything(set[bytes]):
    """Holds whatever is asked for."""

    def __contains__(self, _: object) -> bool:
        return True


class _Signed(dict[str, set[bytes]]):
    """Everybody signed what bears their name.

    The simulator knows from the keys themselves who signed what. Here only the verdicts tell: a
    record with a false signature is accepted by nobody.
    """

    def get(self, _did: object, _otherwise: object = None) -> Any:
        return _Anything()


class Reckoner:
    """Adds records up, in their order."""

    def __init__(self, mesh: str, *, strangers: Iterable[str] = ()) -> None:
        """`strangers` are authors who need not keep to the laws of honest writers."""
        self.mesh = mesh
        self.records = 0
        self.called: dict[Key, int] = {}
        """When each job was called, by the engine's clock (ms)."""
        self.begun: dict[Key, int] = {}
        """When its first tenure began (ms)."""
        self.ended: dict[Key, int] = {}
        """When it ended (ms)."""
        self.accepted: dict[Key, list[Accepted]] = defaultdict(list)
        self.verdicts: Counter[str] = Counter()
        self.deeds: Counter[str] = Counter()
        """Accepted ops by type."""
        self.takeovers_s: list[float] = []
        """From the end of an expired tenure's lease to the next claim."""
        self.handovers_s: list[float] = []
        """From a yield to the next claim."""
        self.late_handovers = 0
        """Of those, how many came no sooner than the lease's own end would have allowed."""
        self.broken: list[Violation] = []
        self.broken_count = 0
        self._ledger = Ledger()
        self._ledger.signed = _Signed()
        self._strangers = frozenset(strangers)
        self._tails: dict[str, int] = {}
        self._expired: dict[Key, int] = {}
        self._yielded: dict[Key, tuple[int, int]] = {}

    def take(self, record: Record, verdict: Reason) -> None:
        """One more record, with what a full node says about it."""
        self.records += 1
        fact, key = facts.read(self.mesh, record), facts.key_of(record)
        now = Committed(
            record=record,
            fact=fact,
            key=key,
            verdict=verdict,
            tail=self._tails.get(record.subject, 0),
            is_honest=fact is not None and fact.author not in self._strangers,
        )
        self._tails[record.subject] = record.seq
        self.verdicts[verdict.value] += 1
        if key is not None and fact is not None and now.took_effect:
            self._count(key, fact, record)
        if not record.subject.endswith(".seal"):
            broken = laws.commit(self._ledger, now)
            self.broken_count += len(broken)
            self.broken += broken[: VIOLATIONS_KEPT - len(self.broken)]
        if key is not None and self._ledger.lane(key).ended_seq:
            self.ended.setdefault(key, record.commit_ms)

    def _count(self, key: Key, fact: Fact, record: Record) -> None:
        self.deeds[fact.type] += 1
        held = self._ledger.lane(key).held
        if fact.type == "job.schedule":
            self.called[key] = record.commit_ms
        elif fact.type == "job.expire" and held is not None:
            self._expired[key] = held.deadline_ms
        elif fact.type == "job.yield" and held is not None:
            self._yielded[key] = (record.commit_ms, held.deadline_ms)
        elif fact.type == "job.claim" and held is None:
            self.begun.setdefault(key, record.commit_ms)
            if key in self._expired:
                self.takeovers_s.append((record.commit_ms - self._expired.pop(key)) / 1000)
            if key in self._yielded:
                yielded_ms, deadline_ms = self._yielded.pop(key)
                self.handovers_s.append((record.commit_ms - yielded_ms) / 1000)
                self.late_handovers += record.commit_ms >= deadline_ms
        elif fact.type == "job.complete":
            status = str(fact.body.get("status", ""))
            self.accepted[key].append(Accepted(record.seq, fact.fence, fact.author, status))

    # --- what it comes to -----------------------------------------------------------------------

    def lost(self, promised: Iterable[Key]) -> list[Key]:
        """Jobs whose call was acknowledged and that have no end, or are not there at all."""
        return [key for key in promised if key not in self.ended]

    @property
    def accepted_twice(self) -> list[Key]:
        """Jobs with more than one accepted result."""
        return [key for key, results in self.accepted.items() if len(results) > 1]

    @property
    def succeeded(self) -> int:
        """Jobs with a result that says so."""
        return sum(
            any(one.status == "succeeded" for one in results) for results in self.accepted.values()
        )

    def unwitnessed(self, tally: Tally) -> list[Key]:
        """Jobs whose accepted result comes from a run that the witness did not see end."""
        whole = tally.whole()
        return [
            key
            for key, results in self.accepted.items()
            if any(
                one.status == "succeeded" and (key[1], one.fence) not in whole for one in results
            )
        ]


async def reckon(home: Home, *, strangers: Iterable[str] = ()) -> Reckoner:
    """Read the whole log as somebody who was not there."""
    async with assembly.join(home, "auditor") as station:
        reckoner = Reckoner(station.peer.mesh, strangers=strangers)
        replica = Replica(":memory:", mesh=station.peer.mesh)

        def hear(applied: Applied) -> None:
            reckoner.take(applied.record, applied.verdict)

        try:
            node = FullNode(station.peer, replica)
            node.watchers.append(hear)
            async with beside(node.run(), ready=node.ready):
                pass
        finally:
            replica.close()
        return reckoner
