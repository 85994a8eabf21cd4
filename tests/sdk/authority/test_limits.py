"""Limits as the owner sets them and as people look at them."""

import asyncio

import pytest

from antiphon import Mesh
from antiphon.errors import Rejected
from antiphon.interfaces.cli.commands.authority.limits import cause_words, limit_words
from antiphon.sdk.authority.limits import parse_rate
from tests.patience import PATIENCE_S


async def test_what_is_running_under_a_label_and_what_waits_for_what():
    mesh, release = Mesh.open(engine="memory"), asyncio.Event()

    @mesh.task("gpu.render")
    async def render(number: int) -> int:
        await release.wait()
        return number

    async with mesh, mesh.worker(slots=8):
        await mesh.authority.set_limit("gpu", at_once=1, rate=parse_rate("100/m"), kinds=["gpu.*"])
        handles = [await render.submit(number) for number in range(3)]
        after = await render.options(after=[handles[0]]).submit(3)
        async with asyncio.timeout(PATIENCE_S):
            while (status := (await mesh.authority.limits())[0]).open != 1 or status.waiting != 3:
                await asyncio.sleep(0.01)
        assert status.limit is not None
        assert limit_words(status.limit) == "1 at once, 100 per 1m"
        causes = {one.job.id: cause_words(one) for one in status.next}
        assert causes[after.id] == "waits for 1 other job to end"
        assert sorted(causes.values())[1:] == ["waits for room"] * 2
        release.set()
        assert [await handle.result() for handle in (*handles, after)] == [0, 1, 2, 3]
        await mesh.authority.remove_limit("gpu")
        assert await mesh.authority.limits() == []
        with pytest.raises(Rejected, match="no limit with the label 'gpu'"):
            await mesh.authority.remove_limit("gpu")
