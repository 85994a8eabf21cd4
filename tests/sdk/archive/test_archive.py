"""An archive in a program, and on the command line, without its mesh."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from antiphon.errors import Misconfigured, Rejected
from antiphon.interfaces.cli.application import make_app
from antiphon.interfaces.cli.shared.story_rows import find_archived
from antiphon.sdk.archive.archives import has_archive, open_archive
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.proofs.bundles import open_bundle
from tests.runtime.archive.archived_meshes import an_archived_mesh
from tests.runtime.meshes import KIND, call


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A state directory of nothing but an archive: two jobs that ended, one that has not."""
    home = tmp_path_factory.mktemp("home")

    async def make() -> SimpleNamespace:
        async with an_archived_mesh(home / "archive") as archived:
            jobs = await archived.work(1, 2)
            archived.worker.drain()
            waiting = (await call(archived.node.session, 3)).id
            await archived.archive()
            owner = archived.mesh.owner.did
            return SimpleNamespace(home=home, jobs=jobs, waiting=waiting, owner=owner)

    return asyncio.run(make())


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    monkeypatch.delenv("ANTIPHON_ARCHIVE", raising=False)


async def test_a_job_is_found_by_its_first_digits_and_proved(archive):
    async with open_archive(archive.home / "archive") as opened:
        for job in archive.jobs:
            key = await opened.find(job[:10].upper())
            assert key.name == job
            report = open_bundle(await opened.export(key), owner=archive.owner)
            assert report.job.outcome == "succeeded"


async def test_what_is_not_there_or_has_not_ended_is_told(archive):
    async with open_archive(archive.home / "archive") as opened:
        with pytest.raises(Rejected, match="nothing in the archive"):
            await opened.find("0" * 64)
        with pytest.raises(Rejected, match="has not ended"):
            await opened.report(await opened.find(archive.waiting))
    with pytest.raises(Misconfigured, match="no archive"):
        async with open_archive(archive.home / "elsewhere"):
            pass


async def test_jobs_that_ended_are_listed_newest_first(archive):
    async with open_archive(archive.home / "archive") as opened:
        assert {job.id for job in await opened.jobs()} == set(archive.jobs)
        assert len(await opened.jobs(limit=1)) == 1
        assert [job.kind for job in await opened.jobs(kind="test")] == [KIND] * 2
        assert await opened.jobs(kind="tes") == []


async def test_the_index_is_kept_grows_and_is_built_again_if_it_is_of_something_else(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "mesh.json").write_text("{}")
    async with an_archived_mesh(tmp_path / "one") as archived:
        (first,) = await archived.work(1)
        await archived.archive()
        for _ in range(2):
            async with open_archive(tmp_path / "one", home=home) as opened:
                assert (await opened.find(first)).name == first
        (second,) = await archived.work(2)
        await archived.archive()
        async with open_archive(tmp_path / "one", home=home) as opened:
            assert (await opened.find(second)).name == second
    async with an_archived_mesh(tmp_path / "two") as other:
        (third,) = await other.work(3)
        await other.archive()
    async with open_archive(tmp_path / "two", home=home) as opened:
        assert (await opened.find(third)).name == third
        with pytest.raises(Rejected):
            await opened.find(second)
    (home / "archive-index.db").write_bytes(b"not a database, and long enough to be read as one")
    async with open_archive(tmp_path / "two", home=home) as opened:
        assert (await opened.find(third)).name == third


async def test_a_job_that_is_not_on_the_log_is_looked_for_in_the_archive(archive):
    mesh = SimpleNamespace(home=SimpleNamespace(path=archive.home))
    gone = Rejected("no such job", reason="no_job")
    report, data = await find_archived(mesh, archive.jobs[0][:8], gone)
    assert report.job.id == archive.jobs[0] == open_bundle(data).job.id
    with pytest.raises(Rejected, match="no such job"):
        await find_archived(mesh, "0" * 64, gone)
    several = Rejected("several jobs", reason="ambiguous")
    with pytest.raises(Rejected, match="several"):
        await find_archived(mesh, archive.jobs[0], several)
    assert not await has_archive(archive.home / "elsewhere")


async def test_a_handle_finds_the_result_of_a_job_that_only_the_archive_has(archive, monkeypatch):
    """Its mesh is another one here: nothing of the job is on its log."""
    async with Mesh.open(engine="memory") as mesh:
        home = SimpleNamespace(path=archive.home)
        monkeypatch.setattr(type(mesh.connection), "home_of_files", home)
        assert await mesh.job(KIND, archive.jobs[0]).result() == 1
        handle = mesh.job(archive.jobs[1][:12])
        assert (await handle.end()).job.outcome == "succeeded"
        assert (handle.kind, handle.id) == (KIND, archive.jobs[1])
        for missing in ((KIND, "0" * 64), ("other.kind", archive.jobs[0]), (KIND, archive.waiting)):
            with pytest.raises(Rejected, match="no job"):
                await mesh.job(*missing).result()


def typed(*words: str, capsys) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        make_app(words[0])(list(words))
    return ended.value.code, capsys.readouterr().out


def test_commands_read_an_archive_without_a_mesh(archive, capsys, tmp_path):
    folder = str(archive.home / "archive")
    code, said = typed("archive", "status", "--from", folder, "--json", capsys=capsys)
    assert code == 0
    status = json.loads(said)
    assert status["sealed_by"] == archive.owner
    code, said = typed(
        "archive", "verify", "--from", folder, "--owner", archive.owner, capsys=capsys
    )
    assert code == 0
    assert "this archive is whole" in said
    bundle = tmp_path / "bundle.json"
    find = ("archive", "find", archive.jobs[0][:8], "--from", folder, "-o", str(bundle))
    code, said = typed(*find, capsys=capsys)
    assert code == 0
    assert "succeeded" in said
    assert open_bundle(bundle.read_bytes()).job.id == archive.jobs[0]
    home = str(archive.home)
    code, said = typed("verify", archive.jobs[1][:8], "--home", home, capsys=capsys)
    assert code == 0
    assert "this bundle is valid" in said
    code, said = typed("jobs", "--archived", "--home", home, "--json", capsys=capsys)
    assert code == 0
    assert {job["job"] for job in json.loads(said)["jobs"]} == set(archive.jobs)
