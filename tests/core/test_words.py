"""Verdicts and stories in words, and the pauses between tries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.history.story import tell
from antiphon.core.opened_record import open_record, unsigned
from antiphon.core.policy.backoff import backoff_ms
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE
from tests.core.ledger import T0, Story
from tests.core.strategies import BRISK, any_op


@pytest.mark.parametrize("reason", Verdict)
def test_every_verdict_can_be_said(reason):
    assert reason.in_words
    assert reason.in_words == reason.in_words.strip()
    assert reason.value == reason.name.lower()


def test_only_three_verdicts_are_accepted_ones():
    assert {reason.value for reason in Verdict if reason.is_accepted} == {"ok", "exists", "already"}


def test_a_lane_is_told_line_by_line():
    story = Story()
    story.schedule()
    story.claim(ALICE, begin=True, lease_ms=30_000)
    story.claim(ALICE, fence=story.fence)
    story.start(ALICE)
    story.complete(ALICE, fence="0" * 16)
    story.ledger.append(story.ledger.log[-1].subject, b"junk")
    story.complete(ALICE)
    judged = [
        (
            open_record(PROTOCOL, story.ledger.mesh, r.seq, r.commit_ms, r.subject, r.payload),
            verdict,
        )
        for r, verdict in zip(story.ledger.log[1:], story.ledger.verdicts[1:], strict=True)
    ]
    lines = tell(judged)
    assert [line.seq for line in lines] == list(range(2, 9))
    words = [line.words for line in lines]
    alice = short_node(ALICE.did)
    assert words[1] == f"{alice} claimed it for 30 s and started it"
    assert words[2] == f"{alice} renewed the lease for 10 s"
    assert words[3].endswith("it changes nothing (already)")
    assert words[4].endswith("rejected: its fence is not the current one (fence)")
    assert words[5].startswith("someone wrote a record that is not an op")
    assert words[6] == f"{alice} completed it, succeeded"


@BRISK
@given(any_op, st.sampled_from(list(Verdict)))
def test_every_op_can_be_told_with_every_verdict(op, verdict):
    [line] = tell([(unsigned(PROTOCOL, op, 1, T0), verdict)])
    assert line.words.startswith(short_node(op.author))
    assert (verdict is Verdict.OK) == (f"({verdict.value})" not in line.words)


@pytest.mark.parametrize(
    "attempt, chance, expected",
    [(0, 0.0, 100), (0, 0.5, 150), (1, 0.0, 200), (3, 0.25, 825), (9, 0.0, 30_000),
     (10**9, 0.9, 30_000)],
)  # fmt: skip
def test_a_pause_doubles_with_jitter_up_to_its_cap(attempt, chance, expected):
    assert backoff_ms(attempt, base_ms=100, cap_ms=30_000, chance=chance) == expected
