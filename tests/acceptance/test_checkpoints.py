"""A worker is killed in the middle of a job: another goes on from the job's last checkpoint."""

import json
import signal

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = [pytest.mark.nats, pytest.mark.processes]

TASKS = """
import asyncio, os, pathlib
from antiphon import JobContext, Mesh

mesh = Mesh.open()

@mesh.task("example.counting", lease="5s", lease_max="5s")
async def counting(folder: str, ctx: JobContext) -> list[int]:
    done = int(ctx.last_checkpoint or b"0")
    while done < 3:
        done += 1
        await ctx.checkpoint(str(done).encode())
        pathlib.Path(folder, f"{done}.{os.getpid()}").touch()
        if done == 2:
            await asyncio.sleep(3600)
    return [done, ctx.attempt]
"""


@pytest.mark.req("B15")
def test_another_worker_goes_on_after_sigkill(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "tasks.py").write_text(TASKS)
    seen = tmp_path / "seen"
    seen.mkdir()
    with (
        shell.dev(),
        shell.start("worker", "tasks", "--json") as one,
        shell.start("worker", "tasks", "--json") as other,
    ):
        one.line("ready")
        other.line("ready")
        called = shell.run("submit", "example.counting", json.dumps(str(seen)), "--no-wait")
        job = called.out.strip()
        until(lambda: list(seen.glob("2.*")))
        (mark,) = seen.glob("2.*")
        killed = one if int(mark.suffix[1:]) == one.pid else other
        killed.send(signal.SIGKILL)
        killed.wait()
        until(lambda: shell.run("show", job, "--json").json["state"] == "succeeded")
        told = shell.run("show", job, "--json").json
        assert told["result"] == [3, 2]
        assert sorted(path.name[0] for path in seen.iterdir()) == ["1", "2", "3"]
        assert len({path.suffix for path in seen.iterdir()}) == 2
        words = [line["words"] for line in told["story"]]
        assert any("stored a checkpoint of" in one for one in words)
        assert any("expired the lease" in one for one in words)
