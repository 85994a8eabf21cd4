"""`examples/three_agents`: a ticket is finished also if whoever edits is killed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.acceptance.shell import Running, Shell, until

AGENTS = Path(__file__).parents[2] / "examples" / "three_agents" / "agents.py"
pytestmark = [pytest.mark.nats, pytest.mark.slow]


def git(repo, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", *who, "-C", repo, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def an_agent(shell, repo, name, *words):
    """A process that is one of the agents."""
    process = subprocess.Popen(
        [sys.executable, AGENTS, name, "--repo", repo, "--home", shell.home, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**shell.env, "GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": f"{name}@example.org"},
        start_new_session=True,
    )
    with process:
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.req("S2", "S7")
def test_a_killed_agents_ticket_is_finished_by_another_and_reviewed_later(tmp_path):
    shell, repo = Shell(tmp_path), tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet")
    (repo / "a.txt").touch()
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "begin")
    with ExitStack() as stack:
        stack.enter_context(shell.dev())
        with an_agent(shell, repo, "cleo", "--once") as cleo:
            assert cleo.wait() == 0, cleo.err
        slow = stack.enter_context(an_agent(shell, repo, "ada", "--think", "600"))
        slow.line("ada is ready")
        ticket = json.dumps({"id": "T1", "file": "a.txt", "line": "hello"})
        assert shell.run("submit", "ticket.edit", ticket, "--detach").code == 0
        slow.line("ada edits a.txt for T1")
        (repo / "a.txt").write_text("half an edi")
        slow.send(signal.SIGKILL)

        quick = stack.enter_context(an_agent(shell, repo, "bob", "--think", "0"))
        quick.line("bob committed T1")
        assert (repo / "a.txt").read_text() == "hello\n"
        assert "Ticket: T1" in git(repo, "log", "-1", "--format=%B")
        assert git(repo, "log", "-1", "--format=%an") == "bob"

        def is_reviewed():
            with an_agent(shell, repo, "cleo", "--once") as cleo:
                assert cleo.wait() == 0, cleo.err
            note = shell.run("memory", "get", "notes.demo", "T1", "--json").json
            return note["value"].get("review") == "approved"

        until(is_reviewed)
        note = shell.run("memory", "get", "notes.demo", "T1", "--json").json
        assert note["value"]["tries"] == ["ada", "bob"]
        assert quick.stop() == 0, quick.err
