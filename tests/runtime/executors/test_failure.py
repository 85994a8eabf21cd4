"""What a caller who wanted a result is told instead."""

import pytest

from antiphon.core.families.jobs.ops import Retry
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller.submission import Ended, failure
from tests.core.authors import ALICE
from tests.core.ledger import Story


@pytest.mark.parametrize(
    "attempts, yields_max, reason, said",
    [
        (1, 10, "error", "gave up after 1 attempt"),
        (2, 10, "error", "gave up after 2 attempts"),
        (3, 1, "drain", "gave up: workers gave it back too often"),
    ],
)
def test_giving_up_says_after_what(attempts, yields_max, reason, said):
    story = Story(yields_max=yields_max)
    assert story.schedule(retry=Retry(attempts=attempts)) is Verdict.OK
    while not story.job.is_terminal:
        assert story.claim(ALICE) is Verdict.OK
        assert story.give_back(ALICE, reason=reason) is Verdict.OK
    assert failure(Ended(story.job, (), None)).message.endswith(f": {said}")


def test_a_lease_that_ran_out_is_named_as_the_cause():
    story = Story()
    assert story.schedule(retry=Retry(attempts=1)) is Verdict.OK
    assert story.claim(ALICE) is Verdict.OK
    assert story.expire(at=60_000) is Verdict.OK
    assert "lease ran out" in failure(Ended(story.job, (), None)).message
