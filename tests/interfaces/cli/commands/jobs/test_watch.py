"""`antiphon watch`: what it prints of a busy mesh."""

import asyncio
import json

import pytest

from antiphon import Mesh
from antiphon.assembly.node_services import BAR_S
from antiphon.interfaces.cli.commands.jobs.watch import _follow

pytestmark = pytest.mark.virtual_time


async def watched(per_s, *, as_json, jobs=20) -> None:
    """Watch until the count of the last second must have been printed."""
    mesh = Mesh.open(engine="memory")
    async with mesh:
        await asyncio.sleep(2 * BAR_S)  # the seal over what there is
        following = asyncio.ensure_future(_follow(mesh, per_s, as_json=as_json))
        await asyncio.sleep(1)
        for number in range(jobs):
            await mesh.submit("example.add", number)
        await asyncio.sleep(BAR_S / 2)
        following.cancel()
        await asyncio.wait({following})


@pytest.mark.exact_times
async def test_so_many_lines_a_second_and_then_how_many_more(capsys):
    await watched(3, as_json=False)
    shown = capsys.readouterr()
    assert shown.out.count("submitted example.add") == 3
    assert "… and 17 more in this second" in shown.err


async def test_json_has_every_record(capsys):
    await watched(None, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["op"] for line in lines] == ["job.schedule"] * 20


async def test_json_with_a_limit_says_how_many_it_left_out(capsys):
    await watched(3, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("op", "") for line in lines] == [*["job.schedule"] * 3, ""]
    assert lines[-1] == {"left_out": 17}
