"""Jobs in a Git repository, with the real git: shown, cloned, verified (docs/do/git.md)."""

import json
import re
import signal
import subprocess
from contextlib import contextmanager

import pytest

from tests.acceptance.shell import Shell, until
from tests.interfaces.git.git_program import git, refs, trailers
from tests.interfaces.git.http_backend import http_backend
from tests.interfaces.git.signed_commits import Writer, add_manifest, make_key
from tests.interfaces.git.ssh_server import ssh_server

pytestmark = pytest.mark.nats


@contextmanager
def bridge(shell, repo, *words):
    """A bridge that has caught up."""
    with shell.start("git", "serve", str(repo), "--json", *words) as running:
        running.line('"ready"')
        yield running


def submitted(shell, *words):
    answer = shell.run("submit", "example.add", *words, "--json")
    assert answer.code == 0, answer
    return answer.json["job"]


@pytest.mark.req("P11")
def test_a_killed_bridge_goes_on_and_a_fresh_clone_verifies_everything(tmp_path):
    shell, repo = Shell(tmp_path), tmp_path / "jobs.git"
    clone = tmp_path / "clone.git"
    with shell.dev():
        first = submitted(shell, "2", "3")
        with bridge(shell, repo) as running:
            assert trailers(repo, f"refs/gatos/jobs/{first}/result")["Outcome"] == "succeeded"
            running.stop(signal.SIGKILL)
        second = submitted(shell, "3", "4")
        with bridge(shell, repo) as running:
            third = submitted(shell, "4", "5")
            until(lambda: f"refs/gatos/jobs/{third}/bundle" in refs(repo))
            assert running.stop() == 0
        shell.export(first, "-o", "bundle.json")
        owner = json.loads(shell.run("who", "--json").out)["owner"]
        git(tmp_path, "clone", "--quiet", "--mirror", str(repo), str(clone))
    results = git(
        clone,
        *("log", "--no-walk", "--glob=refs/gatos/jobs/*/result"),
        "--format=%(trailers:key=Job-Id,valueonly,separator=%x20)",
    )
    assert set(results.split()) == {f"blake3:{one}" for one in (first, second, third)}

    elsewhere = Shell(tmp_path, ANTIPHON_HOME=str(tmp_path / "nowhere"))
    found = elsewhere.run("git", "verify", str(clone), "--owner", owner, "--json").json
    assert (found["jobs"], found["verified"], found["wrong"]) == (3, 3, 0)
    bundle = git(clone, "show", f"refs/gatos/jobs/{second}/bundle:bundle.json") + "\n"
    (tmp_path / "second.json").write_text(bundle)
    assert elsewhere.run("verify", "second.json", "--owner", owner).code == 0

    forged = git(clone, "rev-parse", f"refs/gatos/jobs/{first}/result")
    git(clone, "update-ref", f"refs/gatos/jobs/{second}/result", forged)
    answer = elsewhere.run("git", "verify", str(clone), "--owner", owner)
    assert answer.code == 5
    assert f"refs/gatos/jobs/{second}/result: it is not what follows" in answer.out


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A mesh with delegations, a worker and a bridge; the repository is below `repositories`."""
    folder = tmp_path_factory.mktemp("served")
    shell = Shell(folder)
    (folder / "adder.py").write_text(ADDER)
    with (
        shell.init(),
        shell.start("worker", "adder", "--json") as worker,
        bridge(shell, folder / "repositories" / "jobs.git"),
    ):
        worker.line("ready")
        yield shell


ADDER = """
from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("example.add")
async def add(a: int, b: int) -> int:
    return a + b
