"""A worker that is gone, jobs that wait for it, and jobs that failed: what every command says."""

import json
import signal
import sqlite3
import time

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats

MODULE = """
from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("shop.price", attempts=1)
def price(item: int) -> int:
    if item >= 100:
        raise ValueError(f"no item {item}")
    return 3 * item
"""
WAITED_S = 15
"""What has waited for less needs nobody's attention."""


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "shop.py").write_text(MODULE)
    return Shell(tmp_path)


def kill_the_only_worker(shell: Shell) -> str:
    """A worker runs a job and is killed; its name."""
    with shell.start("worker", "shop.py", "--json") as worker:
        worker.line("ready")
        assert shell.run("submit", "shop.price", "1").out == "3\n"
        nodes = shell.run("nodes", "--json").json["nodes"]
        worker.send(signal.SIGKILL)
        worker.wait()
    (name,) = (one["alias"] for one in nodes if "shop.price" in one["kinds"])
    return str(name)


def test_a_program_that_waits_is_told_on_standard_error_that_nobody_runs_the_kind(shell):
    with shell.dev(), shell.start("submit", "shop.price", "1", "--json") as waiting:
        assert waiting.process.stderr is not None
        assert "waiting: no worker that is online runs shop.price" in next(waiting.process.stderr)
        with shell.start("worker", "shop.py", "--json"):
            told = json.loads(waiting.line())
        assert waiting.wait() == 0
        assert (told["result"], waiting.seen) == (3, [json.dumps(told) + "\n"])


def test_when_the_only_worker_is_killed_everything_says_what_waits_for_it(shell):
    said = "nobody runs shop.price: 2 jobs wait since"
    with shell.dev():
        name = kill_the_only_worker(shell)
        job = shell.run("submit", "shop.price", "2", "--detach", "--json").json["job"]
        shell.run("submit", "shop.price", "3", "--detach")
        began = time.monotonic()
        until(lambda: said in plain(shell.run("doctor").out))
        examined = shell.run("doctor")
        assert examined.code == 0, "a warning"
        assert f"(last: {name}, " in plain(examined.out)
        assert said in plain(shell.run("why", job).out)
        assert said in plain(shell.run("jobs").err)
        time.sleep(max(WAITED_S - (time.monotonic() - began), 0))
        until(lambda: shell.run("attention", "--check").code == 1)
        listed = shell.run("attention").out
        assert said in plain(listed)
        assert "antiphon worker MODULE" in listed
        with shell.start("worker", "shop.py", "--json"):
            shell.ended(job)
            assert shell.run("attention").out == "nothing needs attention\n"
            assert "nobody runs" not in shell.run("doctor").out


def test_a_node_that_died_is_listed_also_after_a_restart_until_it_is_dismissed(shell):
    with shell.dev():
        name = kill_the_only_worker(shell)
    replica = sqlite3.connect(shell.home / "replica.db", isolation_level=None)
    # As if the host had been off for an hour.
    replica.execute("update known_nodes set heard_ms = heard_ms - 3600000")
    replica.execute("update nodes_watched set until_ms = until_ms - 3600000")
    replica.close()

    def dead() -> list[str]:
        found = shell.run("nodes", "--json").json["nodes"]
        return [one["alias"] for one in found if one["level"] == "dead"]

    with shell.dev():
        until(dead)
        assert dead() == [name]
        shown = shell.run("nodes")
        assert f"{name} worker dead 1 h ago, " in plain(shown.out)
        assert "antiphon dismiss --node" in shown.err
        assert "1 worker for" in shell.run("doctor").out, "it counts as nobody"
        done = shell.run("dismiss", "--node", name)
        assert (done.out, dead()) == (f"{name} is dismissed\n", [])
        assert f"antiphon dismiss --undo --node {name}" in done.err
        assert shell.run("dismiss", "--undo", "--node", name).code == 0
        assert dead() == [name]
        with shell.start("worker", "shop.py", "--json") as worker:
            worker.line("ready")
            until(lambda: not dead())


