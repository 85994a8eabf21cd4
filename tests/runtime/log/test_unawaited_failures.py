"""What fails in the background while nobody waits for it is not shouted about."""

import asyncio
import gc

from antiphon.errors import Unavailable
from tests.runtime.meshes import a_mesh


async def test_a_confirmation_that_nobody_waited_for_fails_in_silence():
    shouted = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, told: shouted.append(told["message"]))
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session

        async def away(*_args, **_kwargs):
            raise Unavailable("the connection was lost before the answer came")

        session.log.confirm = away
        session.confirm_soon(session.confirmed + 1)
        await asyncio.sleep(0.01)
        session._confirming = None
        gc.collect()
        await asyncio.sleep(0)
    assert shouted == []
