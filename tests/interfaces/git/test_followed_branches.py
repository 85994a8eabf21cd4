"""Commits on followed branches: each is a job once, its files are given on, a note says the end."""

import asyncio
import json
import subprocess
import tarfile

import pytest

from antiphon import on
from antiphon.errors import Malformed, Rejected
from antiphon.interfaces.git import note_check
from antiphon.interfaces.git.bridge import Following, serving
from antiphon.interfaces.git.bridge_folder import BridgeFolder
from antiphon.interfaces.git.clone_check import check_clone
from antiphon.interfaces.git.followed_branches import branch_patterns
from antiphon.interfaces.git.push_pace import PushPace
from antiphon.interfaces.git.repository import Repository, open_repository
from antiphon.interfaces.git.source_archive import source_digest, write_source_file
from antiphon.runtime.replica.replica_tree import Tree
from antiphon.sdk.git.pushes import name_of, push_kind
from tests.interfaces.git import git_program
from tests.interfaces.git.git_program import git, mirrored, refs
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes
MAIN = "refs/heads/main"
NOTES = "refs/notes/antiphon"
FOLLOWING = Following(branches=("main",), name="app")


@pytest.fixture(autouse=True)
def in_memory(mesh):
    mesh.use(git_program.mesh)


@pytest.fixture
def repo(tmp_path):
    """A repository with one commit on its branch `main`."""
    path = tmp_path / "app.git"
    git(tmp_path, "init", "--quiet", "--bare", str(path))
    commit(path, tmp_path / "work", "one")
    return path


def commit(repo, work, text):
    """Push another commit to `main`; its id."""
    if not work.exists():
        work.mkdir()
        git(work, "init", "--quiet", "--initial-branch=main")
    (work / "number.txt").write_text(text)
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", text)
    git(work, "push", "--quiet", str(repo), "HEAD:main")
    return git(work, "rev-parse", "HEAD")


@pytest.fixture
def work(tmp_path):
    return tmp_path / "work"


async def followed(repo, rounds=1, following=FOLLOWING):
    """Follow the branches until their jobs have ended; what the looks noticed."""
    noticed = []
    async with serving(repo, git_program.mesh, takes_jobs=False, following=following) as bridge:
        for _ in range(rounds):
            noticed += (await bridge.branches.look()).noticed
        for one in await pushes():
            await git_program.mesh.job(one.kind, one.id).result(timeout=PATIENCE_S)
        await bridge.mirror.catch_up()
    return noticed


async def pushes():
    return await git_program.mesh.jobs(kind="git.push.app")


async def planned():
    """A plan that doubles a number whenever something is pushed."""
    when = on("succeeded", kind="git.push.app")
    await git_program.mesh.plans.put("ci", when, git_program.mesh.bind("shop.double", 21))


async def reacted(count=1):
    """So many jobs that the plan has submitted, when they have ended."""
    async with asyncio.timeout(PATIENCE_S):
        while len(found := await git_program.mesh.jobs(kind="shop.double")) < count:
            await asyncio.sleep(0.05)
    for one in found:
        await git_program.mesh.job(one.kind, one.id).result(timeout=PATIENCE_S)
    return found


def test_a_commit_on_a_followed_branch_is_one_job_however_often_it_is_seen(mesh, repo, work):
    head = git(repo, "rev-parse", "main")
    mesh.run(followed(repo, rounds=3))
    mesh.run(followed(repo))
    (job,) = mesh.run(pushes())
    assert refs(repo)[f"refs/gatos/jobs/{job.id}/pushed"] == head
    assert json.loads(manifest_of(repo, job.id)["args"][0])["args"] == [MAIN, head]
    commit(repo, work, "two")
    git(repo, "update-ref", "refs/heads/other", "main")
    mesh.run(followed(repo))
    assert len(mesh.run(pushes())) == 2, "other branches are not followed"


def test_a_bridge_on_another_copy_of_the_repository_runs_nothing_twice(mesh, repo, tmp_path):
    mesh.run(followed(repo))
    elsewhere = tmp_path / "elsewhere.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), str(elsewhere))
    mesh.run(followed(elsewhere))
    assert len(mesh.run(pushes())) == 1
    assert refs(elsewhere) == refs(repo)


