"""Artifacts as a program sees them: kept, listed, fetched, and compared with a bundle."""

from types import SimpleNamespace as Shown

import pytest

from antiphon import Mesh, Rejected
from antiphon.sdk.artifacts import namespace as artifacts
from tests.runtime.by_hand import called, completed

KIND = "test.files"
BIG = b"\xff" * 100_000


async def a_job(mesh, tmp_path, contents):
    """A finished job that wrote these files."""
    outputs = []
    for name, data in contents.items():
        (tmp_path / "source").write_bytes(data)
        outputs.append(await mesh.artifacts.keep(tmp_path / "source", name))
    job = await completed(mesh.connection.session, mesh.connection.session, KIND, *outputs)
    return mesh.job(KIND, job.id)


async def test_what_a_job_wrote_is_listed_and_fetched(tmp_path):
    async with Mesh.open(engine="memory") as mesh:
        handle = await a_job(mesh, tmp_path, {"notes.txt": b"hello", "logs/data.bin": BIG})
        listed = await mesh.artifacts.list([handle])
        assert [(one.output.name, one.where) for one in listed] == [
            ("notes.txt", "record"),
            ("logs/data.bin", "mesh"),
        ]
        text, data = await handle.outputs()
        await mesh.artifacts.fetch(data, tmp_path / "data", of=handle)
        assert (tmp_path / "data").read_bytes() == BIG
        written = await mesh.artifacts.fetch_all(handle, tmp_path / "all")
        assert {path.relative_to(tmp_path / "all").as_posix() for _, path in written} == {
            "notes.txt",
            "logs/data.bin",
        }
        assert (tmp_path / "all" / "logs" / "data.bin").read_bytes() == BIG
        assert (await artifacts.output_named(handle, "notes.txt")) == text


async def test_bytes_that_are_gone_are_listed_as_gone(tmp_path):
    async with Mesh.open(engine="memory") as mesh:
        handle = await a_job(mesh, tmp_path, {"data.bin": BIG})
        (output,) = await handle.outputs()
        await mesh.connection.engine.blobs.remove(output.hash)
        (listed,) = await mesh.artifacts.list([handle])
        assert listed.where == "gone"
        with pytest.raises(Rejected) as caught:
            await mesh.artifacts.fetch(output, tmp_path / "t")
        assert caught.value.reason == "no_blob"


async def test_a_job_that_goes_on_has_no_outputs_yet():
    async with Mesh.open(engine="memory") as mesh:
        job = await called(mesh.connection.session, KIND)
        with pytest.raises(Rejected, match="has not ended"):
            await mesh.job(KIND, job.id).outputs()


async def test_an_output_that_is_not_there_is_said_with_those_that_are(tmp_path):
    async with Mesh.open(engine="memory") as mesh:
        handle = await a_job(mesh, tmp_path, {"notes.txt": b"hello"})
        with pytest.raises(Rejected, match=r"it has 'notes\.txt'"):
            await artifacts.output_named(handle, "note.txt")


async def test_one_name_that_leads_out_writes_nothing_at_all(tmp_path):
    async with Mesh.open(engine="memory") as mesh:
        handle = await a_job(mesh, tmp_path, {"good": b"good", "../evil": b"evil"})
        with pytest.raises(Rejected):
            await mesh.artifacts.fetch_all(handle, tmp_path / "into")
        assert not (tmp_path / "into").exists()
        assert not (tmp_path / "evil").exists()


@pytest.mark.req("P7")
async def test_files_are_compared_with_what_the_completion_names(tmp_path):
    async with Mesh.open(engine="memory") as mesh:
        handle = await a_job(mesh, tmp_path, {"notes.txt": b"hello", "data.bin": BIG})
        report = Shown(completion=Shown(body=Shown(outputs=await handle.outputs())))
        await mesh.artifacts.fetch_all(handle, tmp_path / "all")
    same = artifacts.compare(report, tmp_path / "all")
    assert [output.name for output in same] == ["notes.txt", "data.bin"]
    (tmp_path / "all" / "notes.txt").unlink()  # the record itself holds it
    assert [output.name for output in artifacts.compare(report, tmp_path / "all")] == ["data.bin"]
    (tmp_path / "all" / "data.bin").write_bytes(BIG[:-1] + b"x")
    with pytest.raises(Rejected, match="not the output of the job") as caught:
        artifacts.compare(report, tmp_path / "all")
    assert caught.value.reason == "artifact"
    (tmp_path / "all" / "data.bin").unlink()
    with pytest.raises(Rejected, match="is not below"):
        artifacts.compare(report, tmp_path / "all")
