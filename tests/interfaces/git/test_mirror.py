"""A repository that shows the jobs of a mesh: what is in it, and that it is always the log's."""

import asyncio
import json

import pytest
from blake3 import blake3

from antiphon.core.families.jobs.ops import CancelBody, JobCancel
from antiphon.errors import Held, LogReplaced, Misconfigured
from antiphon.interfaces.git import bridge_folder
from antiphon.interfaces.git.bridge import serving
from antiphon.interfaces.git.clone_check import check_clone
from antiphon.interfaces.git.repository import open_repository
from antiphon.runtime.replica.replica_tree import Tree
from antiphon.sdk.archive.erasure import forget_job
from antiphon.sdk.git.job_feed import Cursor
from antiphon.sdk.proofs import bundles
from tests.interfaces.git import git_program
from tests.interfaces.git.git_program import double, git, mirrored, refs, trailers

pytestmark = pytest.mark.processes
SEALED_S = 120


@pytest.fixture(autouse=True)
def in_memory(mesh):
    mesh.use(git_program.mesh)


@pytest.fixture
def repo(tmp_path):
    return tmp_path / "jobs.git"


async def submitted(number):
    handle = await double.submit(number)
    await handle.result()
    return handle


@pytest.mark.req("P11")
def test_a_jobs_whole_life_is_read_with_git_alone(mesh, repo):
    job = mesh.run(submitted(7)).id
    mesh.run(mirrored(repo))
    folder = f"refs/gatos/jobs/{job}/"
    shown = {name.removeprefix(folder): target for name, target in refs(repo).items()}
    (claim,) = (name for name in shown if name.startswith("claims/"))
    assert shown.keys() == {"job", claim, "result"}

    manifest = git(repo, "show", f"{shown['job']}:job.yaml")
    assert blake3(manifest.encode()).hexdigest() == job, "the id follows from the file"
    assert json.loads(manifest)["command"] == ["@shop.double"]
    for name in (claim, "result"):
        assert git(repo, "log", "-1", "--format=%P", shown[name]) == shown["job"]

    for commit in shown.values():
        assert trailers(repo, commit)["Job-Id"] == f"blake3:{job}"
    said = trailers(repo, shown["result"])
    proof = git(repo, "show", f"{shown['result']}:proof.json")
    assert said["Proof-Of-Execution"] == f"blake3:{blake3(proof.encode()).hexdigest()}"
    assert said["Worker-Id"] == f"ed25519:{claim.removeprefix('claims/')}"
    assert said["Outcome"] == "succeeded"
    (output,) = json.loads(git(repo, "show", f"{shown['result']}:outputs.json"))
    assert output["name"] == "result"
    assert output["hash"].startswith("blake3:")
    assert trailers(repo, shown[claim])["Fence"]


def test_a_job_that_was_forgotten_is_not_written_and_goes_when_everything_is_compared(mesh, repo):
    before, secret = mesh.run(submitted(7)), mesh.run(submitted(8))
    mesh.run(forget_job(git_program.mesh, before.kind, before.id))
    mesh.run(mirrored(repo))
    assert {name.split("/")[3] for name in refs(repo)} == {secret.id}
    mesh.run(forget_job(git_program.mesh, secret.kind, secret.id))
    mesh.run(mirrored(repo))
    assert refs(repo), "Git has what it had"
    mesh.run(mirrored(repo, again=True))
    assert refs(repo) == {}


@pytest.mark.req("P11")
def test_git_checks_packs_and_lists_it_like_any_repository(mesh, repo):
    for number in range(3):
        mesh.run(submitted(number))
    mesh.run(mirrored(repo))
    before = refs(repo)
    assert "error" not in git(repo, "fsck", "--strict", "--full")
    git(repo, "gc", "--quiet", "--prune=now")
    assert refs(repo) == before
    outcomes = git(
        repo,
        *("log", "--glob=refs/gatos/jobs/*/result", "--no-walk"),
        "--format=%(trailers:key=Outcome,valueonly,separator=%x20)",
    )
    assert outcomes.split() == ["succeeded"] * 3
    job = mesh.run(submitted(9)).id
    mesh.run(mirrored(repo))
    assert before.items() < refs(repo).items()
    assert f"refs/gatos/jobs/{job}/result" in refs(repo)


