"""Hooks around handlers: in order, around everything, and their failures are the job's."""

import pytest
from msgspec.structs import replace

from antiphon import Assignment, CallOptions, GiveUp, JobFailed, Mesh, Ran
from antiphon.runtime.executors.handler_call import call_text
from tests.patience import PATIENCE_S
from tests.runtime import spawned

ONCE = CallOptions(attempts=1)


class Noted:
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    async def __call__(self, assignment: Assignment, call_next) -> Ran:
        self.notes.append(f"{self.name} before {assignment.kind}")
        try:
            return await call_next(assignment)
        finally:
            self.notes.append(f"{self.name} after")


def a_mesh(*hooks):
    mesh = Mesh.open(engine="memory")
    for hook in hooks:
        mesh.use(hook)

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    @mesh.task("example.fail")
    def fail() -> None:
        raise ValueError("no luck")

    return mesh


async def test_hooks_are_wrapped_around_a_run_the_first_outermost():
    notes = []
    mesh = a_mesh(Noted("outer", notes), Noted("inner", notes))
    async with mesh, mesh.worker():
        assert await (await mesh.submit("example.add", 2, 3)).result(timeout=PATIENCE_S) == 5
    assert notes == [
        "outer before example.add",
        "inner before example.add",
        "inner after",
        "outer after",
    ]


async def test_what_a_hook_raises_is_the_jobs_failure_and_the_handler_is_not_run():
    notes = []

    async def guard(_assignment, _call_next):
        raise GiveUp("not on a Sunday")

    mesh = a_mesh(guard, Noted("inner", notes))
    async with mesh, mesh.worker():
        handle = await mesh.submit("example.add", 2, 3)
        with pytest.raises(JobFailed, match="GiveUp: not on a Sunday"):
            await handle.result(timeout=PATIENCE_S)
    assert notes == []


async def test_a_handlers_exception_passes_through_its_hooks():
    seen = []

    async def watch(assignment, call_next):
        try:
            return await call_next(assignment)
        except ValueError as error:
            seen.append(str(error))
            raise

    mesh = a_mesh(watch)
    async with mesh, mesh.worker():
        with pytest.raises(JobFailed, match="no luck"):
            await (await mesh.submit("example.fail", options=ONCE)).result(timeout=PATIENCE_S)
    assert set(seen) == {"no luck"}


async def test_a_hook_may_change_what_is_run():
    async def swap(assignment, call_next):
        manifest = replace(assignment.manifest, args=(call_text((20, 22), {}),))
        return await call_next(replace(assignment, manifest=manifest))

    mesh = a_mesh(swap)
    async with mesh, mesh.worker():
        assert await (await mesh.submit("example.add", 2, 3)).result(timeout=PATIENCE_S) == 42


@pytest.mark.processes
async def test_hooks_are_around_processes_too_and_find_failures_in_the_account():
    seen = []

    async def watch(assignment, call_next):
        ran = await call_next(assignment)
        seen.append((ran.isolation.level, ran.failure.name))
        return ran

    mesh = a_mesh(watch)
    mesh.task("example.file", run_in="process")(spawned.missing_file)
    async with mesh, mesh.worker():
        with pytest.raises(JobFailed, match="no such file"):
            await (await mesh.submit("example.file", options=ONCE)).result(timeout=PATIENCE_S)
    assert set(seen) == {("process", "FileNotFoundError")}
