"""`bench latency` measures what it says."""

import pytest

from bench.meshes.idle_worker import idle_worker, measure

pytestmark = [pytest.mark.nats, pytest.mark.slow]


async def test_latency_is_measured_from_the_call_to_the_handlers_first_line():
    async with idle_worker() as setup:
        starts, deliveries, acks = await measure(setup, 0, 5)
    assert len(starts) == len(deliveries) == len(acks) == 5
    assert min(starts) > 0
    assert min(deliveries) > 0
