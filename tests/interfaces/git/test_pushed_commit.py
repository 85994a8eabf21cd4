"""Commits that are pushed as jobs: what makes one a job, and what is refused, in words."""

import base64

import pytest
from msgspec.structs import replace

from antiphon.errors import Malformed, Rejected
from antiphon.interfaces.git.push_pace import PushPace
from antiphon.interfaces.git.push_service import PushService
from antiphon.interfaces.git.pushed_commit import Pushed, read_pushed
from antiphon.sdk.git.pushed_jobs import PushedJobs
from antiphon.sdk.git.ssh_signature import did_of_ssh_key
from tests.interfaces.git import git_program
from tests.interfaces.git.git_program import git, mirrored, refs, trailers
from tests.interfaces.git.signed_commits import Writer, add_manifest, make_key

pytestmark = pytest.mark.processes
MESH = "abcdefghijklmnop"
REF = "refs/gatos/jobs/new/example.add"


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def writer(tmp_path, key):
    return Writer(tmp_path / "work", key)


def raw(folder, type_, name):
    """An object's bytes."""
    import subprocess

    words = ["git", "-C", folder, "cat-file", type_, name]
    return subprocess.run(words, check=True, capture_output=True).stdout


def pushed(writer, ref=REF):
    oid = git(writer.folder, "rev-parse", "HEAD")
    objects = {
        "commit": raw(writer.folder, "commit", oid),
        "tree": raw(writer.folder, "tree", f"{oid}^{{tree}}"),
        "job": raw(writer.folder, "blob", f"{oid}:job.yaml"),
    }
    return Pushed(ref=ref, oid=oid, **objects)


def test_a_signed_commit_with_a_manifest_is_a_job(writer, key):
    oid = writer.commit(add_manifest(2, 3))
    job = read_pushed(pushed(writer), "sha1", MESH)
    assert job.kind == "example.add"
    assert job.signer == did_of_ssh_key(key.with_suffix(".pub").read_text())
    (commit,) = job.manifest.inputs
    assert (commit.name, commit.size) == (f"pushed-{oid}.commit", len(job.commit))
    assert b"gpgsig -----BEGIN SSH SIGNATURE-----" in job.commit, "the signature is kept"
    again = read_pushed(pushed(writer, ref=f"{REF}/another"), "sha1", MESH)
    assert again.id == job.id, "the same commit is the same job"


@pytest.mark.parametrize(
    "message, words",
    [
        ("a job", "does not say its kind"),
        ("a job\n\nKind: other", "says Kind: other"),
        ("a job\n\nKind: example.add\n\nand more", "does not say its kind"),
        ("a job\n\nKind: example.add\nMesh: another", "says Mesh: another"),
    ],
)
def test_the_signer_says_which_kind_it_is_meant_as(writer, message, words):
    writer.commit(add_manifest(2, 3), message)
    with pytest.raises(Malformed, match=words):
        read_pushed(pushed(writer), "sha1", MESH)


def test_an_unsigned_commit_is_refused_with_what_to_type(tmp_path):
    writer = Writer(tmp_path / "unsigned")
    writer.commit(add_manifest(2, 3))
    with pytest.raises(Malformed, match="is not signed") as refused:
        read_pushed(pushed(writer), "sha1", MESH)
    assert "gpg.format ssh" in refused.value.hint


@pytest.mark.parametrize("what", ["commit", "tree", "job", "message", "signature"])
def test_no_byte_that_was_signed_can_be_another(writer, what):
    writer.commit(add_manifest(2, 3))
    honest = pushed(writer)
    match what:
        case "job":
            forged = {"job": honest.job.replace(b"2", b"4")}
        case "tree":
            forged = {"tree": honest.tree[:-1] + b"x"}
        case "commit":
            forged = {"commit": honest.commit + b"x"}
        case "message":
            forged = rehashed(honest.commit.replace(b"a job", b"a lie"))
        case _:
            twice = honest.commit.replace(b"gpgsig ", b"gpgsig x\ngpgsig ", 1)
            forged = rehashed(twice)
    with pytest.raises(Malformed):
        read_pushed(replace(honest, **forged), "sha1", MESH)


