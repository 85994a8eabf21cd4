"""`antiphon dev` comes and goes: nothing is left running, and nothing is forgotten."""

import json
import os
import signal

import pytest

from tests.acceptance.shell import Shell, is_alive, until

pytestmark = pytest.mark.nats


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_worker_the_node_and_the_server(shell, number):
    with shell.start("dev", "--json") as dev:
        ready = json.loads(dev.line())
        assert is_alive(ready["server_pid"])
        assert dev.stop(number) == 0
        assert json.loads(dev.line("stopped")) == {"event": "stopped", "done": 0}
        assert dev.err == ""
        assert not is_alive(ready["server_pid"])


def test_what_it_prints_can_be_typed_and_its_directory_stays_out_of_git(shell):
    with shell.start("dev", "--name", "demo") as dev:
        dev.line("Jobs appear below")
        said = "".join(dev.seen)
        assert "mesh 'demo'" in said
        assert "use it for development only" in said
        for line in said.splitlines():
            if line.strip().startswith("antiphon submit"):
                assert shell.run(*line.split()[1:]).out == "5\n"
        dev.line("completed it, succeeded")
        assert (shell.home / ".gitignore").read_text().endswith("*\n")
        assert dev.stop(signal.SIGINT) == 0
        assert "Traceback" not in dev.err


def test_a_second_start_comes_back_to_the_same_mesh_and_log(shell):
    with shell.dev() as first:
        job = shell.run("submit", "example.add", "2", "3", "--json").json["job"]
    with shell.dev() as second:
        assert first["is_new"]
        assert not second["is_new"]
        assert second["mesh"] == first["mesh"]
        assert second["engine"] == first["engine"], "whoever waits for it finds it where it was"
        assert shell.run("show", job, "--json").json["result"] == 5
        assert shell.run("submit", "example.add", "3", "4").out == "7\n"


def test_a_job_called_while_nobody_worked_is_answered_after_the_restart(shell):
    (shell.directory / "later.py").write_text(
        "from antiphon import Mesh\nmesh = Mesh.open()\n"
        "@mesh.task('example.later')\nasync def later():\n    return 'at last'\n"
    )
    with shell.dev():
        job = shell.run("submit", "example.later", "--detach").out.strip()
    with shell.dev("--tasks", "later") as dev:
        assert "example.later" in dev["kinds"]
        assert shell.ended(job)["state"] == "succeeded"


def test_a_second_ctrl_c_leaves_no_server_behind(shell):
    with shell.start("dev", "--json") as dev:
        ready = json.loads(dev.line())
        job = shell.run("submit", "example.sleep", "600", "--detach").out.strip()
        until(lambda: shell.run("show", job, "--json").json["state"] == "running")
        assert dev.insist(signal.SIGINT) == 130
        until(lambda: not is_alive(ready["server_pid"]))


def test_a_server_that_ends_by_itself_ends_dev_with_a_reason(shell):
    with shell.start("dev", "--json") as dev:
        ready = json.loads(dev.line())
        os.kill(ready["server_pid"], signal.SIGKILL)
        assert dev.wait() == 4
        told = json.loads(dev.line("error"))["error"]
        assert "has stopped" in told["message"]
        assert "server.log" in told["hint"]
    with shell.dev() as again:
        assert again["mesh"] == ready["mesh"]
