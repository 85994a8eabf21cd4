"""A ledger whose lanes are archived and purged, and readers that come at any time."""

from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.core.family import Lane, Needs, Reads
from antiphon.core.lane_archive import behind
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from tests.core.authors import OWNER
from tests.core.ledger import T0, Ledger, Reader, Record, open_stored

HOUR = 3_600_000
DAY = 24 * HOUR
MONTH = 30 * DAY


class HotLog(Ledger):
    """What was purged is hidden from those who read later; `reader` is a full node."""

    def __init__(self, **rules) -> None:
        super().__init__(**rules)
        self.hidden: set[int] = set()

    @property
    def control(self):
        return self.history.current

    def later(self, by: int) -> None:
        """Time passes."""
        self.now += by

    def archive(self, by=OWNER, *, before=None, memo_before=None, **how) -> Verdict:
        """By default as much as the rules allow now."""
        at, rules, last = how.pop("at", self.now), self.control.rules, self.control.archive
        stamp = how.get("stamp")
        now = T0 + min(at, at if stamp is None else stamp)
        body = ArchiveBody(
            before=max(0, last.before_ms, now - rules.retention_ms) if before is None else before,
            memo_before=max(0, last.memo_before_ms, now - rules.horizon_ms)
            if memo_before is None
            else memo_before,
        )
        return self.put(MeshArchive, body, by, at=at, **how)

    def lane(self, key: LaneKey) -> Lane:
        """A lane as a full node has it now."""
        known = self.reader.all_lanes.get(key) or self.reader.protocol.empty(key)
        return behind(self.control, known)

    def purge(self, key: LaneKey) -> int:
        """Remove all records of a lane that an archive emptied; how many there were."""
        newest, lane = self.control.archive.seq, self.lane(key)
        below = newest if lane.state is None else lane.floor
        gone = {
            record.seq
            for record in self.log
            if self.reader.protocol.lane_of(record.subject) == key and record.seq < below
        } - self.hidden
        self.hidden |= gone
        return len(gone)

    def tail(self, subject: str) -> int:
        """What somebody finds who looks now."""
        found = (one.seq for one in self.log if one.subject == subject)
        return max((seq for seq in found if seq not in self.hidden), default=0)

    def check(self, key: LaneKey) -> Lane:
        """Somebody who reads the lane now agrees with the full node; the lane."""
        light = LightReader(self)
        lane = light.read(key)
        for seq, verdict in light.verdicts.items():
            assert verdict is self.verdicts[seq - 1], f"record {seq}"
        known = self.lane(key)
        assert lane.state == known.state
        floor = self.control.archive.seq if lane.state is None else known.floor
        assert [max(tail, floor) for tail in lane.tails] == [max(t, floor) for t in known.tails]
        return lane


class LightReader(Reader):
    """Has all control records, and reads one lane, of what is there now."""

    def __init__(self, hot: HotLog) -> None:
        visible = [record for record in hot.log if record.seq not in hot.hidden]
        super().__init__(hot.mesh, visible, hot.reader.protocol)

    def read(self, key: LaneKey) -> Lane:
        for record in self.log:
            if record.subject.split(".")[2] == "ctl" or self._is_on(key, record):
                self.judge(record)
        lane = self.all_lanes.get(key) or self.protocol.empty(key)
        return behind(self.history.current, lane)

    def _is_on(self, key: LaneKey, record: Record) -> bool:
        return self.protocol.lane_of(record.subject) == key

    def _lane_before(self, key: LaneKey, seq: int) -> Lane:
        lane = self.protocol.empty(key)
        for record in self.log:
            if record.seq < seq and self._is_on(key, record):
                opened = open_stored(self.mesh, record, self.protocol)
                lane = self.history.settle(lane, opened, self._named).lane
        return lane

    def _named(self, needs: Needs) -> Reads:
        """What a lane names that is itself named."""
        found = self._read(Needs(records=needs.records))
        empty = {key: self.protocol.empty(key) for key, _ in needs.lanes}
        return Reads(found.records, lanes=empty)
