"""A server that a killed process left is gone, with its lock, before the next one starts."""

import asyncio
import fcntl

from antiphon.engines.nats.server.process import is_in_use
from antiphon.sdk.hosting.own_server import end_orphan


async def test_the_next_server_waits_for_the_lock_of_one_that_is_about_to_end(tmp_path):
    """A process that ends has no command line any more while the kernel closes its files."""
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_in_use(tmp_path)
        waiting = asyncio.ensure_future(end_orphan(tmp_path))
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
    assert not is_in_use(tmp_path)
