"""One mesh, several machines (state directories) over TLS: inviting, joining, working, revoking."""

import json
import re
import shlex
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from antiphon.core.archive.checkpoint import CHECKPOINT
from antiphon.interfaces.cli.commands.authority.delegate import MEANS
from antiphon.sdk.authority.delegation import right_words
from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("farm"))
    with typed.init("--name", "farm") as founded:
        typed.founded = founded
        yield typed


def ticket_for(host, *words) -> str:
    answer = host.run("invite", *words)
    assert answer.code == 0, answer.err
    return answer.out.strip()


@pytest.fixture
def machine(tmp_path_factory):
    return lambda name: Shell(tmp_path_factory.mktemp(name))


def join(host, machine, *terms, alias="box"):
    ticket = ticket_for(host, *terms, "--alias", alias)
    answer = machine.run("join", ticket, "--json")
    assert answer.code == 0, answer.err
    return answer.json


def changes(host) -> list[tuple[str, str]]:
    """Who came and went, as the host's full node noticed it."""
    told = host.run("nodes", "--changes", "--json").json["changes"]
    return [(one["alias"], one["level"]) for one in told]


def test_three_commands_to_a_second_machines_first_job(host, machine):
    ticket = ticket_for(
        host, "--can", "claim", "--kind", "example.*", "--until", "2d", "--alias", "gpu-box"
    )
    box = machine("box")
    with box.start("join", ticket, "--work", "example") as worker:
        worker.line("joined mesh 'farm'")
        worker.line("may      claim example.*; until ")
        worker.line("runs example.add")
        answer = host.run("submit", "example.add", "2", "3")
        assert answer.out == "5\n"
        job = re.search("example.add ([0-9a-f]{8})", answer.err)[1]
        until(lambda: "gpu-box/worker-1" in host.run("nodes", "--json").out)
        until(lambda: ("gpu-box/worker-1", "alive") in changes(host))
        assert "gpu-box/worker-1" in host.run("nodes", "--changes").out
        assert re.search(rf"{job} .* gpu-box", host.run("jobs").out), (
            "by name, not by the end of an id"
        )
        assert "gpu-box/worker-1 states that it ran" in host.run("proof", job).out
        assert host.run("export", job, "-o", "job.json").code == 0
        proved = host.run("verify", "job.json").out
        assert "- the worker gpu-box/worker-1 (did:key:" in " ".join(proved.split())
        assert "signed by the same worker (gpu-box/worker-1)" in " ".join(proved.split())
        seen_there = box.run("show", job, "--json").json
        assert (seen_there["state"], seen_there["result"]) == ("succeeded", 5)
        refused = box.run("submit", "example.add", "1", "1")
        assert refused.code == 5
        assert "command" in refused.err
        assert "antiphon who" in refused.err
        assert worker.stop() == 0
    until(lambda: ("gpu-box/worker-1", "left") in changes(host))


@pytest.mark.parametrize(
    "right, may, to_type",
    [
        ("claim", "claim example.*", ["antiphon worker MODULE"]),
        ("schedule", "schedule example.*", ["antiphon submit KIND"]),
        ("read", "read example.*", ["antiphon jobs"]),
        ("all", "everything with example.*", ["worker", "submit", "questions"]),
        ("answer", "answer example.*", ["antiphon questions"]),
    ],
)
def test_a_machine_that_joins_is_told_what_it_may_do(host, machine, right, may, to_type):
    ticket = ticket_for(host, "--can", right, "--kind", "example.*", "--until", "2d")
    answer = machine("told").run("join", ticket, "--alias", f"may-{right}")
    assert answer.code == 0, answer.err
    assert f"  may      {may}; until " in answer.out
    typed = [line for line in answer.out.splitlines() if line.startswith("  antiphon ")]
    assert len(typed) == len(to_type)
    assert all(word in line for word, line in zip(to_type, typed, strict=True))


