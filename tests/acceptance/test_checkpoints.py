"""Jobs that are cut or killed go on elsewhere; what came of a wait in vain is shown as such."""

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
        called = shell.run("submit", "example.counting", json.dumps(str(seen)), "--detach")
        job = called.out.strip()
        until(lambda: list(seen.glob("2.*")))
        (mark,) = seen.glob("2.*")
        killed = one if int(mark.suffix[1:]) == one.pid else other
        killed.send(signal.SIGKILL)
        killed.wait()
        told = shell.ended(job)
        assert told["result"] == [3, 2]
        assert sorted(path.name[0] for path in seen.iterdir()) == ["1", "2", "3"]
        assert len({path.suffix for path in seen.iterdir()}) == 2
        words = [line["words"] for line in told["story"]]
        assert any("stored a checkpoint of" in one for one in words)
        assert any("expired the lease" in one for one in words)


SCORED = """
import asyncio, os, pathlib
from antiphon import JobContext, Mesh

mesh = Mesh.open()

@mesh.task("example.working", lease="5s", lease_max="5s")
async def working(folder: str, ctx: JobContext) -> list[object]:
    before = (ctx.last_checkpoint or b"").decode()
    pathlib.Path(folder, f"{ctx.attempt}.{os.getpid()}").write_text(before)
    if ctx.attempt > 2:
        return [before, ctx.attempt]
    if ctx.attempt == 1:
        ctx.next_phase()
        ctx.save_with(lambda: b"as far as it came")
    await asyncio.sleep(3600)

@mesh.task("example.asking")
async def asking(ctx: JobContext) -> str:
    return await ctx.help("anybody?")

@asking.fallback("coarse-answer")
def coarse() -> str:
    return "nobody"
"""
TEMPO = """
initial_bpm: 60
limits: {min_bpm: 30, max_bpm: 120}
"""
SCORE = """
score:
  phases: {plan: 60, work: 2, review: 60}
  wait_budget: {help: 1, io: 1}
  retry: {max_phrases: 5, backoff: geometric}
  escalation:
    on_wait_exhausted: ["emit:needs-attention", "fallback:coarse-answer"]
    on_overrun: ["emit:cut", "checkpoint"]
"""


@pytest.mark.req("B11", "B12", "B13", "B15")
def test_a_run_that_overruns_goes_on_from_its_checkpoint_and_after_sigkill_too(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "scored.py").write_text(SCORED)
    (tmp_path / "score.yaml").write_text(SCORE)
    (tmp_path / "tempo.yaml").write_text(TEMPO)
    seen = tmp_path / "seen"
    seen.mkdir()
    with (
        shell.dev(),
        shell.start("worker", "scored", "--json") as one,
        shell.start("worker", "scored", "--json") as other,
    ):
        one.line("ready")
        other.line("ready")
        assert shell.run("tempo", "set", "tempo.yaml").code == 0
        words = ("submit", "example.asking", "--score", "score.yaml")
        assert shell.run(*words).out == "nobody\n"
        asked = shell.run("jobs", "--json").json["jobs"][0]["job"]
        shown = shell.run("show", asked, "--json").json
        assert "the fallback coarse-answer" in shown["degraded"]
        assert "degraded" in shell.run("show", asked).out

        path = json.dumps(str(seen))
        words = ("submit", "example.working", path, "--score", "score.yaml", "--detach")
        job = shell.run(*words).out.strip()
        until(lambda: list(seen.glob("2.*")), within_s=120)
        (mark,) = seen.glob("2.*")
        assert mark.read_text() == "as far as it came", "the first was cut, and gave that"
        killed = one if int(mark.suffix[1:]) == one.pid else other
        killed.send(signal.SIGKILL)
        killed.wait()
        told = shell.ended(job)
        assert told["result"] == ["as far as it came", 3]
        lines = [line["words"] for line in told["story"]]
        assert any(
            "reason overrun (Overrun: it used up its 2 beats of work)" in one for one in lines
        )
        assert any("and stored a checkpoint of" in one for one in lines)
        assert any("expired the lease" in one for one in lines)
        assert {line["phase"] for line in told["story"]} <= {"plan", "work", "review"}
