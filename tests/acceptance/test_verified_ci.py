"""`examples/verified_ci`, typed: a push, a job, a note, and a clone that verifies it elsewhere."""

import shutil

import pytest

from tests.acceptance.shell import Shell
from tests.acceptance.typed_page import ROOT, Reader
from tests.interfaces.git.git_program import git
from tests.runtime.sandboxed import require_sandbox

pytestmark = pytest.mark.nats
EXAMPLE = ROOT / "examples" / "verified_ci"


@pytest.mark.slow
def test_the_example_is_true_as_typed_and_a_changed_proof_is_found(tmp_path):
    require_sandbox()
    folder = tmp_path / "ci"
    shutil.copytree(EXAMPLE, folder)
    with Reader(folder) as reader:
        reader.follow((EXAMPLE / "README.md").read_text())
        owner = reader.ids["DID"]
    clone, elsewhere = folder / "elsewhere", Shell(tmp_path)
    git(clone, "fetch", "--quiet", "origin", "+refs/notes/*:refs/notes/*")
    words = ("git", "verify", str(clone), "--owner", owner, "--json")
    found = elsewhere.run(*words).json
    assert (found["verified"], found["notes"], found["wrong"]) == (4, 2, 0)

    note = git(clone, "notes", "--ref=antiphon", "show", "HEAD")
    bundle = next(one for one in note.splitlines() if one.startswith("Bundle: "))[8:]
    result = bundle.replace("/bundle:bundle.json", "/result")
    forged = git(clone, "show", f"{result}:proof.json").replace("1", "2", 1)
    blob = git(clone, "hash-object", "-w", "--stdin", given=forged)
    files = git(clone, "ls-tree", result)
    proof = git(clone, "rev-parse", f"{result}:proof.json")
    tree = git(clone, "mktree", given=files.replace(proof, blob) + "\n")
    message = git(clone, "log", "-1", "--format=%B", result)
    git(
        clone,
        "update-ref",
        result,
        git(clone, "commit-tree", "-p", f"{result}^", "-m", message, tree),
    )
    found = elsewhere.run(*words).json
    assert found["wrong"] >= 1
    assert any(one["ref"] == result for one in found["findings"])