"""
NEW = "HEAD:refs/gatos/jobs/new/example.add"


@pytest.fixture(scope="module")
def member(served):
    """Somebody whose key may submit `example.*`."""
    key = make_key(served.directory)
    did = served.run("git", "key", f"{key}.pub").out.strip()
    answer = served.run("delegate", did, "--can", "schedule", "--kind", "example.*")
    assert answer.code == 0, answer
    return Writer(served.directory / "member", key)


def pushed_job(said):
    return re.search(r"job ([0-9a-f]{64})", said)[1]


@contextmanager
def by_path(served):
    yield str(served.directory / "repositories" / "jobs.git"), ""


@contextmanager
def by_http(served):
    with http_backend(served.directory / "repositories") as address:
        yield f"{address}/jobs.git", ""


@contextmanager
def by_ssh(served):
    with ssh_server(served.directory / "ssh") as (address, command):
        yield f"{address}{served.directory}/repositories/jobs.git", command


@pytest.mark.parametrize("transport", [by_path, by_http, by_ssh])
def test_a_signed_commit_is_a_job_over_each_of_gits_transports(
    served, member, transport, tmp_path, monkeypatch
):
    with transport(served) as (where, ssh):
        monkeypatch.setenv("GIT_SSH_COMMAND", ssh or "false")
        stranger = Writer(tmp_path / "stranger", make_key(tmp_path))
        stranger.commit(add_manifest(1, 1))
        is_taken, said = stranger.push(where, NEW)
        assert not is_taken
        assert "may not submit example.add" in said
        assert "antiphon delegate did:key:" in said

        number = [by_path, by_http, by_ssh].index(transport)
        member.commit(add_manifest(20, number))
        is_taken, said = member.push(where, NEW)
        assert is_taken, said
        job = pushed_job(said)
        assert served.ended(job)["state"] == "succeeded"
        again, said = member.push(where, NEW)
        assert again
        assert f"{job} already there" in said, "a push that is repeated runs nothing twice"

        result = f"refs/gatos/jobs/{job}/result"
        until(lambda: result in git_environment_of(member, "ls-remote", where, result))
        git_environment_of(member, "fetch", "--quiet", where, "+refs/gatos/*:refs/gatos/*")
        assert trailers(member.folder, result)["Outcome"] == "succeeded"


def git_environment_of(writer, *words):
    """Git's answer in somebody's clone, with the environment's way to other machines."""
    words = ["git", "-C", writer.folder, *words]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_gits_own_check_agrees_about_who_signed(served, member, tmp_path):
    member.commit(add_manifest(1, 2))
    where = str(served.directory / "repositories" / "jobs.git")
    job = pushed_job(member.push(where, NEW)[1])
    (tmp_path / "signers").write_text(served.run("git", "signers").out)
    repo = served.directory / "repositories" / "jobs.git"
    words = ("-c", f"gpg.ssh.allowedSignersFile={tmp_path / 'signers'}", "verify-commit")
    git(repo, *words, f"refs/gatos/jobs/{job}/pushed")
    stranger = Writer(tmp_path / "stranger", make_key(tmp_path))
    stranger.commit(add_manifest(1, 1))
    with pytest.raises(AssertionError):
        git(stranger.folder, *words, "HEAD")


def pushed_or_derived(served):
    """The refs but those of bundles, which come with the next seal."""
    found = refs(served.directory / "repositories" / "jobs.git")
    return {name: at for name, at in found.items() if not name.endswith("/bundle")}


def test_what_is_no_job_is_refused_in_words_and_leaves_nothing(served, member, tmp_path):
    where = str(served.directory / "repositories" / "jobs.git")
    before = pushed_or_derived(served)
    unsigned = Writer(tmp_path / "unsigned")
    oid = unsigned.commit(add_manifest(1, 1))
    is_taken, said = unsigned.push(where, NEW)
    assert not is_taken
    assert "is not signed" in said
    assert "try: git config gpg.format ssh" in said
    assert not git(served.directory / "repositories" / "jobs.git", "cat-file", "-t", oid, ok=False)

    member.commit(add_manifest(5, 5), "a job")
    assert "does not say its kind" in member.push(where, NEW)[1]
    member.commit("command: [sh", "a job\n\nKind: build")
    assert "line 1" in member.push(where, "HEAD:refs/gatos/jobs/new/build")[1]
    member.commit('{"command": ["true"], "timeout": 5}', "a job\n\nKind: build")
    assert "may not submit build" in member.push(where, "HEAD:refs/gatos/jobs/new/build")[1]
    forged = f"HEAD:refs/gatos/jobs/{'0' * 64}/result"
    is_taken, said = member.push(where, forged)
    assert not is_taken
    assert "written by the bridge alone" in said or "hidden ref" in said
    is_taken, said = member.push(where, "HEAD:refs/notes/antiphon")
    assert not is_taken, "notes say what the log says"
    assert pushed_or_derived(served) == before
    assert member.push(where, "+HEAD:refs/heads/main")[0], "branches are no business of the bridge"


