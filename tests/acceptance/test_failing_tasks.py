"""A task that fails: each place where somebody looks says enough to mend it.

Real processes: a caller, a worker with a coroutine, a thread, a process and a command, and the
command line.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.acceptance.shell import Shell
from tests.acceptance.terminal_pictures import (
    DOCS,
    PICTURES,
    SHOP,
    all_pictures,
    shop,
    svg_of,
    timeless,
    words_of_svg,
)
from tests.patience import PATIENCE_S
from tests.runtime.sandboxed import require_sandbox

pytestmark = pytest.mark.nats

HANDLERS = {"shop.loop": "in_loop", "shop.order": "order", "shop.process": "in_process"}
COMMAND = 'import sys\nprint("looking up", "tea", flush=True)\n{"coffee": 3}["tea"]\n'
CALLER = """
import json, traceback
from antiphon import JobFailed
import asyncio, shop

async def main():
    told = {}
    async with shop.mesh:
        handles = [await getattr(shop, name).submit("tea", 3) for name in %s]
        for handle in handles:
            try:
                await handle.result()
            except JobFailed as failed:
                told[handle.kind] = [handle.id, "".join(traceback.format_exception(failed))]
    print(json.dumps(told))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    with shop(tmp_path_factory.mktemp("failing")) as typed:
        yield typed


def test_the_pictures_of_the_docs_show_what_is_printed(shell):
    for name, picture in all_pictures(shell).items():
        seen = words_of_svg(svg_of(name, picture))
        assert words_of_svg((PICTURES / f"{name}.svg").read_text()) == seen, (
            f"docs/pictures/{name}.svg is old: python -m tests.acceptance.terminal_pictures"
        )
        assert "KeyError: 'tea'" in seen or not name.startswith("failure")


@pytest.fixture(scope="module")
def failed(shell):
    """What the caller, the worker, `show` and the kept output say, by kind."""
    (shell.directory / "caller.py").write_text(CALLER % list(HANDLERS.values()))
    told = SimpleNamespace(job={}, caller={}, worker={}, show={}, kept={})
    with shell.start("worker", "shop.py") as worker:
        worker.line("runs")
        done = subprocess.run(
            [sys.executable, "caller.py"],
            cwd=shell.directory,
            env=shell.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for kind, (job, text) in json.loads(done.stdout).items():
            told.job[kind], told.caller[kind] = job, text
        assert worker.stop() == 0
        told.worker = {one["kind"]: one for one in runs_in(worker.err)}
    for kind, job in told.job.items():
        told.show[kind] = shell.run("show", job[:8]).out
        told.kept[kind] = shell.run("get", job[:8], "output", "-o", "-").out
    return told


def runs_in(log: str) -> list[dict]:
    """The lines of a worker's log that are about runs."""
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [one for one in events if one["event"] == "job_ran"]


def place(function: str) -> str:
    """The line of a traceback that names the call of `price`, and the one that failed."""
    lines = SHOP.splitlines()
    begins = next(n for n, line in enumerate(lines) if f"def {function}(" in line)
    return (
        f'  File "shop.py", line {begins + 2}, in {function}\n'
        "    return price(item) * count\n"
        f'  File "shop.py", line {lines.index("    return PRICES[item]") + 1}, in price\n'
        "    return PRICES[item]\n"
        "KeyError: 'tea'"
    )


@pytest.mark.parametrize("kind", HANDLERS)
def test_caller_worker_show_and_kept_output_name_the_job_the_line_and_the_error(failed, kind):
    job, where = failed.job[kind], place(HANDLERS[kind])
    assert f"JobFailed: job {job[:8]} ({kind}): it failed: KeyError: 'tea'" in failed.caller[kind]
    assert where in failed.caller[kind]
    line = failed.worker[kind]
    assert (line["job"], line["level"], line["attempt"]) == (job, "warning", 1)
    assert (line["problem"], line["exception"]) == ("KeyError: 'tea'", where)
    assert f"{kind} {job[:8]}" in failed.show[kind]
    assert 'called with "tea", 3\n' in failed.show[kind]
    assert where in failed.show[kind]
    assert f"antiphon get {job[:8]} output -o -" in failed.show[kind], "what to type next"
    assert failed.kept[kind] == f"looking up tea\n{where}\n"


def test_a_command_that_fails_is_told_with_its_last_words_line_by_line(tmp_path):
    require_sandbox()
    script = tmp_path / "price.py"
    script.write_text(COMMAND)
    shell = Shell(tmp_path)
    with shell.start("dev", "--json") as dev:
        dev.line("ready")
        words = ("--input", "price.py", "--", "python3", "price.py", "tea")
        ran = shell.run("run", *words)
        job = re.search("job ([0-9a-f]{8}) ", ran.err)[1]
        shown = shell.run("show", job).out
        kept = shell.run("get", job, "stderr", "-o", "-").out
        assert dev.stop() == 0
        (line,) = runs_in(dev.err)
    where = 'price.py", line 3, in <module>\n'
    assert ran.code == 1
    assert where in ran.err, "the caller sees its standard error"
    assert f"job {job} (command): it exited with 1\n" in ran.err
    assert "  command python3 price.py tea\n" in shown
    assert where in shown
    assert "\nKeyError: 'tea'\n" in shown
    assert "kept    stdout, stderr: antiphon get" in shown
    assert where in kept
    assert line["job"].startswith(job)
    assert line["problem"].startswith("exit:1: exited with 1")
    assert where in line["exception"]
    assert line["exception"].endswith("\nKeyError: 'tea'")


def test_a_picture_is_compared_without_times_and_ids_and_with_everything_else():
    line = "12:03:44.252  +0.018 s  ✓  worker-2 completed it, failed: KeyError: 'tea'"
    same = "08:59:01.007  +1.900 s  ✓  GMA4bPPP completed it, failed: KeyError: 'tea'"
    assert timeless(line) == timeless(same)
    assert timeless(line) != timeless(line.replace("failed", "succeeded"))
    assert timeless(line) != timeless(line.replace("KeyError", "TypeError"))


def test_every_picture_is_shown_on_a_page():
    pages = [*DOCS.rglob("*.md"), Path(DOCS.parent / "README.md")]
    whole = "".join(page.read_text() for page in pages)
    assert [one.name for one in PICTURES.glob("*.svg") if f"{one.name})" not in whole] == []
