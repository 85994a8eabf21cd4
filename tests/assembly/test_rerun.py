"""A command run again elsewhere: what agrees with the worker's word, and what does not."""

from types import SimpleNamespace

import pytest

from antiphon.errors import Rejected
from antiphon.interfaces.cli.shared.rerun import in_words
from antiphon.sdk.proofs.rerun import rerun
from tests.runtime.sandboxed import a_mesh_with_commands, ran, require_sandbox, shell, stored

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _sandbox():
    require_sandbox()


async def report_of(mesh, ended):
    """What a bundle of this job would show."""
    view = await mesh.connection.session.read_lane(ended.job.kind, ended.job.id)
    opened = view.opened_at(ended.job.ended_seq)
    return SimpleNamespace(
        control=mesh.connection.session.control,
        job=view.lane.job,
        lane=[(judged.opened, judged.verdict) for judged in view.history],
        completion=opened.op if opened.op.type_name() == "job.complete" else None,
    )


async def test_the_same_command_gives_the_same_bytes():
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, "echo out; echo x > made; exit 3", outputs=["made"])
        report = await report_of(mesh, ended)
    found = await rerun(report)
    assert found.is_same
    assert found.agreed == ("stdout", "stderr", "made")
    assert (found.exit_then, found.exit_now, found.same_program) == (3, 3, True)
    assert found.isolation.level == "sandbox"
    assert any("same exit code: 3" in one for one in in_words(found))


async def test_what_depends_on_the_moment_differs_and_says_so():
    async with a_mesh_with_commands() as mesh:
        script = "date +%N; n=$(date +%N); touch made-$n; exit 0"
        ended = await shell(mesh, script, outputs=["made-*"])
        report = await report_of(mesh, ended)
    found = await rerun(report)
    assert not found.is_same
    assert found.differed == ("stdout",)
    assert (len(found.missing), len(found.further)) == (1, 1)
    assert any("does not mean that the worker lied" in one for one in in_words(found))


async def test_inputs_come_from_files_of_any_name_or_from_the_mesh(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "whatever").write_text("data\n")
    async with a_mesh_with_commands() as mesh:
        given = await stored(mesh, tmp_path / "files" / "whatever", "in.txt")
        ended = await ran(mesh, "cat", "in.txt", inputs=[given])
        report = await report_of(mesh, ended)
    assert (await rerun(report, inputs=tmp_path / "files")).is_same
    with pytest.raises(Rejected, match=r"in\.txt"):
        await rerun(report)


async def test_a_handlers_job_is_not_run_again():
    from antiphon import Mesh

    mesh = Mesh.open(engine="memory")

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    async with mesh, mesh.worker():
        handle = await add.submit(2, 3)
        report = await report_of(mesh, await handle.end())
    with pytest.raises(Rejected, match="only commands can be run again"):
        await rerun(report)
