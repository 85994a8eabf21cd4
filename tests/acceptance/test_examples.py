"""The examples run as they stand."""

import ast
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell
from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_quickstart_prints_a_result_in_at_most_fifteen_lines():
    path = EXAMPLES / "quickstart.py"
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout == "5\n"
    assert done.stderr == ""
    body = ast.parse(path.read_text()).body[1:]  # without the docstring
    text = path.read_text().splitlines()
    lines = [line for line in text[body[0].lineno - 1 :] if line.strip()]
    assert len(lines) <= 15


def script(folder: Path, *words: str) -> str:
    """What a script of an example prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return done.stdout


@pytest.mark.nats
def test_the_pipeline_releases_what_passed_its_tests(tmp_path):
    shutil.copytree(EXAMPLES / "pipeline", tmp_path, dirs_exist_ok=True)
    shell = Shell(tmp_path)
    with (
        shell.dev("--commands", "ci", "--unsafe-no-sandbox"),
        shell.start("worker", "pipeline.py", "--json") as worker,
    ):
        worker.line("ready")
        lines = script(tmp_path, "pipeline.py").splitlines()
        assert lines[0].startswith("antiphon show ")
        assert lines[1] == "THE PIPELINE IS OVER"
        assert lines[2].endswith(".pyz, 3 tests passed")
        drawn = shell.run(*lines[0].split()[1:]).out
        assert drawn.count("succeeded  ci.test") == 3
        assert "ci.tell" in drawn
        plans = shell.run("plan", "list").out
        assert "announce  news.announce  whenever ci.release has succeeded" in plans
        assert "sweep  nightly.sweep  at '0 3 * * *' in Europe/Berlin" in plans
        deadline = time.monotonic() + PATIENCE_S
        while "succeeded" not in shell.run("jobs", "--kind", "news.announce").out:
            assert time.monotonic() < deadline, "the release is not answered"
        done = shell.run("graph", "release.yaml")
        assert done.code == 0, done.out + done.err

        program = tmp_path / "greeting.py"
        program.write_text(program.read_text().replace("Hello", "Hallo"))
        with pytest.raises(subprocess.CalledProcessError) as failed:
            script(tmp_path, "pipeline.py", "Ada")
        assert "THE PIPELINE IS OVER" in failed.value.stdout
        assert "cancelled: predecessor: ci.test" in failed.value.stderr
        assert shell.run("graph", "release.yaml").code == 1


@pytest.mark.nats
def test_the_map_counts_every_file_under_a_limit(tmp_path):
    shutil.copytree(EXAMPLES / "map", tmp_path, dirs_exist_ok=True)
    shell = Shell(tmp_path)
    with shell.dev(), shell.start("worker", "word_count.py", "--json") as worker:
        worker.line("ready")
        words = ("limits", "text", "--at-once", "4", "--kind", "text.count")
        assert shell.run(*words).code == 0
        lines = script(tmp_path, "word_count.py", "60").splitlines()
        assert lines[0].startswith("61 jobs; antiphon show ")
        assert lines[1] == "1,770 words"
        job = shell.run("jobs", "--kind", "text.count", "--json").json["jobs"][0]["job"]
        assert "waits for room under text" in shell.run("show", job).out
