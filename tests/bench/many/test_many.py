"""`bench many` measures what it says."""

import pytest

from bench.many.command import WAYS, measure

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@pytest.mark.parametrize("name", WAYS)
async def test_every_job_is_submitted_run_and_awaited(name):
    figures = await measure(WAYS[name], 40, workers=1)
    assert figures.per_s > 0
    assert figures.cpu_ms > 0
