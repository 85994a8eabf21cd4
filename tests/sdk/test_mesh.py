"""The SDK in one process: what a program that imports `antiphon` sees."""

import asyncio
import traceback
from importlib import metadata
from pathlib import Path

import pytest

import antiphon
from antiphon import Call, JobContext, JobFailed, Malformed, Mesh, Misconfigured
from antiphon.runtime.caller import submission
from antiphon.sdk.manifests.authored_manifest import again, job_id, read_manifest
from tests.patience import PATIENCE_S

PACKAGE = Path(antiphon.__file__).parent


def test_every_public_name_can_be_imported():
    assert set(antiphon.__all__) == set(antiphon._WHERE)
    for name in antiphon.__all__:
        assert getattr(antiphon, name).__name__ == name
    with pytest.raises(AttributeError):
        antiphon.no_such_name  # noqa: B018


def test_the_package_knows_its_version():
    assert antiphon.__version__ == metadata.version("antiphon")
    assert "__version__" in dir(antiphon)


async def test_a_task_submitted_is_answered_by_the_worker():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    @mesh.task("example.shout")
    def shout(text: str, *, times: int = 1) -> str:
        return text.upper() * times

    async with mesh, mesh.worker():
        assert await (await add.submit(2, 3)).result(timeout=PATIENCE_S) == 5
        assert await (await shout.submit("ho", times=2)).result(timeout=PATIENCE_S) == "HOHO"
        by_name = await mesh.submit("example.add", 4, b=5)
        assert await by_name.result(timeout=PATIENCE_S) == 9
        assert [line.op for line in await by_name.story()] == [
            "job.schedule",
            "job.claim",
            "job.complete",
        ]
    assert await add(1, 1) == 2, "called directly it is just the function"


async def test_between_a_submit_and_the_writer_stand_two_functions(monkeypatch):
    mesh, seen = Mesh.open(engine="memory"), []
    write_one = submission.write_one

    async def watched(*given):
        stack = traceback.extract_stack()
        ours = [frame.name for frame in stack if PACKAGE in Path(frame.filename).parents]
        seen.append(ours[ours.index("submit") :])
        return await write_one(*given)

    monkeypatch.setattr(submission, "write_one", watched)
    async with mesh:
        await mesh.submit("example.add", 2, 3)
    assert seen == [["submit", "submit", "submit"]], "of the mesh, of many calls, of the runtime"


async def test_a_mesh_says_what_holds_on_it_and_how_far_its_log_is():
    async with Mesh.open(engine="memory") as mesh:
        before = await mesh.connection.session.log.last()
        assert mesh.authority.rules.attempts == 3
        assert mesh.authority.announced is None
        assert mesh.did.startswith("did:key:")
        assert mesh.alias == "owner"
        await mesh.submit("example.add", 2, 3)
        assert (await mesh.connection.session.log.last()).seq > before.seq


def test_the_same_manifest_again_is_another_job():
    job = read_manifest("{command: [echo, hello], timeout: 5}")
    another = again(job)
    assert another.command == job.command
    assert len({job_id(job), job_id(another), job_id(again(job))}) == 3


async def test_a_handle_explains_its_job_and_hears_it():
    mesh, may_end = Mesh.open(engine="memory"), asyncio.Event()

    @mesh.task("example.slow")
    async def slow(ctx: JobContext) -> None:
        while not may_end.is_set():
            ctx.progress(0.4, "frame 12 of 30")
            await asyncio.sleep(0.02)

    async with mesh:
        handle = await slow.submit()
        told, cards = await handle.explain(wait_s=0.01)
        assert (told.state, [wait.what.value for wait in told.waits_for]) == ("pending", ["worker"])
        assert [card for card in cards if card.role == "worker"] == []
        async with asyncio.timeout(PATIENCE_S), handle.listen() as words, mesh.worker():
            said = await anext(words)
            assert (said.done, said.note) == (0.4, "frame 12 of 30")
            may_end.set()
            await handle.result()


async def test_no_argument_of_a_task_is_taken_by_the_one_who_calls_it():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.named")
    async def named(**given: object) -> object:
        return given

    async with mesh, mesh.worker():
        by_name = await mesh.submit("example.named", kind="a", self="b")
        assert await by_name.result(timeout=PATIENCE_S) == {"kind": "a", "self": "b"}
        by_value = await mesh.submit(Call.of("example.named", [], {"options": 1, "kind": "a"}))
        assert await by_value.result(timeout=PATIENCE_S) == {"options": 1, "kind": "a"}


async def test_a_task_runs_anew_each_time_unless_it_is_once_only():
    mesh = Mesh.open(engine="memory")
    runs = []

    @mesh.task("example.roll")
    async def roll() -> int:
        runs.append("roll")
        return len(runs)

    @mesh.task("example.build", once=True)
    async def build(what: str) -> str:
        runs.append(what)
        return what

    async with mesh, mesh.worker():
        first, second = await roll.submit(), await roll.submit()
        assert first.id != second.id
        assert {
            await first.result(timeout=PATIENCE_S),
            await second.result(timeout=PATIENCE_S),
        } == {1, 2}
        one, again = await build.submit("a"), await build.submit("a")
        assert (one.id, one.is_new, again.is_new) == (again.id, True, False)
        assert await again.result(timeout=PATIENCE_S) == "a"
        assert runs.count("a") == 1


async def test_a_failed_job_raises_what_went_wrong_unwrapped():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.fail", attempts=1)
    async def fail() -> None:
        raise ValueError("no such luck")

    with pytest.raises(JobFailed, match="ValueError: no such luck") as failed:
        async with mesh, mesh.worker():
            await (await fail.submit()).result(timeout=PATIENCE_S)
    assert failed.value.reason == "failed"
    assert "antiphon show" in failed.value.hint


async def test_a_handler_that_asks_for_its_context_gets_it():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.who")
    async def who(*, ctx: JobContext) -> list[object]:
        return [ctx.kind, ctx.job_id, ctx.attempt, len(ctx.fence)]

    async with mesh, mesh.worker():
        handle = await who.submit()
        assert await handle.result(timeout=PATIENCE_S) == ["example.who", handle.id, 1, 16]


async def test_a_job_past_its_timeout_fails():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.slow", timeout=1, attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    async with mesh, mesh.worker():
        with pytest.raises(JobFailed, match="TimeoutError"):
            await (await slow.submit()).result(timeout=PATIENCE_S)


async def test_mistakes_are_explained():
    mesh = Mesh.open(engine="memory")
    with pytest.raises(Malformed, match="not a kind"):
        mesh.task("Not A Kind")

    @mesh.task("example.one")
    async def one(value: object) -> object:
        return value

    with pytest.raises(Misconfigured, match="not open"):
        await one.submit(1)
    with pytest.raises(Misconfigured, match="two handlers"):
        mesh.task("example.one")(one)
    async with mesh:
        with pytest.raises(TypeError, match="cannot be written as JSON"):
            await one.submit(object())
    async with Mesh.open(engine="memory") as empty:
        with pytest.raises(Misconfigured, match="no task is registered"):
            async with empty.worker():
                pass
