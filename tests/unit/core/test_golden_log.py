"""Protocol 1 for ever: a recorded log replays to the recorded verdicts (tests/vectors)."""

import json

import pytest

from antiphon.core import subjects
from antiphon.core.reasons import Reason
from tests.unit.core.ledger import Reader, Record
from tests.vectors.golden_log import PATH, build, state_digest

HEADER, *LINES = map(json.loads, PATH.read_text(encoding="utf-8").splitlines())
LOG = [
    Record(
        seq=line["seq"],
        commit_ms=line["stamp_ns"] // 1_000_000,
        subject=line["subject"],
        payload=line["payload"].encode(),
    )
    for line in LINES
]
# Reserved for what protocol 1 does not have, or too large for a small file.
NOT_RECORDED = {
    "chain_expired", "command", "policy", "predecessor", "protocol", "quarantined", "revoked",
    "seal", "size",
}  # fmt: skip


def test_the_recorded_log_replays_to_the_recorded_verdicts_and_state():
    reader = Reader(HEADER["mesh"], LOG)
    verdicts = [reader.judge(record).value for record in LOG]
    assert verdicts == [line["verdict"] for line in LINES]
    assert state_digest(reader) == HEADER["state"]


def test_the_recorded_log_names_every_verdict_that_there_is():
    recorded = {line["verdict"] for line in LINES}
    assert recorded | NOT_RECORDED == {reason.value for reason in Reason}
    assert not recorded & NOT_RECORDED
    assert len(LINES) == HEADER["records"] <= 200


def test_todays_code_writes_the_recorded_bytes():
    assert build() == PATH.read_text(encoding="utf-8")


LANES = sorted({pair for record in LOG if (pair := subjects.lane_of(record.subject))})


@pytest.mark.parametrize("kind, job", LANES, ids=lambda text: text[:8])
def test_a_light_reader_of_one_lane_reaches_the_recorded_verdicts(kind, job):
    mesh = HEADER["mesh"]
    reader = Reader(mesh, LOG)
    wanted = (subjects.all_control(mesh), *subjects.lane_filters(mesh, kind, job))
    # All control ops first, the lane afterwards: a record's own place decides, not the order.
    for each in (wanted[:1], wanted[1:]):
        for record, line in zip(LOG, LINES, strict=True):
            if any(subjects.matches(pattern, record.subject) for pattern in each):
                assert reader.judge(record).value == line["verdict"]