def test_a_claim_that_ended_without_a_result_says_so(mesh, repo):
    mesh.kill_worker()
    job = mesh.run(submitted(7)).id
    mesh.run(mirrored(repo))
    claims = [one for name, one in refs(repo).items() if f"{job}/claims/" in name]
    ends = [trailers(repo, one).get("Ended") for one in claims]
    assert sorted(ends, key=str) == [None, "expired"]


def test_the_same_log_gives_the_same_ids_in_any_repository(mesh, repo, tmp_path):
    mesh.run(submitted(1))
    mesh.run(mirrored(repo))
    job = mesh.run(submitted(2)).id
    mesh.run(mirrored(repo))
    elsewhere = tmp_path / "elsewhere.git"
    mesh.run(mirrored(elsewhere))
    assert refs(elsewhere) == refs(repo)
    clone = tmp_path / "clone.git"
    git(tmp_path, "clone", "--quiet", "--mirror", str(repo), str(clone))
    git(clone, "update-ref", "-d", f"refs/gatos/jobs/{job}/result")
    mesh.run(mirrored(clone))
    assert refs(clone) == refs(repo), "a clone goes on without knowing how far it is"


@pytest.mark.parametrize("killed_before", ["store", "update", "store of progress"])
def test_a_mirror_that_is_killed_anywhere_ends_up_the_same(
    mesh, repo, tmp_path, monkeypatch, killed_before
):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    mesh.run(submitted(1))
    mesh.run(mirrored(repo))
    mesh.run(submitted(2))
    place, name = {
        "store": ("antiphon.interfaces.git.repository.Repository", "store"),
        "update": ("antiphon.interfaces.git.repository.Repository", "update"),
        "store of progress": ("antiphon.interfaces.git.bridge_folder.BridgeFolder", "store"),
    }[killed_before]
    with monkeypatch.context() as patched:
        patched.setattr(f"{place}.{name}", die)
        with pytest.raises(Killed):
            mesh.run(mirrored(repo))
    mesh.run(mirrored(repo))
    untroubled = tmp_path / "untroubled.git"
    mesh.run(mirrored(untroubled))
    assert refs(repo) == refs(untroubled)


def test_what_the_log_rejected_is_not_shown(mesh, repo):
    job = mesh.run(submitted(7)).id
    mesh.run(mirrored(repo))
    before = refs(repo)

    async def cancel_after_the_end():
        session = git_program.mesh.connection.session
        view = await session.read_lane("shop.double", job)
        body = CancelBody(kind="shop.double", job=job)
        await session.commit(session.draft(JobCancel, body, prev=view.lane.job_tail))

    mesh.run(cancel_after_the_end())
    mesh.run(mirrored(repo))
    mesh.run(mirrored(repo, again=True))
    assert refs(repo) == before


def test_the_same_content_under_two_kinds_is_two_jobs(mesh, repo):
    async def both():
        first = await git_program.mesh.submit_manifest("one", {"command": ["true"], "timeout": 9})
        other = await git_program.mesh.submit_manifest("other", {"command": ["true"], "timeout": 9})
        assert first.id == other.id
        return first.id

    job = mesh.run(both())
    mesh.run(mirrored(repo))
    kinds = {name: trailers(repo, one)["Kind"] for name, one in refs(repo).items()}
    folder = f"refs/gatos/jobs/{job}/"
    assert kinds == {f"{folder}job": "one", f"{folder}kinds/other/job": "other"}


