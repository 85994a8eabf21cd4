"""`chaos audit`, as small as it still shows something, and what it would notice."""

import pytest

from chaos.models.command import Plan, is_well, run

SMALL = Plan(jobs=6, hidden=1, workers=1, bundles=1, is_stock=False)
WELL = {
    "snapshots": 7,
    "linked": 7,
    "calls": 7,
    "rejected_without": 1,
    "jobs": 6,
    "bundles": 1,
    "requests": 8,
    "canary_sent": 8,
    "wrong": 0,
    "canary_found": 0,
    "words_found": 1,
}


@pytest.mark.nats
@pytest.mark.processes
async def test_every_call_is_linked_and_a_worker_without_the_capture_is_refused():
    assert await run(SMALL) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"linked": 6},
        {"snapshots": 6, "linked": 6},
        {"rejected_without": 0},
        {"bundles": 0},
        {"wrong": 1},
        {"canary_found": 1},
        {"canary_sent": 0},
        {"words_found": 0},
    ],
)
def test_what_is_missing_fails_the_command(changed):
    assert is_well(SMALL, WELL)
    assert not is_well(SMALL, {**WELL, **changed})
