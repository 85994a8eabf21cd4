"""What happened on a log that is archived, by somebody who forgets nothing, and what must hold.

It judges every record as it is committed, by the core. The laws are spelled by hand:

    nothing_comes_back   the same bytes are accepted once; content without a nonce, and keys, once
                         within the horizon
    no_tick_twice        what follows from a plan is accepted once for each tick
    one_holder           a lock is not taken while somebody's time runs, and fences grow
    all_agree            every reader gives each record that it finds the same verdict, and finds
                         each lane in the same state
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antiphon.core.families.jobs.derivation import Tick
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.state import JobLane
from antiphon.core.families.locks.ops import LockRelease, LockTake
from antiphon.core.family import UNSEEN_ROOT, Lane, Needs, Reads
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.lane_archive import behind
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.log.session import dep_of, open_stored

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.branches import LaneKey
    from antiphon.ports import Record
    from antiphon.runtime.log.lane_reader import LaneView

EVER_MS: Final = 2**60


class ArchiveLaws:
    """A full node that keeps every record, and everything that was ever accepted."""

    def __init__(self, mesh: str) -> None:
        """An empty log."""
        self.mesh = mesh
        self.history = ControlHistory(PROTOCOL, mesh)
        self.records: dict[int, Record] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.lanes: dict[LaneKey, Lane] = {}
        self.on: dict[LaneKey, list[int]] = {}
        """The records of each lane."""
        self.names: dict[LaneKey, set[LaneKey]] = {}
        """By lane, those whose ops name it."""
        self.violations: list[str] = []
        self._accepted: dict[bytes, int] = {}
        self._ended_ms: dict[LaneKey, int] = {}
        self._ticks: dict[tuple[str, int], int] = {}
        self._holds: dict[LaneKey, tuple[tuple[int, int], int]] = {}

    @property
    def control(self) -> Control:
        """What is in force now."""
        control = self.history.current
        if control is None:
            raise TypeError("the log has no genesis")
        return control

    def lane(self, key: LaneKey) -> Lane:
        """A lane as it is now."""
        return behind(self.control, self.lanes.get(key) or PROTOCOL.empty(key))

    def break_(self, law: str, what: str) -> None:
        """Note a broken law."""
        self.violations.append(f"{law}: {what}")

    def dep(self, seq: int) -> tuple[int, str]:
        """How an op names a record."""
        return seq, dep_of(PROTOCOL, self.records[seq]).op_id

    # --- commits ----------------------------------------------------------------------------

    def committed(self, record: Record) -> None:
        """A record was stored."""
        opened = open_stored(PROTOCOL, self.mesh, record)
        self.records[record.seq] = record
        if opened.is_control:
            self.verdicts[record.seq] = self.history.apply(opened)
            return
        place = opened.place
        if place is None:
            self.verdicts[record.seq] = Verdict.SUBJECT
            return
        key = place.key
        before = self.lanes.get(key) or PROTOCOL.empty(key)
        outcome = self.history.settle(before, opened, self._read)
        self.lanes[key], self.verdicts[record.seq] = outcome.lane, outcome.verdict
        self.on.setdefault(key, []).append(record.seq)
        for seq, _ in opened.op.deps if opened.op is not None else ():
            named = PROTOCOL.lane_of(self.records[seq].subject) if seq in self.records else None
            if named is not None:
                self.names.setdefault(named, set()).add(key)
        if outcome.changed:
            self._check(key, opened, record, outcome.lane)

    def _read(self, needs: Needs) -> Reads:
        found = {seq: self.records.get(seq) for seq in needs.records}
        return Reads(
            records={
                seq: dep_of(PROTOCOL, one) if one is not None else None
                for seq, one in found.items()
            },
            mark=UNSEEN_ROOT,
            lanes={key: self.lanes.get(key) or PROTOCOL.empty(key) for key, _ in needs.lanes},
        )

    def _check(self, key: LaneKey, opened: OpenedRecord, record: Record, lane: Lane) -> None:
        first = self._accepted.setdefault(record.payload, record.seq)
        if first != record.seq:
            what = f"the bytes of record {first} were accepted again at {record.seq}"
            self.break_("nothing_comes_back", what)
        op: Any = opened.op
        if isinstance(op, JobSchedule):
            self._check_schedule(key, op, record)
        if isinstance(lane, JobLane) and lane.job is not None and lane.job.is_terminal:
            self._ended_ms[key] = record.commit_ms
        if isinstance(op, LockTake) and op.body.fence is None:
            fence, until_ms = self._holds.get(key, ((0, 0), 0))
            if op.hlc <= fence or min(op.hlc[0], record.commit_ms) <= until_ms:
                self.break_("one_holder", f"record {record.seq} takes a lock that is held")
            self._holds[key] = (op.hlc, op.hlc[0] + op.body.ttl_ms)
        if isinstance(op, LockRelease) and key in self._holds:
            self._holds[key] = (self._holds[key][0], 0)

    def _check_schedule(self, key: LaneKey, op: JobSchedule, record: Record) -> None:
        given: Any = op.body.manifest.inputs or ()
        origins = {getattr(one, "origin", "key") for one in given}
        ended_ms = self._ended_ms.get(key, -EVER_MS)
        if origins <= {"key"} and record.commit_ms - ended_ms <= self.control.rules.horizon_ms:
            what = f"record {record.seq} submits anew what ended within the horizon"
            self.break_("nothing_comes_back", what)
        if isinstance(op.body.derived, Tick):
            what_for = (op.deps[0][1], op.body.derived.tick_ms)
            first = self._ticks.setdefault(what_for, record.seq)
            if first != record.seq:
                what = f"the tick of record {first} was accepted again at {record.seq}"
                self.break_("no_tick_twice", what)

    # --- readers ----------------------------------------------------------------------------

    def read(self, who: str, key: LaneKey, view: LaneView) -> None:
        """Somebody has read a lane."""
        for one in view.history:
            known = self.verdicts[one.opened.seq]
            if one.verdict is not known:
                what = (
                    f"{who} says {one.verdict.value} of record {one.opened.seq}, not {known.value}"
                )
                self.break_("all_agree", what)
        truth = self.lane(key)
        if view.lane.state != truth.state:
            seen, here = view.lane.state is not None, truth.state is not None
            self.break_("all_agree", f"{who} finds {key.name[:8]} otherwise: {seen}, not {here}")