TASKS = """
from antiphon import Mesh
mesh = Mesh.open()

@mesh.task("example.sum")
async def total(*numbers: int) -> int:
    async with mesh.locks.hold("sum", scope="example.books"):
        await mesh.memory["example.notes"].put("last", list(numbers))
    job = await mesh.submit("example.add", *numbers)
    return await job.result("60s")
"""


def test_a_machine_of_ones_own_can_do_what_tasks_do_and_no_more(host, machine):
    invited = host.run("invite", "--worker", "example.*", "--alias", "mine")
    assert "its tasks can submit further ones, take locks, use" in invited.err
    box = machine("mine")
    joined = box.run("join", invited.out.strip(), "--json").json
    rights = {"claim", "job complete", "schedule", "read", "lock", "memory", "message"}
    assert {one["right"] for one in joined["may"]} == rights
    assert {kind for one in joined["may"] for kind in one["kinds"]} == {"example.*"}
    (box.home.parent / "tasks.py").write_text(TASKS)
    with box.start("worker", "tasks") as sums, box.start("worker", "example") as adds:
        sums.line("runs example.sum")
        adds.line("runs example.add")
        assert host.run("submit", "example.sum", "2", "3").out == "5\n"
        assert host.run("memory", "get", "example.notes", "last").out.split() == ["[2,", "3]"]
        assert box.run("submit", "secret.job", "1", "--detach").code == 5
        for worker in (sums, adds):
            assert worker.stop() == 0


def test_whoever_does_not_say_what_a_machine_may_do_is_told_the_choices(host):
    told = host.run("invite")
    assert told.code == 2
    for word, means in MEANS.items():
        assert re.search(rf"^ +{word} +{re.escape(means)}$", told.err, re.MULTILINE)
    typed = re.findall(r"antiphon (invite .*)", told.err)
    assert len(typed) == 2
    for words in typed:
        assert host.run(*shlex.split(words)).out.startswith("antiphon-ticket-"), words
    wrong = host.run("delegate", "box", "--can", "clam")
    assert wrong.code == 2
    assert "antiphon delegate box --can claim" in wrong.err
    assert "look at jobs, locks and documents" in wrong.err
    kinds = host.run("invite", "example.*")
    assert kinds.code == 2
    assert "antiphon invite --can claim --kind 'example.*'" in kinds.err


def test_every_permission_is_explained():
    assert list(MEANS) == right_words()


def test_who_lacks_a_permission_is_told_which_and_what_the_owner_types(host, machine):
    box = machine("narrow")
    join(host, box, "--can", "schedule", "--kind", "example.*", alias="narrow")
    grants = {}
    for may_not, words in {
        "schedule secret.job": ("submit", "--detach", "secret.job", "1"),
        "read secret.notes": ("memory", "get", "secret.notes", "plan"),
        "read secret.lists": ("memory", "ls", "secret.lists"),
        "read secret.pairs": ("memory", "conflicts", "secret.pairs"),
        "write to secret.notes": ("memory", "put", "secret.notes", "plan", "1"),
    }.items():
        refused = box.run(*words)
        assert refused.code == 5, refused.err
        assert f"this key may not {may_not}" in refused.err
        assert " ap." not in refused.err
        told = box.run(*words, "--json").json["error"]["hint"]
        grants[may_not] = re.search(r"antiphon (delegate \S+ --can \S+ --kind \S+[^;\s])", told)[1]
    assert grants["read secret.notes"].endswith("--can read-memory --kind secret.notes")
    for may_not in ("schedule secret.job", "write to secret.notes"):
        typed = grants[may_not].replace("NODE", "narrow").split()
        assert host.run(*typed).code == 0, typed
    until(lambda: box.run("submit", "--detach", "secret.job", "1").code == 0)
    until(lambda: box.run("memory", "put", "secret.notes", "plan", "1").code == 0)