def test_no_text_of_a_job_becomes_a_trailer(mesh, repo):
    async def submit():
        words = ["sh", "-c", "\n\nProof-Of-Execution: blake3:00\nOutcome: succeeded\n"]
        handle = await git_program.mesh.submit_manifest("one", {"command": words, "timeout": 9})
        await handle.cancel(reason="\n\nWorker-Id: ed25519:00")
        return handle.id

    job = mesh.run(submit())
    mesh.run(mirrored(repo))
    said = trailers(repo, f"refs/gatos/jobs/{job}/result")
    assert said == {"Job-Id": f"blake3:{job}", "Outcome": "cancelled"}
    submission = trailers(repo, f"refs/gatos/jobs/{job}/job")
    assert submission.keys() == {"Job-Id", "Kind", "Priority", "Submitter-Id"}


def test_refs_that_do_not_follow_from_the_log_are_put_right(mesh, repo):
    job = mesh.run(submitted(7)).id
    mesh.run(mirrored(repo))
    before = refs(repo)
    folder = f"refs/gatos/jobs/{job}/"
    forged = git(repo, "commit-tree", "-m", "forged", f"{folder}result^{{tree}}")
    git(repo, "update-ref", f"{folder}result", forged)
    git(repo, "update-ref", f"{folder}claims/{'ab' * 32}", forged)
    git(repo, "update-ref", f"refs/gatos/jobs/{'0' * 64}/result", forged)
    git(repo, "update-ref", "refs/heads/main", forged)
    assert mesh.run(mirrored(repo, again=True)) == 2
    assert refs(repo) == before
    assert git(repo, "rev-parse", "refs/heads/main") == forged, "branches are not the mirror's"


def test_a_repository_of_the_newer_object_format_works_too(mesh, repo, tmp_path):
    git(tmp_path, "init", "--quiet", "--bare", "--object-format=sha256", str(repo))
    job = mesh.run(submitted(7)).id
    mesh.run(mirrored(repo))
    assert "error" not in git(repo, "fsck", "--strict")
    assert trailers(repo, f"refs/gatos/jobs/{job}/result")["Outcome"] == "succeeded"


class TestAClone:
    """What anyone can check who has a clone, and the owner's id."""

    @pytest.fixture
    def clone(self, mesh, repo, tmp_path):
        for number in range(2):
            mesh.run(submitted(number))
        mesh.run(asyncio.sleep(SEALED_S))
        mesh.run(submitted(2))
        mesh.run(mirrored(repo))
        clone = tmp_path / "clone.git"
        git(tmp_path, "clone", "--quiet", "--mirror", str(repo), str(clone))
        return clone

    def checked(self, mesh, clone, **how):
        async def check():
            return await check_clone(await open_repository(clone), **how)

        return mesh.run(check())

    @pytest.mark.req("P11")
    def test_every_sealed_job_is_verified_from_it(self, mesh, clone):
        owner = self.checked(mesh, clone).owner
        found = self.checked(mesh, clone, owner=owner)
        assert (found.jobs, found.verified, found.wrong) == (3, 2, 0)
        assert found.unsealed == 1

    @pytest.mark.req("P11")
    def test_a_seal_that_comes_while_bundles_are_made_is_no_forgery(
        self, mesh, clone, tmp_path, monkeypatch
    ):
        elsewhere, assembled = tmp_path / "elsewhere.git", bundles.assembled

        async def after_another_seal(*where):
            await submitted(9)
            await asyncio.sleep(SEALED_S)
            return await assembled(*where)

        monkeypatch.setattr(bundles, "assembled", after_another_seal)
        mesh.run(mirrored(elsewhere))
        found = self.checked(mesh, elsewhere)
        assert (found.verified > 0, found.findings) == (True, [])

    def test_a_job_that_changes_while_bundles_are_made_has_none_yet(
        self, mesh, clone, tmp_path, monkeypatch
    ):
        elsewhere, assembled = tmp_path / "elsewhere.git", bundles.assembled
        asked = []

        async def none_for_the_first(source, key):
            asked.append(key.name)
            return None if key.name == asked[0] else await assembled(source, key)

        monkeypatch.setattr(bundles, "assembled", none_for_the_first)
        mesh.run(mirrored(elsewhere))
        assert len(asked) == 2
        with_bundle = {name.split("/")[3] for name in refs(elsewhere) if name.endswith("/bundle")}
        assert with_bundle == {asked[1]}

    def test_another_owner_is_not_believed(self, mesh, clone):
        stranger = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
        found = self.checked(mesh, clone, owner=stranger)
        assert (found.verified, found.wrong) == (0, 2)

    @pytest.mark.parametrize("what", ["proof", "trailer", "bundle", "claim", "stranger"])
    def test_whatever_is_forged_in_it_is_found(self, mesh, clone, what):
        sealed = next(name for name in refs(clone) if name.endswith("/bundle"))
        folder = sealed.removesuffix("bundle")
        result = f"{folder}result"
        match what:
            case "proof" | "bundle":
                name = f"{folder}{'result' if what == 'proof' else 'bundle'}"
                files = git(clone, "ls-tree", name)
                data = git(clone, "show", f"{name}:{what}.json").replace("1", "2", 1)
                blob = git(clone, "hash-object", "-w", "--stdin", given=data)
                old = git(clone, "rev-parse", f"{name}:{what}.json")
                tree = git(clone, "mktree", given=files.replace(old, blob) + "\n")
                message = git(clone, "log", "-1", "--format=%B", name)
                made = git(clone, "commit-tree", "-p", f"{name}^", "-m", message, tree)
            case "trailer":
                name, message = result, git(clone, "log", "-1", "--format=%B", result)
                message = message.replace("succeeded", "failed")
                made = git(
                    clone, "commit-tree", "-p", f"{name}^", "-m", message, f"{name}^{{tree}}"
                )
            case "claim":
                name = f"{folder}claims/{'ab' * 32}"
                made = git(clone, "rev-parse", f"{folder}job")
            case _:
                name = f"{folder}approved"
                made = git(clone, "rev-parse", result)
        git(clone, "update-ref", name, made)
        found = self.checked(mesh, clone)
        assert [one.ref for one in found.findings] == [name]


