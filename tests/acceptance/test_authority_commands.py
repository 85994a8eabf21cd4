"""The owner's commands, typed: one development mesh, and a second machine that joined it by hand.

The tests are one story, told in order: the mesh is open until the last of them closes it.
"""

import os
import shutil
import time

import pytest

from antiphon.core.authority.rules import Rules
from antiphon.interfaces.cli import application
from antiphon.runtime.identity import key_files
from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats

NEWCOMER = key_files.SeedKeyring(bytes([7]) * 32).did
TASKS = """
from antiphon import Mesh
mesh = Mesh.open()
@mesh.task("render.frame")
async def frame(number):
    return f"frame {number}"
"""


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("studio"))
    with shell.dev():
        yield shell


@pytest.fixture(scope="module")
def gpu(owner, tmp_path_factory):
    """A second state directory with a machine's key and nobody's grants."""
    shell = Shell(tmp_path_factory.mktemp("gpu"))
    left_out = shutil.ignore_patterns("keys", "server", "rep*", "*.lock")
    shutil.copytree(owner.home, shell.home, ignore=left_out)
    key_files.create(shell.home / "keys" / "machine.key", os.urandom(32))
    shell.did = key_files.load(shell.home / "keys" / "machine.key").did
    return shell


def typed(shell, line, *more):
    """Type a line that works; what it says to programs."""
    answer = shell.run(*line.split(), *more, "--json")
    assert answer.code == 0, answer
    return answer.json


@pytest.mark.parametrize(
    "line, said",
    [
        ("rules leasems=3s", "did you mean lease_ms"),
        ("rules lease_ms", "is not NAME=VALUE"),
        ("rules lease_ms=soon", "lease_ms is a duration"),
        ("rules attempts=3 attempts=4", "given twice"),
        ("rules selection=render:lottery", "selection=render:rendezvous"),
        ("delegate gpu --can fly", "--can"),
        ("delegate gpu", "--can"),
        ("delegate gpu --can claim --until someday", "2d, 12h"),
        ("delegate gpu --can claim --until 2020-01-01", "in the past"),
        ("route render.* gpu", "antiphon route render gpu"),
        ("route --clear", "antiphon route KIND --clear"),
        ("revoke", "antiphon revoke --help"),
    ],
)
def test_a_mistake_is_explained_before_anything_is_asked(line, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["antiphon", *line.split()])
    assert application.run() == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert "Traceback" not in told.err


def test_rules_are_shown_and_changed_with_a_look_at_the_old(owner):
    answer = owner.run("rules", "lease_ms=45s", "attempts=3")
    assert answer.code == 0
    assert answer.out.splitlines() == ["✓ lease_ms  30s → 45s", "  attempts is already 3"]
    refused = owner.run("rules", "lease_min_ms=1s")
    assert refused.code == 5
    assert "contradict each other: lease_min_ms must be at least twice" in refused.err
    told = typed(owner, "rules")["rules"]
    assert list(told) == list(Rules.__struct_fields__)
    assert told["authority"]["value"] == "open" != told["authority"]["default"]
    assert (told["lease_ms"]["value"], told["lease_min_ms"]["value"]) == (45_000, 5_000)


def test_a_grant_is_told_shown_and_taken_back(owner, gpu):
    answer = owner.run(
        "delegate", gpu.did, "--can", "claim", "--kind", "render.*", "--until", "2d",
        "--alias", "gpu-box",
    )  # fmt: skip
    assert answer.code == 0, answer
    assert answer.out.startswith(f"✓ gpu-box {gpu.did[-8:]} may claim render.* until ")
    assert "in 2 days" in answer.out
    shown = owner.run("who").out
    tree = shown[shown.index("\n\nowner ") :].splitlines()[3:]
    assert tree[0] == f"  gpu-box {gpu.did[-8:]}"
    assert tree[1].startswith("    - claim render.*  until ")
    take_back = answer.err.strip().rpartition("antiphon revoke ")[2].split()
    assert tree[1].endswith("  " + " ".join(take_back))
    answer = owner.run("revoke", *take_back)
    assert answer.code == 0, answer
    assert f"revoked from gpu-box {gpu.did[-8:]}: claim render.*" in answer.out
    (ended,) = typed(owner, "who --all")["holders"]
    assert {one["state"] for one in ended["grants"]} == {"revoked"}