def test_a_worker_that_may_not_claim_says_so_and_begins_when_it_may(host, machine):
    box = machine("caller")
    told = join(host, box, "--can", "schedule", "--kind", "example.*", alias="caller")
    assert {one["right"] for one in told["may"]} == {"schedule", "read"}
    with box.start("worker", "example") as worker:
        worker.line("runs nothing yet")
        job = box.run("submit", "--detach", "example.add", "2", "3").out.strip()
        granted = host.run("delegate", "caller", "--can", "claim", "--kind", "example.*")
        assert granted.code == 0, granted.err
        assert box.ended(job)["state"] == "succeeded"
        assert worker.stop() == 0
        said = worker.err
    assert "this machine may not claim example.add" in said
    assert "antiphon who" in said


def test_state_directories_are_private_and_no_secret_is_in_an_argument_list(host, machine):
    box = machine("box")
    join(host, box, "--can", "read")
    for shell in (host, box):
        assert stat.S_IMODE(shell.home.stat().st_mode) == 0o700
        secrets = [*shell.home.glob("keys/*.key"), *shell.home.glob("gate/*/*/*")]
        for path in [shell.home / "access.json", *secrets]:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    access = json.loads((host.home / "access.json").read_text())
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert access["user_seed"].encode() not in line.read_bytes()


def test_a_ticket_works_once_and_for_as_long_as_it_says(host, machine):
    ticket = ticket_for(host, "--can", "read")
    assert len(ticket) <= 300, "it is pasted by hand"
    one = machine("one")
    assert one.run("join", ticket).code == 0
    again = machine("two").run("join", "-", typed=ticket)
    assert again.code == 5
    assert "already used" in again.err
    until(lambda: "antiphon worker MODULE" in one.run("join", ticket).err)  # its login has ended
    assert not (machine("three").home / "mesh.json").exists()
    late = ticket_for(host, "--can", "read", "--within", "1s")
    until(lambda: machine("four").run("join", late).code != 0)
    spoilt = machine("five").run("join", ticket[:-20])
    assert spoilt.code == 5
    assert "not a ticket" in spoilt.err


PEER = """
import asyncio, importlib.abc, json, sys

WORKING = ("antiphon.sandbox", "antiphon.runtime.executors.process_pool")
LISTENING = "antiphon.runtime.worker.job_output"  # receives the live output of others


class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        parts = name.startswith("antiphon.runtime.worker.") and name != LISTENING
        if parts or name.startswith(WORKING):
            raise ModuleNotFoundError(f"{name} is not installed here")


sys.meta_path.insert(0, NotInstalled())
from antiphon import Mesh, AntiphonError
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_records


async def main(job):
    async with Mesh.open() as mesh, mesh.node() as node:
        await node.reached((await mesh.connection.session.log.last()).seq)
        jobs = [one for one in node.replica.ask(ReplicaJobs).jobs(limit=50) if one.id == job]
        told = {
            "state": jobs[0].state.value,
            "verdicts": sorted(  # a host that is in time offers it again: that is not refused
                {one.verdict.value for one in job_records(node.replica, jobs[0].kind, job)}
            ),
            "kinds": sorted({one.kind for one in jobs}),
        }
        try:
            await mesh.job(jobs[0].kind, job).cancel()
        except AntiphonError as refused:
            told["refused"] = type(refused).__name__
    print(json.dumps(told))


asyncio.run(main(sys.argv[1]))
"""
"""A full node where nothing is installed that finds, claims or runs jobs."""


@pytest.mark.req("M1")
def test_a_peer_that_may_only_read_replicates_verifies_and_answers_without_worker_code(
    host, machine
):
    box = machine("peer")
    join(host, box, "--can", "read", "--kind", "example.*", alias="peer")
    host.run("submit", "--detach", "other.kind", "1")
    job = host.run("submit", "--detach", "example.echo", "1").out.strip()
    with box.start("node", "--json") as node:
        node.line("ready")
        until(lambda: job[:8] in box.run("jobs").out)
        shown = box.run("jobs", "--json").json
        kinds = {one["kind"] for one in shown["jobs"]}
        assert kinds <= {"example.echo", "example.add", "example.sum"}
        assert box.run("show", job, "--json").json["story"][0]["verdict"] == "ok"
        assert "peer" in box.run("who").out, "it sees for itself who holds what"
        node.stop()
    done = subprocess.run(
        [sys.executable, "-c", PEER, job],
        cwd=box.directory,
        env=box.env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "state": "pending",
        "verdicts": ["ok"],
        "kinds": ["example.echo"],
        "refused": "Rejected",
    }


