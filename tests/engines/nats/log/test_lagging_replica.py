"""A server that was cut off shows an old log; that is no reason to stop for good."""

import pytest

from antiphon.errors import Corrupt
from antiphon.testing.engine_suite.harness import collect, new_mesh, persist, seqs, soon
from tests.engines.nats.log.test_cluster import bootstrap, three_servers

pytestmark = [pytest.mark.nats, pytest.mark.slow]


async def test_a_copy_that_lags_for_long_is_not_taken_for_a_restored_one(monkeypatch):
    mesh = new_mesh()
    async with three_servers() as servers:
        engine = await bootstrap(servers, mesh)

        async def append(n):
            return await engine.log.append(
                f"ap.{mesh}.ctl.c{n}", b"", message_id=f"c{n}", expected_last=0
            )

        await persist(lambda: append(1), 30)
        await persist(lambda: append(2), 30)

        async def as_the_server_that_was_cut_off_says():
            return 1

        monkeypatch.setattr(engine.log, "newest_seq", as_the_server_that_was_cut_off_says)
        async with engine.log.follow(2) as batches:
            await persist(lambda: append(3), 30)
            assert seqs(await collect(batches, 1)) == [3]
        async with engine.log.follow(9) as batches:
            with pytest.raises(Corrupt, match="older copy"):
                await soon(anext(batches), 30)
        await engine.close()