def test_a_machine_hands_on_what_it_holds_and_steers_nothing(owner, gpu):
    mine = typed(owner, "delegate gpu-box --can claim --kind render.* --until 1h")
    handed_on = typed(gpu, "delegate --can claim --kind render.video --alias helper", NEWCOMER)
    assert handed_on["ends_s"] == mine["until_s"] < handed_on["until_s"]
    refused = gpu.run("delegate", "helper", "--can", "claim", "--kind", "build.*")
    assert refused.code == 5
    assert "it has claim render.*" in refused.err
    told = typed(owner, "who")
    (machine,) = told["holders"]
    (helper,) = machine["holders"]
    assert (machine["alias"], helper["alias"], helper["node"]) == ("gpu-box", "helper", NEWCOMER)
    assert {one["ends_s"] for one in helper["grants"]} == {mine["until_s"]}
    refused = gpu.run("route", "render", "helper")
    assert refused.code == 5
    assert f"only the owner of this mesh, {told['owner'][-8:]}, may set routes" in refused.err
    ended = typed(owner, "revoke gpu-box")
    assert (len(ended["revoked"]), len(ended["below"])) == (2, 2)


@pytest.mark.req("M20")
def test_jobs_that_a_node_may_claim_are_listed_by_the_routes(owner, gpu):
    job = owner.run("submit", "render.still", "1", "--detach").out.strip()

    def listed(node):
        return [one["job"] for one in typed(owner, "jobs --claimable-by", node)["jobs"]]

    assert job in listed("owner")
    typed(owner, "route render", gpu.did)
    assert job not in listed("owner")
    assert job in listed(gpu.did)
    assert typed(owner, "jobs --overdue")["jobs"] == []
    both = owner.run("jobs", "--overdue", "--claimable-by", "owner")
    assert "--overdue and --claimable-by cannot be combined" in both.err
    typed(owner, "route render --clear")
    owner.run("cancel", job)


def test_routes_and_the_coordinator_are_set_and_lifted(owner, gpu):
    typed(owner, "route render", gpu.did)
    assert typed(owner, "route render.video")["node"] == gpu.did
    answer = owner.run("route")
    assert answer.out.splitlines()[1].split() == ["render", "gpu-box", gpu.did[-8:]]
    assert typed(owner, "route render --clear")["before"] == gpu.did
    assert typed(owner, "coordinator gpu-box")["coordinator"] == gpu.did
    assert "gpu-box" in owner.run("coordinator").out
    assert typed(owner, "coordinator owner")["before"] == gpu.did


def test_a_key_that_is_in_use_for_a_moment_is_waited_for(owner):
    lock = key_files.lock_file(owner.home / "keys" / "owner.lock", "in use already")
    with owner.start("coordinator", "owner") as waiting:
        time.sleep(2)
        assert waiting.process.poll() is None, "it waits"
        lock.release()
        waiting.line("already coordinates")
        assert waiting.wait() == 0


def test_on_a_closed_mesh_nothing_works_without_a_grant_and_everything_granted_does(owner, gpu):
    """The second machine calls and answers exactly as long as the owner lets it."""
    closed = owner.run("rules", "authority=chain")
    assert "open → chain" in closed.out
    assert "closed: only the owner" in closed.err
    (gpu.directory / "tasks.py").write_text(TASKS)
    refused = gpu.run("submit", "render.frame", "1", "--json")
    assert refused.code == 5
    assert refused.json["error"]["reason"] in {"no_chain", "revoked"}
    with gpu.start("worker", "tasks", "--json") as worker:
        worker.line("ready")
        called = owner.run("submit", "--detach", "render.frame", "1").out.strip()
        time.sleep(1)
        assert typed(owner, "show", called)["state"] == "pending", "its worker has no right yet"
        typed(owner, "delegate gpu-box --can claim --can schedule --kind render.* --until 1h")
        assert gpu.run("submit", "render.frame", "2").out == "frame 2\n"
        (machine,) = (one for one in typed(owner, "who")["holders"] if one["alias"] == "gpu-box")
        (process,) = (one for one in machine["holders"] if one["alias"] == "worker-1")
        assert process["grants"][0]["passes_on"]
        assert process["grants"][0]["kinds"] == ["render.*"]
        ended = typed(owner, "revoke gpu-box")
        assert process["node"] in {one["node"] for one in ended["below"]}, "its processes, too"
        assert gpu.run("submit", "render.frame", "3").code == 5
        assert worker.stop() == 0
