"""The referee: judges every record as it is committed and checks it against the laws.

Its own verdicts come from the same core that every node runs, fed in raw log order, so that a
verdict is known at the very moment of a commit. Everyone else's are compared with them: full
nodes as they apply, light readers when all is quiet. What it hears besides: each signature, each
acknowledgement, each run of a handler.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, cast

from blake3 import blake3

from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.state import EMPTY, JobLane
from antiphon.core.families.seals.state import SealLane, leaf_of
from antiphon.core.family import Lane, Mark, Needs, Reads
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.proof.merkle import Frontier
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record import subjects
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.engines.memory.log import LogStore
from antiphon.ports import Record
from antiphon.runtime.log.session import dep_of, open_stored
from antiphon.runtime.node.full_node import SEAL_LANE, Applied
from antiphon.testing.virtual_time import Host, current_host
from simulator.checks import laws, plain_record
from simulator.checks.entered_lanes import EnteredLanes
from simulator.checks.law_state import Committed, LaneFacts, LawState, asked_about
from simulator.checks.laws import Law, Violation
from simulator.checks.plain_record import Key

VIOLATIONS_KEPT: Final = 50


class Referee:
    """Watches one mesh."""

    def __init__(
        self,
        mesh: str,
        log: LogStore,
        protocol: Protocol = PROTOCOL,
        *,
        homes: plain_record.Homes = plain_record.NO_HOMES,
        guest_laws: Mapping[str, tuple[Law, ...]] = MappingProxyType({}),
    ) -> None:
        """Put itself between the log and everybody who hears of commits."""
        self.mesh = mesh
        self.log = log
        self.protocol = protocol
        self._homes = homes
        self._guest_laws = guest_laws
        self.ledger = LawState()
        self.verdicts: list[Verdict] = []
        self.lanes: dict[Key, JobLane] = {}
        self.history = ControlHistory(protocol, mesh)
        self.others: dict[LaneKey, Lane] = {}
        """Lanes of other families than jobs."""
        self._entered = EnteredLanes()
        self.sealed = 0
        """Seals that were accepted."""
        self._seal_subject = subjects.seal(mesh)
        self._leaves: list[bytes] = []
        self._accepted: dict[LaneKey, int] = {}
        """The last accepted record of each lane."""
        self.afters: list[int] = []
        """Of each record, what its leaf says that its lane accepted before it."""
        self._tree = Frontier()
        self._newest_unsealed = 0
        self.violations: list[Violation] = []
        self.broken = 0
        self.histogram: Counter[str] = Counter()
        self.honest_hosts: set[Host] = set()
        self.onlookers: list[Callable[[Key, JobLane], None]] = []
        """Told of every lane that a record has touched, before anyone else hears of it."""
        self.traps: list[Callable[[str, Host | None], bool]] = []
        """Asked about each op that an honest key signs; a trap that says True has sprung."""
        self._tails: dict[str, int] = {}
        self._signed_at: dict[tuple[str, int, int], bytes] = {}
        self._ran: dict[tuple[Key, str], str] = {}
        self._running: dict[Host | None, int] = {}
        self._digest = blake3()
        self._announce = log.announce
        log.announce = self.committed

    @property
    def digest(self) -> str:
        """Of every record so far and its verdict: the same seed gives the same one."""
        return self._digest.hexdigest()

    def accuse(self, law: str, what: str, key: Key | None = None, seq: int = 0) -> None:
        """Note a broken law."""
        self._add([Violation(law, what, key, seq)])

    def _add(self, broken: list[Violation]) -> None:
        self.broken += len(broken)
        self.violations += broken[: VIOLATIONS_KEPT - len(self.violations)]

    # --- what it hears ----------------------------------------------------------------------

    def committed(self, record: Record, head: str) -> None:
        """A record was stored: judge it before anyone else sees it."""
        opened = open_stored(self.protocol, self.mesh, record)
        place = opened.place
        is_job = place is not None and place.key.family == JOBS.name
        key = (place.key.kind, place.key.name) if place is not None and is_job else None
        verdict = self._judge(opened)
        self._grow(record, verdict, opened)
        sender = current_host()
        now = Committed(
            record=record,
            fact=plain_record.read(self.mesh, record, self._homes),
            key=plain_record.key_of(record),
            verdict=verdict,
            tail=self._tails.get(record.subject, 0),
            is_honest=sender in self.honest_hosts,
        )
        self._tails[record.subject] = record.seq
        self._note(now)
        if now.key != key:
            self.accuse("readable", f"{record.subject} is the lane {key}, or {now.key}", key)
        prefix = now.fact.type.partition(".")[0] if now.fact is not None else ""
        self._add(laws.commit(self.ledger, now, self._guest_laws.get(prefix)))
        if key is not None:
            for onlooker in list(self.onlookers):
                onlooker(key, self.lanes[key])
        self._announce(record, head)

    def _judge(self, opened: OpenedRecord) -> Verdict:
        if opened.is_control:
            return self.history.apply(opened)
        place = opened.place
        if place is None:
            return self.history.settle(Lane(), opened, self._read).verdict
        kind, name = place.key.kind, place.key.name
        is_job = place.key.family == JOBS.name
        before = self.lanes.get((kind, name)) if is_job else self.others.get(place.key)
        lane = before or self.protocol.empty(place.key)
        outcome = self.history.settle(lane, opened, self._read)
        if is_job:
            self.lanes[kind, name] = cast("JobLane", outcome.lane)
        else:
            self.others[place.key] = outcome.lane
        self.sealed += outcome.changed and place.key == SEAL_LANE
        for what in self._entered.faults(opened, outcome):
            self.accuse("entered_as_read", what, (kind, name), opened.seq)
        return outcome.verdict

    def _read(self, needs: Needs) -> Reads:
        stored = {seq: self.log.at(seq) for seq in needs.records}
        return Reads(
            records={
                seq: dep_of(self.protocol, found) if found is not None else None
                for seq, found in stored.items()
            },
            mark=self._mark_at(needs.upto) if needs.upto else None,
            lanes={key: self.lanes.get(key[1:], EMPTY) for key, _ in needs.lanes},
        )

    @property
    def seals(self) -> SealLane:
        """The seals so far."""
        return cast("SealLane", self.others.get(SEAL_LANE, SealLane()))

    def _grow(self, record: Record, verdict: Verdict, opened: OpenedRecord) -> None:
        self.verdicts.append(verdict)
        after = 0
        if opened.place is not None and not opened.is_control:
            if verdict is Verdict.OK:
                self._accepted[opened.place.key] = record.seq
            else:
                after = self._accepted.get(opened.place.key, 0) if self._has_state(opened) else 0
        self.afters.append(after)
        at = (record.seq, record.commit_ms, record.subject)
        self._leaves.append(leaf_of(*at, record.payload, verdict.value, after))
        if record.subject != self._seal_subject:
            self._newest_unsealed = record.seq

    def _has_state(self, opened: OpenedRecord) -> bool:
        """Whether the lane of a record has a state after it."""
        if opened.place is None:
            return False
        key = opened.place.key
        lane = self.lanes.get(key[1:]) if key.family == JOBS.name else self.others.get(key)
        return lane is not None and lane.state is not None

    def _mark_at(self, upto: int) -> Mark:
        if upto < self._tree.size:
            self._tree = Frontier()
        for leaf in self._leaves[self._tree.size : upto]:
            self._tree.append(leaf)
        return Mark(self._tree.size, self._tree.root().hex())

    @property
    def is_sealed(self) -> bool:
        """Whether a seal covers everything but seals."""
        return self.seals.upto >= self._newest_unsealed

    def _note(self, now: Committed) -> None:
        who = "honest" if now.is_honest else "hostile"
        self.histogram[f"{who} {now.verdict.value}"] += 1
        record = now.record
        line = f"{record.seq} {record.stamp_ns} {record.subject} {now.verdict.value}\n"
        self._digest.update(line.encode())
        self._digest.update(record.payload)

    def signed(self, did: str, signed: bytes, *, is_honest: bool) -> None:
        """A key signed something: an op, the root of several, or something else."""
        self.ledger.signed.setdefault(did, set()).add(signed)
        if is_honest:
            self.dated(did, signed)

    def dated(self, did: str, op_bytes: bytes) -> None:
        """An honest key signs an op: never two with one timestamp."""
        fact = plain_record.read(self.mesh, Record(0, 0, "", op_bytes), self._homes)
        if fact is None:
            return
        at = (did, fact.wall_ms, fact.logical)
        before = self._signed_at.setdefault(at, op_bytes)
        if before != op_bytes:
            self.accuse("one_time_one_op", f"{did} signed two ops at {at[1:]}: {fact.type}")
        if self.traps:
            host = current_host()
            self.traps = [trap for trap in self.traps if not trap(fact.type, host)]

    def acked(self, name: str, record: Record) -> None:
        """An honest worker acknowledged an announcement: then the job must have ended.

        Or the record announces nothing: no reader ever accepted it, or the job waited after it,
        and what ends a wait is another announcement.
        """
        key = plain_record.key_of(record)
        if key is None or not self.verdicts[record.seq - 1].is_accepted:
            return
        lane = self.ledger.lane(key)
        if not lane.ended_seq and not lane.is_waiting and record.seq >= lane.offered_seq:
            what = f"{name} acknowledged announcement {record.seq} of a job that has not ended"
            self.accuse("acks_are_true", what, key, record.seq)

    def applied(self, name: str, applied: Applied) -> None:
        """A full node judged a record."""
        seq = applied.record.seq
        if applied.verdict is not self.verdicts[seq - 1]:
            what = f"{name} says {applied.verdict.value}, the log {self.verdicts[seq - 1].value}"
            self.accuse("all_agree", what, plain_record.key_of(applied.record), seq)

    def ran(self, name: str, key: Key, fence: str) -> None:
        """A handler begins to run: under an accepted claim, whose fence is good for one run.

        A worker that comes back with its dead predecessor's key must not go on under its fence.
        """
        if fence not in self.ledger.lane(key).fences:
            self.accuse("claimed_first", f"{name} runs it, and its claim was not accepted", key)
        other = self._ran.get((key, fence))
        if other is not None:
            what = f"{name} runs it under {fence}, under which {other} did"
            self.accuse("one_run_per_fence", what, key)
        self._ran[key, fence] = name

    def calls_model(self, key: Key, fence: str) -> None:
        """A handler makes a model call that is audited."""
        self.ledger.calls_made[key, fence] += 1

    def computes(self, name: str, key: Key, fence: str, step: str) -> None:
        """A handler computes a step: one that no tenure up to its own has stored.

        A worker that lost its lease and has not noticed may compute what a later one has stored.
        """
        stored = self.ledger.lane(key).steps.get(step)
        if stored is not None and stored.fence <= fence:
            what = f"{name} computes {step!r} under {fence}, which was stored under {stored.fence}"
            self.accuse("computed_once", what, key)

    def passed(self, name: str, key: Key, step: str, value: object) -> None:
        """A handler goes on after a step: its result is on the log, and is the one it was given."""
        stored = self.ledger.lane(key).steps.get(step)
        if stored is None:
            self.accuse("stored_first", f"{name} goes on, and {step!r} is not stored", key)
        elif stored.value != json.dumps(value):
            what = f"{name} was given {value!r} for {step!r}, and {stored.value} is stored"
            self.accuse("stored_first", what, key)

    def was_told(self, name: str, key: Key, text: str, said: str) -> None:
        """A handler goes on with an answer: the one that is on the question's own lane."""
        lane = self._question(text)
        if lane is None or lane.answer != json.dumps(said):
            what = f"{name} was told {said!r} to {text!r}, and {lane and lane.answer!r} is answered"
            self.accuse("answers_are_given", what, key)

    def was_not_told(self, name: str, key: Key, text: str, reason: str) -> None:
        """A handler goes on without an answer: nobody gave one in time."""
        lane = self._question(text)
        if lane is None or lane.answer or not lane.ended_seq or reason != "expired":
            self.accuse("answers_are_given", f"{name} was told that {text!r} is {reason}", key)

    def _question(self, text: str) -> LaneFacts | None:
        key = self.ledger.asked.get(asked_about(text))
        return None if key is None else self.ledger.lane(key)

    def goes_on(self, name: str, key: Key, fence: str, first: int) -> None:
        """A handler goes on with a stream: after all that is stored, if its tenure is newest."""
        lane = self.ledger.lane(key)
        if lane.fences[-1:] == [fence] and first != len(lane.parts):
            what = f"{name} was told of {first} parts, and {len(lane.parts)} are stored"
            self.accuse("streams_go_on", what, key)

    @contextmanager
    def running(self, name: str, key: Key, fence: str, *, slots: int) -> Iterator[None]:
        """A handler runs: in its own right, and with no more beside it than its worker has room."""
        self.ran(name, key, fence)
        host = current_host()
        beside = self._running[host] = self._running.get(host, 0) + 1
        if beside > slots:
            self.accuse("within_slots", f"{name} runs {beside} jobs at once, not {slots}", key)
        try:
            yield
        finally:
            self._running[host] -= 1

    # --- what it knows ----------------------------------------------------------------------

    def tail(self, subject: str) -> int:
        """The last sequence on a subject."""
        return self._tails.get(subject, 0)

    def open_jobs(self) -> list[Key]:
        """Jobs that were called and have not ended, oldest first."""
        return [
            key
            for key, lane in self.lanes.items()
            if lane.job is not None and not lane.job.is_terminal
        ]
