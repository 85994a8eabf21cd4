"""A forgotten job: every reader says by whom and when, and shows nothing of it."""

from collections.abc import AsyncGenerator

import pytest

from antiphon import Mesh
from antiphon.errors import JobFailed, Rejected
from antiphon.sdk.archive.erasure import forget_job, forgotten_jobs, leaves_log_ms
from antiphon.sdk.dead_letters import letters_of
from antiphon.sdk.proofs.bundles import bundle_bytes
from antiphon.sdk.proofs.bundles import job_key as lane_key
from tests.interfaces.http.dashboard_browser import signed_in

SECRET = "a name of somebody"


def a_mesh() -> tuple[Mesh, object]:
    mesh = Mesh.open(engine="memory")

    @mesh.task("people.look_up")
    async def look_up(name: str) -> str:
        if name.startswith("not"):
            raise ValueError(f"nobody is called {name}")
        return f"found {name}"

    return mesh, look_up


async def test_programs_are_told_who_had_it_forgotten_and_nothing_of_it():
    mesh, look_up = a_mesh()
    async with mesh, mesh.worker():
        handle = await look_up.submit(SECRET)
        assert await handle.result() == f"found {SECRET}"
        order = await forget_job(mesh, handle.kind, handle.id)
        assert order.by == mesh.did
        later = mesh.job(handle.kind, handle.id)
        for ask in (later.result, later.end, later.story, later.outputs, later.lane):
            with pytest.raises(Rejected, match=f"forgotten by the order of {mesh.did} on 20") as no:
                await ask()
            assert no.value.reason == "erased"
            assert SECRET not in str(no.value)
        state = await later.state()
        assert state.outcome == "succeeded", "that it ran stays known"
        assert set(await forgotten_jobs(mesh, [state])) == {handle.id}
        async with mesh.replica() as replica:
            with pytest.raises(Rejected, match="forgotten"):
                await bundle_bytes(replica, lane_key(handle.kind, handle.id))


async def test_who_submits_it_again_is_not_given_what_was_forgotten():
    mesh, look_up = a_mesh()
    async with mesh, mesh.worker():
        first = await look_up.options(once=True).submit(SECRET)
        await first.result()
        await forget_job(mesh, first.kind, first.id)
        again = await look_up.options(once=True).submit(SECRET)
        assert (again.id, again.is_new) == (first.id, False)
        for ask in (again.result, again.outputs):
            with pytest.raises(Rejected, match="forgotten by the order") as no:
                await ask()
            assert SECRET not in str(no.value)


async def test_the_first_order_stays_in_force():
    """A newer one would give what was forgotten to a job that was submitted in between."""
    mesh, look_up = a_mesh()
    async with mesh, mesh.worker():
        job = await look_up.submit(SECRET)
        await job.result()
        first = await forget_job(mesh, job.kind, job.id)
        assert await forget_job(mesh, job.kind, job.id) == first


async def test_the_parts_of_a_forgotten_stream_are_not_shown():
    mesh, _ = a_mesh()

    @mesh.task("people.list", once=True)
    async def people(name: str) -> AsyncGenerator[str]:
        for number in range(3):
            yield f"{name} {number}"

    async with mesh, mesh.worker():
        first = await people.submit(SECRET)
        assert [one async for one in first.stream()] == [
            f"{SECRET} {number}" for number in range(3)
        ]
        await forget_job(mesh, first.kind, first.id)
        for handle in (mesh.job(first.kind, first.id), await people.submit(SECRET)):
            with pytest.raises(Rejected, match="forgotten by the order"):
                await anext(handle.stream())


async def test_a_forgotten_job_is_not_retried_with_what_it_was_given():
    mesh, look_up = a_mesh()
    async with mesh, mesh.worker():
        handle = await look_up.submit(f"not {SECRET}")
        with pytest.raises(JobFailed):
            await handle.result()
        await forget_job(mesh, handle.kind, handle.id)
        with pytest.raises(Rejected, match="forgotten by the order"):
            await handle.retry()


async def test_a_closed_question_that_was_forgotten_is_not_shown():
    async with Mesh.open(engine="memory") as mesh:
        asked = await mesh.questions.ask(SECRET, kind="people.say", choices=("yes", "no"))
        await forget_job(mesh, asked.kind, asked.id)
        assert (await mesh.questions.find(asked.id)).text == SECRET, "it is still to be answered"
        await asked.cancel()
        with pytest.raises(Rejected, match="forgotten by the order") as no:
            await mesh.questions.find(asked.id)
        assert SECRET not in str(no.value)


async def test_why_a_forgotten_job_failed_is_not_told():
    mesh, look_up = a_mesh()
    async with mesh, mesh.worker():
        handle = await look_up.submit(f"not {SECRET}")
        with pytest.raises(JobFailed):
            await handle.result()
        await forget_job(mesh, handle.kind, handle.id)
        async with mesh.replica() as replica:
            (letter,) = letters_of(replica, await mesh.jobs(state="failed"))
        assert (letter.error, letter.note) == (None, "forgotten")


async def test_it_says_when_its_records_leave_the_log():
    mesh, look_up = a_mesh()
    async with mesh, mesh.worker():
        called, kept = await look_up.submit(SECRET), await look_up.options(once=True).submit("x")
        ends = [(await one.end()).job.ended_ms for one in (called, kept)]
        leaves = [await leaves_log_ms(mesh, one.kind, one.id) for one in (called, kept)]
        rules = (await mesh.connection.session.sync_control()).rules
        stays = [leave - end for leave, end in zip(leaves, ends, strict=True)]
        assert 0 <= stays[0] - rules.retention_ms < 3_600_000
        assert 0 <= stays[1] - rules.horizon_ms < 3_600_000
        assert await leaves_log_ms(mesh, called.kind, "0" * 64) is None


async def test_the_dashboard_says_it():
    mesh, look_up = a_mesh()
    async with mesh, mesh.worker(), signed_in(mesh) as client:
        handle = await look_up.submit(SECRET)
        await handle.result()
        await forget_job(mesh, handle.kind, handle.id)
        answer = await client.get(f"/jobs/{handle.id}")
        assert answer.status_code == 410
        assert "was forgotten by the order of" in answer.text
        assert SECRET not in answer.text
