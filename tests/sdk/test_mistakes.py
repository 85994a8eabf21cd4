"""Lines that people write by mistake: the error says what to write instead."""

import pytest

from antiphon import Mesh, Retry
from antiphon.errors import Misconfigured


def a_mesh() -> Mesh:
    mesh = Mesh.open(engine="memory")

    @mesh.task("web.fetch")
    async def fetch(url: str) -> int:
        return len(url)

    mesh.fetch = fetch
    return mesh


@pytest.mark.parametrize(
    "name, line",
    [
        ("delay", "submit? await fetch.submit(...)"),
        ("apply_async", "submit? await fetch.submit(...)"),
        ("send", "submit? await fetch.submit(...)"),
        ("remote", "submit? await fetch.submit(...)"),
        ("with_options", 'options? await fetch.options(priority="high").submit(...)'),
        ("s", "bind? fetch.bind(...)"),
    ],
)
def test_what_other_libraries_call_it_is_answered_with_our_name(name, line):
    mesh = a_mesh()
    with pytest.raises(AttributeError) as unknown:
        getattr(mesh.fetch, name)
    assert str(unknown.value).endswith(f"did you mean {line}")
    with pytest.raises(AttributeError) as unknown:
        getattr(mesh.blocking().wrap(mesh.fetch), name)
    assert str(unknown.value).endswith(f"did you mean {line.replace('await ', '')}")


def test_an_attribute_that_nobody_has_is_an_attribute_error_as_ever():
    mesh = a_mesh()
    assert not hasattr(mesh.fetch, "colour")
    with pytest.raises(AttributeError, match=r"web\.fetch has no attribute 'colour'$"):
        _ = mesh.fetch.colour


async def test_a_plain_function_is_no_step_of_a_graph():
    async with a_mesh() as mesh:
        for add in (lambda g: g.add(len, [1]), lambda g: g.map(len, [[1]])):
            with pytest.raises(Misconfigured, match="len is a plain function") as refused:
                async with mesh.graph() as g:
                    add(g)
            assert 'mesh.task("example.step")(len)' in refused.value.hint
        with pytest.raises(Misconfigured, match="not a call") as refused:
            async with mesh.graph() as g:
                g.add(mesh.fetch("https://example.org"))
        assert refused.value.hint == "g.add(fetch, ...)"
        with pytest.raises(Misconfigured, match=r"'web\.fetch' is none"):
            async with mesh.graph() as g:
                g.add("web.fetch", "https://example.org")
        assert await mesh.jobs() == []


def test_two_numbers_of_attempts_are_refused_where_they_are_written():
    mesh = a_mesh()
    with pytest.raises(Misconfigured, match=r"attempts=5 and retry=Retry\(attempts=3\)") as refused:
        mesh.task("a.b", attempts=5, retry=Retry(attempts=3))
    assert refused.value.hint == "leave out one of them"
    with pytest.raises(Misconfigured, match="contradict"):
        mesh.fetch.options(attempts=5, retry=Retry(attempts=3))
    mesh.task("a.c", attempts=3, retry=Retry(attempts=3))
    mesh.task("a.d", attempts=3, retry=Retry(base=2))


def test_a_call_overrides_its_tasks_attempts_whichever_way_either_says_them():
    mesh = a_mesh()
    numbers = iter(range(9))

    def retry(declared, called):
        task = mesh.task(f"a.b{next(numbers)}", **declared)(a_step).options(**called)
        return task.scheduling.retry

    assert retry({"attempts": 5}, {"retry": Retry(attempts=2)}).attempts == 2
    assert retry({"attempts": 5}, {"retry": Retry(base=7)}).attempts == 5
    kept = retry({"retry": Retry(attempts=2, base=7)}, {"attempts": 5})
    assert (kept.attempts, kept.base_ms) == (5, 7000)


def a_step(number: int) -> int:
    return number


async def test_a_handle_of_a_closed_mesh_says_which_line_to_move():
    mesh = a_mesh()
    with pytest.raises(Misconfigured, match="not open") as refused:
        await mesh.fetch.submit("x")
    assert "async with mesh:" in refused.value.hint
    async with mesh:
        handle = await mesh.fetch.submit("x")
        async with mesh.worker():
            done = await mesh.fetch.submit("y")
            await done.result()
        waiting = await mesh.submit("nobody.there")
    for line in (waiting.result, handle.state, handle.cancel, handle.progress, mesh.jobs):
        with pytest.raises(Misconfigured, match="is closed") as refused:
            await line()
        assert "move this line into the block" in refused.value.hint
    assert await done.result() == 1
    async with mesh:
        again = await mesh.fetch.submit("zz")
        async with mesh.worker():
            assert await again.result() == 2


def test_a_handle_of_a_closed_blocking_mesh_says_so_too():
    with a_mesh().blocking() as mesh:
        left = mesh.submit("web.fetch", "x")
    with pytest.raises(Misconfigured, match="closed"):
        left.result()