def test_dead_jobs_are_dismissed_and_retried_as_a_group(shell):
    with shell.dev(), shell.start("worker", "shop.py", "--json"):
        jobs = [
            shell.run("submit", "shop.price", item, "--attempts", "1", "--json").json
            for item in ("101", "102", "103")
        ]
        newest = jobs[2]["job"][:8]
        listed = shell.run("attention")
        assert "dead jobs shop.price" in plain(listed.out)
        assert f"3 jobs failed: ValueError; the newest is {newest}" in plain(listed.out)
        chosen = ("--kind", "shop.price", "--error", "failed: ValueError")
        assert "antiphon dismiss --kind shop.price --error 'failed: ValueError'" in listed.out

        one = shell.run("dismiss", jobs[0]["job"][:8])
        assert one.out == "1 job dismissed\n"
        done = shell.run("dismiss", *chosen)
        assert done.out == "2 jobs dismissed; what fails from now on is listed\n"
        assert "antiphon dismiss --undo --kind shop.price --error 'failed: ValueError'" in done.err
        assert shell.run("attention", "--check").out == "nothing needs attention\n"
        assert "--kind shop.price --error 'failed: ValueError'" in shell.run("dismiss").out
        nothing = shell.run("dismiss", *chosen)
        assert (nothing.out, "nothing was dismissed" in nothing.err) == ("", True)
        assert shell.run("dismiss", "--undo", *chosen).code == 0
        assert shell.run("attention", "--json").json["items"][0]["count"] == 2
        assert shell.run("dismiss", "--undo", jobs[0]["job"][:8]).code == 0

        assert shell.run("retry", "--error", "KeyError", "--yes").err == "nothing to retry\n"
        assert len(shell.run("retry", *chosen, "--yes").out.splitlines()) == 3
        assert shell.run("dismiss", "--undo", "--kind", "other").code == 5
        assert shell.run("dismiss", "--kind", "shop", jobs[0]["job"]).code == 2


def test_a_member_is_told_who_can_dismiss_and_what_a_machine_that_only_runs_jobs_can_do(
    tmp_path_factory,
):
    typed, box = (Shell(tmp_path_factory.mktemp(name)) for name in ("farm", "gpu-box"))
    with typed.init("--name", "farm"):
        ticket = typed.run("invite", "--can", "claim", "--kind", "render.*", "--alias", "gpu-box")
        assert box.run("join", ticket.out.strip()).code == 0
        for words in (("--kind", "render.frame"), ("--undo", "--kind", "render.frame")):
            refused = box.run("dismiss", *words)
            assert refused.code == 5
            assert "only the owner's own nodes can dismiss" in refused.err
        assert box.run("nodes").code == 0
        none = box.run("jobs")
        assert none.out == "no jobs yet\n"
        assert "antiphon submit" not in none.err
        assert "antiphon worker MODULE" in none.err
        assert "antiphon submit" in typed.run("jobs").err


def test_what_is_dismissed_is_still_dismissed_after_a_restore(shell):
    (shell.directory / "passphrase").write_text("correct horse battery staple\n")
    secret = ("--keys", "keys", "--passphrase-file", "passphrase")
    with shell.init("--name", "shop"), shell.start("worker", "shop.py", "--json"):
        assert shell.run("submit", "shop.price", "101", "--attempts", "1").code == 1
        assert shell.run("dismiss", "--kind", "shop").out.startswith("1 job dismissed")
        assert shell.run("backup", "copy", *secret).code == 0
    assert shell.run("restore", "copy", *secret, "--home", "restored").code == 0
    again = Shell(shell.directory, ANTIPHON_HOME=str(shell.directory / "restored"))
    with again.start("up", "--json") as host:
        host.line("ready")
        assert [one["kind"] for one in again.run("dismiss", "--json").json["dismissals"]] == [
            "shop"
        ]
        assert again.run("attention", "--check").code == 0
        assert host.stop() == 0