def rehashed(commit):
    """A changed commit under its new id."""
    from antiphon.interfaces.git.objects import object_id

    return {"commit": commit, "oid": object_id("sha1", "commit", commit)}


def test_a_link_in_place_of_the_manifest_is_no_manifest(writer):
    writer.commit(add_manifest(2, 3))
    (writer.folder / "job.yaml").unlink()
    (writer.folder / "job.yaml").symlink_to("/etc/passwd")
    git(writer.folder, "add", "job.yaml")
    git(writer.folder, "commit", "-q", "-S", "-m", "a job\n\nKind: example.add")
    with pytest.raises(Malformed, match="has no file"):
        read_pushed(pushed(writer), "sha1", MESH)


def test_a_manifest_with_a_mistake_is_explained_as_everywhere(writer):
    writer.commit("command: [a]\ntimeout: soon\n")
    with pytest.raises(Malformed, match="line 2"):
        read_pushed(pushed(writer), "sha1", MESH)
    writer.commit(add_manifest(2, 3, kind="other"))
    with pytest.raises(Malformed, match="names the handler @other"):
        read_pushed(pushed(writer), "sha1", MESH)
    with pytest.raises(Malformed, match="written by the bridge alone"):
        read_pushed(pushed(writer, ref="refs/gatos/jobs/x"), "sha1", MESH)


def test_a_party_has_a_pace():
    pace = PushPace(each=2)
    for _ in range(2):
        pace.submit("a", 0.0)
    with pytest.raises(Rejected, match="2 jobs a minute"):
        pace.submit("a", 59.0)
    pace.submit("b", 59.0)
    pace.submit("a", 61.0)


class TestTheService:
    @pytest.fixture(autouse=True)
    def in_memory(self, mesh):
        mesh.use(git_program.mesh)

    def test_a_push_is_one_job_however_often_it_is_asked_for(self, mesh, writer, tmp_path):
        import msgspec

        repo = tmp_path / "jobs.git"
        manifest = add_manifest(7, kind="shop.double")
        oid = writer.commit(manifest, "a job\n\nKind: shop.double")
        mesh.run(mirrored(repo))
        git(writer.folder, "push", "--quiet", str(repo), "HEAD:refs/heads/main")
        given = pushed(writer, ref="refs/gatos/jobs/new/shop.double")
        plain = {name: getattr(given, name) for name in given.__struct_fields__}
        plain |= {
            name: base64.b64encode(value).decode()
            for name, value in plain.items()
            if isinstance(value, bytes)
        }

        async def ask(*lines):
            from antiphon.interfaces.git.repository import open_repository

            repository = await open_repository(repo)
            service = PushService(repository, PushedJobs(git_program.mesh), PushPace())
            return [await service.answer(line) for line in lines]

        asked = [msgspec.json.encode({"do": do, "pushed": plain}) for do in ("check", "submit")]
        checked, first, second = mesh.run(ask(*asked, asked[1]))
        assert checked == {"ok": True, "job": first["job"]}
        assert (first["is_new"], second["is_new"]) == (True, False)
        mesh.run(git_program.mesh.job("shop.double", first["job"]).result())
        mesh.run(mirrored(repo))
        folder = f"refs/gatos/jobs/{first['job']}/"
        assert refs(repo)[f"{folder}pushed"] == oid
        assert trailers(repo, f"{folder}job")["Pushed-Commit"] == oid
        assert f"{folder}result" in refs(repo)
        mesh.run(mirrored(repo, again=True))
        assert refs(repo)[f"{folder}pushed"] == oid, "it follows from the log, too"

        junk = mesh.run(ask(b"junk\n", b"{}", b'{"do": "submit", "pushed": {"ref": "x"}}'))
        assert [one["ok"] for one in junk] == [False] * 3
