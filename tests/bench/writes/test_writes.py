"""`bench writes` writes what it says."""

import pytest

from bench.writes.command import measure
from bench.writes.engine import Case, client_of, stream_on
from bench.writes.ways import WAYS, single

pytestmark = [pytest.mark.nats, pytest.mark.slow]


async def test_every_way_stores_every_record_of_a_group_on_both_sides_of_the_border():
    async with stream_on(1) as servers, client_of(servers, Case(1, "own")) as owner:
        expected = 0
        for case in (Case(1, "own"), Case(1, "member")):
            async with client_of(servers, case) as client:
                for way in WAYS.values():
                    await way(client, 5)
                    expected += 5
                    info = await owner.jetstream().stream_info("BENCH")
                    assert info.state.messages == expected


async def test_a_row_has_the_cost_of_one_record():
    async with stream_on(1) as servers:
        rows = await measure(servers, Case(1, "own"), [2], 0.01)
    assert [row["way"] for row in rows] == list(WAYS)
    assert all(0 < row["ms_per_record"] < row["group_ms"] for row in rows)
    # Where it can be counted at all: one sync for each single record.
    assert rows[0]["fsyncs_per_record"] in {None, 1.0}


@pytest.mark.soak
async def test_a_server_that_is_not_the_leader_takes_writes():
    async with (
        stream_on(3) as servers,
        client_of(servers, Case(3, "own", "other")) as client,
    ):
        await single(client, 3)
        info = await client.jetstream().stream_info("BENCH")
    assert info.state.messages == 3