def test_a_revoked_machine_is_shown_out_with_a_sentence(host, machine):
    box = machine("contractor")
    told = join(host, box, "--can", "claim", "--kind", "example.*", alias="contractor")
    with box.start("worker", "example") as worker:
        worker.line("runs")
        job = host.run("submit", "--detach", "example.sleep", "600").out.strip()
        until(lambda: host.run("show", job, "--json").json["state"] == "running")
        answer = host.run("revoke", "contractor")
        assert answer.code == 0, answer.err
        story = host.run("show", job, "--json").json["story"]
        (revocation,) = [line for line in story if line["op"] == "ucan.revoke"]
        assert "the lease of" in revocation["words"]
        until(lambda: "revoked the delegation" in host.run("show", job).out)
        (tenure,) = host.run("why", job, "--json").json["tenures"]
        assert (tenure["how"], tenure["until_ms"]) == ("revoked", revocation["at_ms"])
        assert tenure["since_ms"] < tenure["until_ms"]
        refused = box.run("jobs")
        until(lambda: box.run("doctor").code != 0)
    assert told["node"].startswith("did:key:")
    refused = box.run("submit", "example.add", "1", "2")
    assert refused.code in {3, 4, 5}
    assert "Traceback" not in refused.err
    assert re.search("revoked|ended|join", refused.err)


def test_who_shows_the_machines_and_what_they_hold(host, machine):
    join(host, machine("viewer"), "--can", "read", "--until", "12h", alias="viewer-box")
    shown = host.run("who")
    assert shown.code == 0
    assert "viewer-box" in shown.out
    assert "read" in shown.out


def test_the_host_comes_back_with_its_members(tmp_path_factory):
    host, box = Shell(tmp_path_factory.mktemp("again")), Shell(tmp_path_factory.mktemp("member"))
    with host.init("--name", "again") as founded:
        join(host, box, "--can", "schedule", "--kind", "example.*")
        recovery = founded["recovery"]
    with host.start("up", "--json") as running:
        running.line("ready")
        called = box.run("submit", "--detach", "example.add", "2", "3")
        assert called.code == 0, called.err
        wrong = host.run("recover", typed=recovery[:-4] + "AAAA")
        assert wrong.code in {2, 5}
        recovered = host.run("recover", "--json", typed=recovery)
        assert recovered.code == 0, recovered.err
        shown, done = map(json.loads, recovered.out.splitlines())
        assert shown["recovery"] not in {"", recovery}, "it is shown before it counts"
        assert done["owner"] != founded["owner"]
        assert box.run("submit", "--detach", "example.add", "4", "5").code != 0
        assert host.run("submit", "--detach", "example.add", "6", "7").code == 0
        assert running.stop() == 0, running.err
    elsewhere = host.run("init")
    assert elsewhere.code == 6
    assert "antiphon up" in elsewhere.err
    assert "not a development mesh" in host.run("dev").err


def test_where_a_mesh_is_hosted_doctor_says_that_its_log_grows_without_an_archive(host, machine):
    told = " ".join(host.run("doctor").out.split())
    assert "! archive" in told
    assert "it grows until the disk is full" in told
    assert "try: ANTIPHON_ARCHIVE=/srv/archive antiphon up" in told
    there = host.home / "archive" / CHECKPOINT
    there.parent.mkdir()
    there.touch()
    try:
        assert "✓ archive" in host.run("doctor").out
    finally:
        there.unlink()
        there.parent.rmdir()
    box = machine("reader")
    join(host, box, "--can", "read", "--kind", "*", alias="reader")
    assert "archive" not in box.run("doctor").out, "its log is kept elsewhere"
