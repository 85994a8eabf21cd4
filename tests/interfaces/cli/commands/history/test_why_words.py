"""What a waiting job waits for, in words."""

import pytest

from antiphon.core.policy.explanation import Wait, Waits
from antiphon.sdk.explanation import wait_words


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"jobs": 1}, "it waits until another job has ended; ada, the coordinator, offers it then"),
        (
            {"jobs": 2, "labels": ("gpu",)},
            "it waits until 2 other jobs have ended (antiphon show draws them) and for room under"
            " gpu (antiphon limits); ada, the coordinator, offers it then",
        ),
    ],
)
def test_a_job_that_waits_for_the_coordinator_says_what_for(fields, words):
    wait = Wait(what=Waits.OFFER, node="did:ada", **fields)
    assert wait_words(wait, {"did:ada": "ada"}.__getitem__, str, str) == words