def test_a_key_that_was_revoked_pushes_no_more(served, tmp_path):
    key = make_key(tmp_path)
    did = served.run("git", "key", f"{key}.pub", "--json").json["key"]
    assert served.run("delegate", did, "--can", "schedule").code == 0
    writer, where = (
        Writer(tmp_path / "work", key),
        str(served.directory / "repositories" / "jobs.git"),
    )
    writer.commit(add_manifest(8, 1))
    assert writer.push(where, NEW)[0]
    assert served.run("revoke", did).code == 0
    writer.commit(add_manifest(8, 2))
    is_taken, said = writer.push(where, NEW)
    assert not is_taken
    assert "may not submit example.add" in said


def test_a_bridge_gives_nobody_more_than_it_has_itself(served, tmp_path):
    """It runs on a machine that joined, with the right to submit `example.*` and no more."""
    machine, repo = Shell(tmp_path), tmp_path / "jobs.git"
    terms = ("--can", "schedule", "--kind", "example.*", "--alias", "bridge")
    ticket = served.run("invite", *terms).out.strip()
    assert machine.run("join", ticket).code == 0
    key = make_key(tmp_path)
    did = served.run("git", "key", f"{key}.pub").out.strip()
    assert served.run("delegate", did, "--can", "schedule").code == 0
    writer = Writer(tmp_path / "work", key)
    with bridge(machine, repo):
        writer.commit(add_manifest(9, 9))
        is_taken, said = writer.push(str(repo), NEW)
        assert is_taken, said
        result = f"refs/gatos/jobs/{pushed_job(said)}/result"
        until(lambda: result in refs(repo))
        writer.commit('{"command": ["true"], "timeout": 5}', "a job\n\nKind: build")
        is_taken, said = writer.push(str(repo), "HEAD:refs/gatos/jobs/new/build")
        assert not is_taken
        assert "this bridge" in said
        assert "may not submit build" in said


@pytest.mark.parametrize("rights", [("schedule",), ("claim",), ("schedule", "claim")])
def test_branches_are_followed_where_their_pushes_may_be_submitted_and_run(
    served, tmp_path, rights
):
    machine, repo = Shell(tmp_path), tmp_path / "shop.git"
    can = [word for right in rights for word in ("--can", right)]
    terms = ("--kind", "git.push.shop", "--alias", "-".join(rights))
    assert machine.run("join", served.run("invite", *can, *terms).out.strip()).code == 0
    if len(rights) == 1:
        refused = machine.run("git", "serve", str(repo), "--follow", "main")
        assert refused.code != 0
        assert "branches cannot be followed here" in refused.err
        assert "--kind git.push.shop" in refused.err
        return
    writer = Writer(tmp_path / "work")
    with bridge(machine, repo, "--follow", "main"):
        writer.commit(add_manifest(1, 1))
        is_taken, said = writer.push(str(repo), "HEAD:refs/heads/main")
        assert is_taken
        job = re.search(r"job ([0-9a-f]{64}) for main", said)[1]
        assert served.ended(job)["state"] == "succeeded"
        until(lambda: f"refs/gatos/jobs/{job}/result" in refs(repo))


def test_without_a_bridge_jobs_are_refused_and_branches_are_not(tmp_path):
    shell, repo = Shell(tmp_path), tmp_path / "jobs.git"
    with shell.dev(), bridge(shell, repo) as running:
        running.stop(signal.SIGKILL)
    writer = Writer(tmp_path / "work", make_key(tmp_path))
    writer.commit(add_manifest(1, 1))
    is_taken, said = writer.push(str(repo), NEW)
    assert not is_taken
    assert "no bridge answers in this repository" in said
    assert writer.push(str(repo), "HEAD:refs/heads/main")[0]
