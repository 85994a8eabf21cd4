"""Jobs in a Git repository, with the real git: shown, cloned, verified (docs/git.md)."""

import json
import signal
from contextlib import contextmanager

import pytest

from tests.acceptance.shell import Shell, until
from tests.interfaces.git.git_program import git, refs, trailers

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