class TestWhatStopsAMirror:
    def test_a_second_bridge_of_one_repository(self, mesh, repo):
        async def twice():
            async with serving(repo, git_program.mesh, takes_jobs=False):
                await mirrored(repo)

        with pytest.raises(Held, match="another process serves"):
            mesh.run(twice())

    def test_a_log_that_was_restored_from_an_older_copy(self, mesh, repo):
        mesh.run(submitted(1))
        mesh.run(mirrored(repo))

        async def pretend():
            folder = bridge_folder.BridgeFolder(repo)
            folder.store(git_program.mesh.id, Cursor(1_000, "blake3:" + "0" * 64))
            await mirrored(repo)

        with pytest.raises(LogReplaced, match="another record at 1,000"):
            mesh.run(pretend())

    def test_a_repository_of_another_mesh(self, mesh, repo):
        mesh.run(mirrored(repo))

        async def pretend():
            bridge_folder.BridgeFolder(repo).store("abcdefghijklmnop", Cursor())
            await mirrored(repo)

        with pytest.raises(Misconfigured, match="shows the mesh abcdefghijklmnop"):
            mesh.run(pretend())

    def test_a_folder_that_is_no_repository(self, mesh, tmp_path):
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "a.txt").write_text("a")
        with pytest.raises(Misconfigured, match="is not a Git repository"):
            mesh.run(mirrored(tmp_path / "notes"))


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_job_that_may_have_left_the_log_stays_when_everything_is_compared(
    mesh, repo, is_partial, monkeypatch
):
    mesh.run(submitted(7))
    mesh.run(mirrored(repo))
    (commit, *_) = refs(repo).values()
    old = f"refs/gatos/jobs/{'ab' * 32}/job"
    git(repo, "update-ref", old, commit)
    if is_partial:  # as of a replica that began with a snapshot, and there is no archive
        monkeypatch.setattr(Tree, "base", property(lambda _: 1, lambda *_: None), raising=False)
    assert mesh.run(mirrored(repo, again=True)) == (0 if is_partial else 1)
    assert (old in refs(repo)) == is_partial
