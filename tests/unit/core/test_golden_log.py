"""What was recorded stays: logs of each protocol replay to their verdicts (tests/vectors)."""

import json

import pytest

from antiphon.core import subjects
from antiphon.core.reasons import Reason
from tests.unit.core.ledger import Reader, Record
from tests.vectors import golden_log, golden_log_two
from tests.vectors.golden_log import state_digest

BUILDS = {1: golden_log, 2: golden_log_two}
# Too large for a small file, or kept for later.
NEVER_RECORDED = {"predecessor", "protocol", "size"}


class Golden:
    """One recorded file."""

    def __init__(self, protocol: int) -> None:
        self.protocol = protocol
        lines = BUILDS[protocol].PATH.read_text(encoding="utf-8").splitlines()
        self.header, *self.lines = map(json.loads, lines)
        self.mesh = self.header["mesh"]
        self.log = [
            Record(
                seq=line["seq"],
                commit_ms=line["stamp_ns"] // 1_000_000,
                subject=line["subject"],
                payload=line["payload"].encode(),
            )
            for line in self.lines
        ]
        self.lanes = sorted({pair for one in self.log if (pair := subjects.lane_of(one.subject))})


GOLDEN = {protocol: Golden(protocol) for protocol in BUILDS}
each = pytest.mark.parametrize(
    "golden", GOLDEN.values(), ids=lambda one: f"protocol {one.protocol}"
)


@each
def test_the_recorded_log_replays_to_the_recorded_verdicts_and_state(golden):
    reader = Reader(golden.mesh, golden.log)
    verdicts = [reader.judge(record).value for record in golden.log]
    assert verdicts == [line["verdict"] for line in golden.lines]
    assert state_digest(reader) == golden.header["state"]
    assert reader.history.current.rules.protocol == golden.protocol


def test_the_recorded_logs_name_every_verdict_that_there_is():
    recorded = {line["verdict"] for golden in GOLDEN.values() for line in golden.lines}
    assert recorded | NEVER_RECORDED == {reason.value for reason in Reason}
    assert not recorded & NEVER_RECORDED


@each
def test_todays_code_writes_the_recorded_bytes(golden):
    assert len(golden.lines) == golden.header["records"] <= 200
    assert BUILDS[golden.protocol].build() == BUILDS[golden.protocol].PATH.read_text("utf-8")


@pytest.mark.parametrize(
    "golden, kind, job",
    [(golden, *pair) for golden in GOLDEN.values() for pair in golden.lanes],
    ids=lambda value: value[:8] if isinstance(value, str) else f"protocol {value.protocol}",
)
def test_a_light_reader_of_one_lane_reaches_the_recorded_verdicts(golden, kind, job):
    reader = Reader(golden.mesh, golden.log)
    wanted = (subjects.all_control(golden.mesh), *subjects.lane_filters(golden.mesh, kind, job))
    # All control ops first, the lane afterwards: a record's own place decides, not the order.
    for each_of in (wanted[:1], wanted[1:]):
        for record, line in zip(golden.log, golden.lines, strict=True):
            if any(subjects.matches(pattern, record.subject) for pattern in each_of):
                assert reader.judge(record).value == line["verdict"]
