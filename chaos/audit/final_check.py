"""The final check: the whole log is read again after a run and held against the journal.

A full node that starts empty gives every record its verdict. From the verdicts and the bare JSON
this counts which jobs were called and ended, which results were accepted, and how long a job
waited between the end of a lost lease and the next claim. The simulator's laws, which do not use
the core either, are checked against every record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly
from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import Applied, FullNode
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from chaos.audit.execution_journal import ExecutionTally
from simulator.checks import laws, plain_record
from simulator.checks.law_state import Committed, LawState, StepFacts
from simulator.checks.laws import Violation
from simulator.checks.plain_record import Key, PlainRecord

VIOLATIONS_KEPT: Final = 20


class Accepted(Struct, frozen=True):
    """An accepted result."""

    seq: int
    fence: str
    author: str
    status: str
    result: str = ""
    """What it returned, where that is in the record."""


class _Anything(set[bytes]):
    """Contains everything."""

    def __contains__(self, _: object) -> bool:
        return True


class _Signed(dict[str, set[bytes]]):
    """Every author signed every record in their name.

    The simulator knows from the keys who signed what. Here only the verdicts can tell: a record
    with a false signature is never accepted.
    """

    def get(self, _did: object, _otherwise: object = None) -> Any:
        return _Anything()


class FinalCheck:
    """Counts what the log shows; records are added in order."""

    def __init__(self, mesh: str, *, hostile_authors: Iterable[str] = ()) -> None:
        """The laws for honest writers are not applied to `hostile_authors`."""
        self.mesh = mesh
        self.records = 0
        self.called: dict[Key, int] = {}
        """When each job was called, by the engine's clock (ms)."""
        self.ended: dict[Key, int] = {}
        """When it ended (ms)."""
        self.accepted: dict[Key, list[Accepted]] = defaultdict(list)
        self.accepted_ops: Counter[str] = Counter()
        """Accepted ops by type."""
        self.takeovers_s: list[float] = []
        """From the end of an expired tenure's lease to the next claim."""
        self.handovers_s: list[float] = []
        """From a yield to the next claim."""
        self.late_handovers = 0
        """Of those, how many came only after the lease would have expired anyway."""
        self.violations: list[Violation] = []
        self.violation_count = 0
        self._ledger = LawState()
        self._ledger.signed = _Signed()
        self._hostile_authors = frozenset(hostile_authors)
        self._tails: dict[str, int] = {}
        self._expired: dict[Key, int] = {}
        self._yielded: dict[Key, tuple[int, int]] = {}

    def add(self, record: Record, verdict: Verdict) -> None:
        """Count one record with its verdict."""
        self.records += 1
        fact, key = plain_record.read(self.mesh, record), plain_record.key_of(record)
        now = Committed(
            record=record,
            fact=fact,
            key=key,
            verdict=verdict,
            tail=self._tails.get(record.subject, 0),
            is_honest=fact is not None and fact.author not in self._hostile_authors,
        )
        self._tails[record.subject] = record.seq
        if key is not None and fact is not None and now.took_effect:
            self._count(key, fact, record)
        if not record.subject.endswith(".seal"):
            violations = laws.commit(self._ledger, now)
            self.violation_count += len(violations)
            self.violations += violations[: VIOLATIONS_KEPT - len(self.violations)]
        if key is not None and self._ledger.lane(key).ended_seq:
            self.ended.setdefault(key, record.commit_ms)

    def _count(self, key: Key, fact: PlainRecord, record: Record) -> None:
        self.accepted_ops[fact.type] += 1
        held = self._ledger.lane(key).held
        if fact.type == "job.schedule":
            self.called[key] = record.commit_ms
        elif fact.type == "job.expire" and held is not None:
            self._expired[key] = held.deadline_ms
        elif fact.type == "job.yield" and held is not None:
            self._yielded[key] = (record.commit_ms, held.deadline_ms)
        elif fact.type == "job.claim" and held is None:
            if key in self._expired:
                self.takeovers_s.append((record.commit_ms - self._expired.pop(key)) / 1000)
            if key in self._yielded:
                yielded_ms, deadline_ms = self._yielded.pop(key)
                self.handovers_s.append((record.commit_ms - yielded_ms) / 1000)
                self.late_handovers += record.commit_ms >= deadline_ms
        elif fact.type == "job.complete":
            status = str(fact.body.get("status", ""))
            texts = [one.get("text") for one in fact.body.get("outputs", ())]
            result = next((text for text in texts if text is not None), "")
            self.accepted[key].append(Accepted(record.seq, fact.fence, fact.author, status, result))

    # --- results --------------------------------------------------------------------------------

    def steps(self, key: Key) -> dict[str, StepFacts]:
        """What the runs of a job have stored of its steps."""
        return self._ledger.lane(key).steps

    def lost(self, promised: Iterable[Key]) -> list[Key]:
        """Jobs whose call was acknowledged and that did not end, or are missing from the log."""
        return [key for key in promised if key not in self.ended]

    @property
    def accepted_twice(self) -> list[Key]:
        """Jobs with more than one accepted result."""
        return [key for key, results in self.accepted.items() if len(results) > 1]

    @property
    def succeeded(self) -> int:
        """Jobs with an accepted result that says `succeeded`."""
        return sum(
            any(one.status == "succeeded" for one in results) for results in self.accepted.values()
        )

    def without_execution(self, tally: ExecutionTally) -> list[Key]:
        """Jobs with an accepted result and no finished execution in the journal."""
        finished = tally.finished()
        return [
            key
            for key, results in self.accepted.items()
            if any(
                one.status == "succeeded" and (key[1], one.fence) not in finished for one in results
            )
        ]


async def check_log(home: StateDirectory, *, hostile_authors: Iterable[str] = ()) -> FinalCheck:
    """Read the whole log with a full node that starts empty."""
    async with assembly.join(home, "auditor") as connection:
        check = FinalCheck(connection.session.mesh, hostile_authors=hostile_authors)
        replica = Replica(":memory:", mesh=connection.session.mesh)

        def count(applied: Applied) -> None:
            check.add(applied.record, applied.verdict)

        try:
            node = FullNode(connection.session, replica)
            node.watchers.append(count)
            async with beside(node.run(), ready=node.ready):
                pass
        finally:
            replica.close()
        return check