def test_the_files_of_the_commit_are_an_output_that_anyone_can_make_again(mesh, repo, tmp_path):
    mesh.run(followed(repo))
    (job,) = mesh.run(pushes())
    outputs = json.loads(git(repo, "show", f"refs/gatos/jobs/{job.id}/result:outputs.json"))
    (source,) = (one for one in outputs if one["name"] == "source.tar")

    async def made():
        return await source_digest(await open_repository(repo), git(repo, "rev-parse", "main"))

    assert source["hash"] == mesh.run(made())


def test_an_archive_has_what_the_commit_has_and_nothing_else(mesh, repo, work, tmp_path):
    (work / ".gitattributes").write_text("number.txt export-ignore\n")
    (work / "folder").mkdir()
    (work / "folder" / ("long" * 40)).write_text("deep")
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("run.sh")
    head = commit(repo, work, "two")

    async def written():
        repository = await open_repository(repo)
        await write_source_file(repository, head, tmp_path / "source.tar")

    mesh.run(written())
    with (tmp_path / "source.tar").open() as given:
        words = ["git", "get-tar-commit-id"]
        said = subprocess.run(words, stdin=given, check=True, capture_output=True, text=True)
    assert said.stdout.strip() == head
    with tarfile.open(tmp_path / "source.tar") as archive:
        found = {one.name: one for one in archive.getmembers()}
        assert archive.extractfile("number.txt").read() == b"two"
    assert found.keys() == {
        ".gitattributes", "number.txt", "run.sh", "link", f"folder/{'long' * 40}"
    }  # fmt: skip
    assert found["run.sh"].mode == 0o755
    assert found["link"].linkname == "run.sh"


def test_a_note_on_the_commit_says_how_the_job_of_a_plan_ended(mesh, repo, tmp_path):
    head = git(repo, "rev-parse", "main")
    mesh.run(planned())
    mesh.run(followed(repo))
    (job,) = mesh.run(reacted())
    mesh.run(mirrored(repo, name="app"))
    note = dict(line.split(": ", 1) for line in noted(repo, head).splitlines())
    assert (note["Outcome"], note["Kind"], note["Branch"]) == ("succeeded", "shop.double", MAIN)
    assert note["Job-Id"] == f"blake3:{job.id}"
    (push,) = mesh.run(pushes())
    assert note["Push"] == f"blake3:{push.id}"
    assert note["Proof-Of-Execution"].startswith("blake3:")
    assert "Outcome: succeeded" in git(repo, "log", "-1", "--notes=antiphon", head)

    elsewhere = tmp_path / "empty.git"
    mesh.run(mirrored(elsewhere, name="app"))
    assert noted(elsewhere, head) == noted(repo, head), "the same log gives the same notes"
    before = git(repo, "rev-parse", NOTES)
    (repo / "antiphon" / "mirror.json").unlink()
    mesh.run(mirrored(repo, name="app"))
    assert git(repo, "rev-parse", NOTES) == before, "what is noted already is not written again"
    assert "error" not in git(repo, "fsck", "--strict", "--full")


