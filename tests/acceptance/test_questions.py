"""Questions, as typed: a form in the terminal, and a command that waits for a yes."""

import os
import pty
import subprocess
import sys

import pytest

from tests.acceptance.shell import Shell
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats
ASK = """
import asyncio
from antiphon import Mesh

SCHEMA = {
    "type": "object",
    "properties": {"go": {"type": "boolean"}, "n": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["go", "n"],
}


async def main():
    async with Mesh.open() as mesh:
        asked = await mesh.questions.ask("how many?", kind="approve.form", schema=SCHEMA)
        print(asked.id, flush=True)
        print(await asked.result())


asyncio.run(main())
"""


def filled_in(shell: Shell, job: str, lines: str) -> str:
    """What a person sees who fills in the form of a question."""
    ours, theirs = pty.openpty()
    os.write(ours, lines.encode())
    done = subprocess.Popen(
        [sys.executable, "-m", "antiphon", "answer", job],
        cwd=shell.directory,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    code = done.wait(PATIENCE_S)
    seen = os.read(ours, 65536).decode()
    os.close(ours)
    assert code == 0, seen
    return seen


def test_a_question_with_a_schema_is_a_form_in_the_terminal(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "ask.py").write_text(ASK)
    with shell.dev():
        asking = subprocess.Popen(
            [sys.executable, "ask.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        job = asking.stdout.readline().strip()
        seen = filled_in(shell, job[:12], "y\nmany\n3\n\n")
        assert "how many?" in seen
        assert "that is not of the type integer" in seen
        assert "✓ answered" in seen
        out, _ = asking.communicate(timeout=PATIENCE_S)
        assert out.strip() == "{'go': True, 'n': 3}"


@pytest.mark.parametrize("said, code", [("yes", 0), ("no", 1)])
def test_a_command_waits_for_a_yes(said, code, tmp_path):
    shell = Shell(tmp_path)
    with (
        shell.dev("--commands", "command", "--unsafe-no-sandbox"),
        shell.start("run", "--ask-first", "now?", "--", "sh", "-c", "echo ran") as running,
    ):
        (question,) = shell.run("questions", "--wait", "1m", "--json").json["questions"]
        assert (question["text"], question["kind"]) == ("now?", "approve.command")
        assert shell.run("answer", question["job_id"][:8], said).code == 0
        assert bool(running.wait()) == bool(code)