def test_a_mirror_that_is_killed_anywhere_writes_the_same_notes(mesh, repo, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    head = git(repo, "rev-parse", "main")
    mesh.run(planned())
    mesh.run(followed(repo))
    mesh.run(reacted())
    mesh.run(mirrored(repo, name="app"))
    for number, place in enumerate((Repository.store, Repository.update, BridgeFolder.store)):
        elsewhere = tmp_path / f"{number}.git"
        owner = Repository if number < 2 else BridgeFolder
        with monkeypatch.context() as patched:
            patched.setattr(owner, place.__name__, die)
            with pytest.raises(Killed):
                mesh.run(mirrored(elsewhere, name="app"))
        mesh.run(mirrored(elsewhere, name="app"))
        assert noted(elsewhere, head) == noted(repo, head)
        assert git(elsewhere, "rev-parse", NOTES) == git(repo, "rev-parse", NOTES)


def noted(repo, commit):
    return git(repo, "notes", "--ref=antiphon", "show", commit)


def test_a_second_job_of_the_commit_has_its_own_paragraph(mesh, repo):
    head = git(repo, "rev-parse", "main")
    mesh.run(planned())
    mesh.run(followed(repo))
    mesh.run(reacted())
    mesh.run(mirrored(repo, name="app"))
    git(repo, "branch", "again", "main")
    mesh.run(followed(repo, following=Following(branches=("again",), name="app")))
    mesh.run(reacted(2))
    mesh.run(mirrored(repo, name="app"))
    branches = [line for line in noted(repo, head).splitlines() if line.startswith("Branch")]
    assert sorted(branches) == ["Branch: refs/heads/again", f"Branch: {MAIN}"]


def test_what_somebody_wrote_into_the_notes_goes_when_they_are_compared(mesh, repo, work):
    first = git(repo, "rev-parse", "main")
    mesh.run(planned())
    mesh.run(followed(repo))
    mesh.run(reacted())
    mesh.run(mirrored(repo, name="app"))
    honest = noted(repo, first)
    second = commit(repo, work, "two")
    git(repo, "notes", "--ref=antiphon", "add", "-f", "-m", honest.replace("succ", "x"), first)
    git(repo, "notes", "--ref=antiphon", "add", "-m", honest, second)
    assert mesh.run(mirrored(repo, again=True, name="app")) >= 2
    assert noted(repo, first) == honest
    assert git(repo, "notes", "--ref=antiphon", "list", second, ok=False) == ""


def test_a_note_about_a_job_that_may_have_left_the_log_stays(mesh, repo, work, monkeypatch):
    mesh.run(planned())
    mesh.run(followed(repo))
    (job,) = mesh.run(reacted())
    mesh.run(mirrored(repo, name="app"))
    honest = noted(repo, "main")
    old = f"{honest}\n\n{honest.replace(job.id, 'ab' * 32)}"
    git(repo, "notes", "--ref=antiphon", "add", "-f", "-m", old, "main")
    with monkeypatch.context() as patched:  # as of a replica that began with a snapshot
        patched.setattr(Tree, "base", property(lambda _: 1, lambda *_: None), raising=False)
        mesh.run(mirrored(repo, again=True, name="app"))
        assert sorted(noted(repo, "main").split("\n\n")) == sorted(old.split("\n\n"))
    mesh.run(mirrored(repo, again=True, name="app"))
    assert noted(repo, "main") == honest


def test_a_clone_with_its_notes_is_verified_and_a_forged_note_is_found(
    mesh, repo, work, monkeypatch
):
    head = git(repo, "rev-parse", "main")
    mesh.run(planned())
    git(repo, "branch", "again", "main")
    mesh.run(followed(repo, following=Following(branches=("main", "again"), name="app")))
    job, _ = mesh.run(reacted(2))
    seal(mesh, repo, 4)

    def checked():
        async def check():
            return await check_clone(await open_repository(repo), with_sources=True)

        return mesh.run(check())

    found = checked()
    assert (found.verified, found.notes, found.wrong) == (4, 1, 0), found.findings
    honest, at = noted(repo, head), git(repo, "rev-parse", NOTES)
    other = commit(repo, work, "two")
    forgeries = {
        "changed": ("-f", honest.replace("succeeded", "failed"), head),
        "invented": ("-f", f"{honest}\n\n{honest.replace(job.id, 'ab' * 32)}", head),
        "elsewhere": ("-f", honest, other),
        "left out": ("-f", honest.split("\n\n")[0], head),
        "about no job": ("-f", f"{honest}\n\nOutcome: succeeded", head),
    }
    for what, (force, text, on_commit) in forgeries.items():
        git(repo, "notes", "--ref=antiphon", "add", force, "-m", text, on_commit)
        found = checked()
        assert found.wrong, what
        assert all(one.ref.startswith(NOTES) for one in found.findings), found.findings
        git(repo, "update-ref", NOTES, at)
    assert not checked().wrong

    async def other_files(*_):
        return "blake3:" + "0" * 64

    monkeypatch.setattr(note_check, "source_digest", other_files)
    found = checked()
    assert (found.wrong, found.sources) == (2, 0)
    assert "the files that its job stored are not those" in found.findings[0].problem


def seal(mesh, repo, jobs):
    """Let time pass until so many jobs have a bundle."""
    mesh.run(asyncio.sleep(120))
    mesh.run(mirrored(repo, name="app"))
    assert sum(name.endswith("/bundle") for name in refs(repo)) >= jobs


def test_a_branch_with_a_strange_name_keeps_no_other_from_being_followed(mesh, repo):
    head = git(repo, "rev-parse", "main")
    names = (b"a\xff", "a\u2028b c".replace(" ", "").encode(), "b\u202e".encode(), b"c" * 230)
    for name in names:
        words = ["git", "-C", repo, "update-ref", b"refs/heads/" + name, head]
        subprocess.run(words, check=True)
    (repo / "refs" / "heads" / "d").write_text("ab" * 20 + "\n")  # no such object
    mesh.run(followed(repo, following=Following(branches=("*",), name="app")))
    (job,) = mesh.run(pushes())
    assert json.loads(manifest_of(repo, job.id)["args"][0])["args"] == [MAIN, head]


def test_a_push_that_is_refused_is_tried_again_behind_all_others(mesh, repo, monkeypatch):
    from antiphon.sdk.git.pushes import Pushes

    for name in ("a", "b"):
        git(repo, "branch", name, "main")
    tried = []
    real = Pushes.submit

    async def submit(self, job):
        ref = json.loads(job.manifest.args[0])["args"][0]
        tried.append(ref)
        if ref.endswith("/a"):
            raise Rejected("not this one", reason="policy")
        await real(self, job)

    monkeypatch.setattr(Pushes, "submit", submit)

    async def looked():
        following = Following(branches=("*",), name="app")
        async with serving(repo, git_program.mesh, takes_jobs=False, following=following) as bridge:
            bridge.branches._pace = PushPace(each=2)  # room for the refused one and one other
            await bridge.branches.look()
            bridge.branches._pace = PushPace(each=1)
            await bridge.branches.look()

    mesh.run(looked())
    assert len(mesh.run(pushes())) == 2
    assert tried.count("refs/heads/b") == tried.count(MAIN) == 1


def manifest_of(repo, job):
    return json.loads(git(repo, "show", f"refs/gatos/jobs/{job}/job:job.yaml"))


def test_a_job_for_a_commit_that_was_not_pushed_fails(mesh, repo):
    from antiphon.sdk.git.pushes import Pushes

    async def pretend():
        forged = Pushes(git_program.mesh, "git.push.app")
        async with serving(repo, git_program.mesh, takes_jobs=False, following=FOLLOWING):
            job = forged.job(MAIN, "ab" * 20, b"tree\n\nnobody pushed this")
            await forged.submit(job)
            handle = git_program.mesh.job("git.push.app", job.id)
            with pytest.raises(Exception, match=f"did not come to {MAIN}"):
                await handle.result(timeout=PATIENCE_S)

    mesh.run(pretend())


def test_more_pushes_than_a_minute_allows_wait(mesh, repo):
    for number in range(3):
        git(repo, "branch", f"b{number}", "main")

    async def looked():
        following = Following(branches=("b*",), name="app")
        async with serving(repo, git_program.mesh, takes_jobs=False, following=following) as bridge:
            bridge.branches._pace = PushPace(each=2)
            return await bridge.branches.look()

    found = mesh.run(looked())
    assert (len(found.noticed), found.waiting) == (2, 1)


def test_a_repositorys_name_is_a_word_of_a_kind(tmp_path):
    for folder, word in {
        "app.git": "app",
        "My App.git": "my-app",
        "x/.git": "x",
        "ä.git": "repository",
        "a" * 90 + ".git": "a" * 63,
    }.items():
        assert name_of(tmp_path / folder) == word
        assert push_kind(word) == f"git.push.{word}"
    for wrong in ("", "a.b", "A", "a" * 64, "-a"):
        with pytest.raises(Malformed):
            push_kind(wrong)
    assert branch_patterns(["main", "release/*"]) == (MAIN, "refs/heads/release/*")
    for wrong in ("", "a b", "x" * 300, "a\nb"):
        with pytest.raises(Malformed):
            branch_patterns([wrong])
