"""Graphs as plain code: typed steps, checked before anything is sent, submitted together."""

import asyncio

import pytest

from antiphon import JobFailed, Mesh, Misconfigured, PartlySubmitted
from antiphon.sdk.graphs.graph import MAX_RESULTS
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.virtual_time


class Tasks:
    """A mesh inside this process with a few tasks, and what they were called with."""

    def __init__(self):
        self.mesh = mesh = Mesh.open(engine="memory")
        self.ran = []

        @mesh.task("web.fetch")
        async def fetch(number: int) -> str:
            self.ran.append(number)
            return "x" * number

        @mesh.task("web.count")
        async def count(page: str, factor: int = 1) -> int:
            self.ran.append("count")
            return len(page) * factor

        @mesh.task("web.total")
        async def total(counts: list[int], *, start: int = 0) -> int:
            self.ran.append("total")
            return sum(counts, start)

        @mesh.task("web.broken", attempts=1)
        async def broken(_: int) -> int:
            raise ValueError("no such page")

        self.fetch, self.count, self.total, self.broken = fetch, count, total, broken


async def records(mesh):
    newest = await mesh.connection.session.log.last()
    return newest.seq


async def test_steps_use_the_results_of_steps_in_arguments_by_place_by_name_and_in_lists():
    use = Tasks()
    mesh = use.mesh
    async with mesh, mesh.worker(slots=16):
        async with mesh.graph() as g:
            pages = g.map(use.fetch, range(1, 11))
            first = g.add(use.count, pages[0], factor=7)
            total = g.add(use.total, g.map(use.count, pages), start=first)
            assert use.ran == []
            assert len(g) == 10 + 1 + 10 + 1
        assert await g.result(total, PATIENCE_S) == 55 + 7
        assert await g.result(pages[:3]) == ["x", "xx", "xxx"]
        assert g.handle(total).kind == "web.total"
        assert use.ran[-1] == "total"


async def test_large_values_travel_between_steps():
    use = Tasks()
    mesh = use.mesh
    async with mesh, mesh.worker():
        async with mesh.graph() as g:
            large = g.add(use.fetch, 300_000)
            size = g.add(use.count, large)
            own = g.add(use.count, "y" * 200_000)
        assert await g.result(size, PATIENCE_S) == 300_000
        assert await g.result(own, PATIENCE_S) == 200_000


async def test_what_follows_a_failed_step_is_cancelled_and_says_why():
    use = Tasks()
    mesh = use.mesh
    async with mesh, mesh.worker():
        async with mesh.graph() as g:
            bad = g.add(use.broken, 1)
            below = g.add(use.total, [bad])
            beside = g.add(use.count.options(after=[bad]), "a")
            anyway = g.add(use.count.options(after=[bad], any_outcome=True), "ab")
        assert await g.result(anyway, PATIENCE_S) == 2
        for step in (below, beside):
            with pytest.raises(JobFailed, match=r"cancelled: predecessor: web.broken \w+ ended as"):
                await g.result(step, PATIENCE_S)


async def test_a_plain_call_can_be_after_a_job_that_was_submitted():
    use = Tasks()
    mesh = use.mesh
    async with mesh:
        first = await use.fetch.submit(3)
        second = await use.count.options(after=[first]).submit("abcd")
        assert (await second.state()).state.value == "waiting"
        async with mesh.worker():
            assert await second.result(PATIENCE_S) == 4
        assert use.ran == [3, "count"]


async def test_an_error_in_the_block_submits_nothing():
    use = Tasks()
    mesh = use.mesh
    async with mesh:
        before = await records(mesh)
        with pytest.raises(RuntimeError, match="changed my mind"):  # noqa: PT012 - a block
            async with mesh.graph() as g:
                page = g.add(use.fetch, 1)
                raise RuntimeError("changed my mind")
        assert await records(mesh) == before
        with pytest.raises(Misconfigured, match="was not submitted: its block ended with an error"):
            await g.result(page)


AS_VALUES = [
    (lambda step: step.upper(), "no attribute 'upper'"),
    (lambda step: step[0], "__getitem__"),
    (lambda step: f"{step}.html", "__format__"),
    (str, "__str__"),
    (len, "__len__"),
    (list, "__iter__"),
    (lambda step: "x" if step else "y", "__bool__"),
    (lambda step: step == "x", "__eq__"),
    (lambda step: "x" + step, "__radd__"),
    (lambda step: "x" in step, "__contains__"),
    (open, "__fspath__"),
]


@pytest.mark.parametrize("use_it, word", AS_VALUES, ids=[word for _, word in AS_VALUES])
async def test_a_step_used_as_a_value_says_what_to_do_instead(use_it, word):
    use = Tasks()
    async with use.mesh:
        with pytest.raises(TypeError, match=r"await g\.result\(step\)") as refused:
            async with use.mesh.graph() as g:
                use_it(g.add(use.fetch, 1))
        assert "step 1 (web.fetch)" in str(refused.value)
        assert word in str(refused.value)


async def test_a_step_can_be_shown_hashed_and_found_in_a_list():
    use = Tasks()
    async with use.mesh, use.mesh.graph() as g:
        first, second = g.map(use.fetch, [1, 2])
        assert repr(first) == "<step 1 (web.fetch)>"
        assert {first: 1, second: 2}[second] == 2
        assert not hasattr(first, "__array__")


WRONG = [
    (lambda use, g, _: g.add(use.count), TypeError, "step 2 .*missing a required argument: 'page'"),
    (lambda use, g, _: g.add(use.count, 3), TypeError, "step 2 .*argument 'page'.*expected str"),
    (lambda use, g, step: g.add(use.total, [step, 1]), TypeError, "may contain nothing else"),
    (lambda use, g, step: g.add(use.total, {"a": step}), TypeError, "an item of a list"),
    (lambda use, g, step: g.map(use.count, step), Misconfigured, "step 1 .* has no items yet"),
    (
        lambda use, g, step: g.add(use.total, [step] * (MAX_RESULTS + 1)),
        Misconfigured,
        "step 2 .* uses 1,023 results",
    ),
    (lambda use, g, step: g.handle(step), Misconfigured, "is not submitted"),
    (lambda use, g, step: g.handle("x"), TypeError, "'x' is not a step"),
    (lambda use, g, _: use.count.options(after=["x"]), Misconfigured, "after jobs only"),
    (
        lambda use, g, step: g.add(use.count, g.command("ci.build", ["make"])),
        TypeError,
        "argument 1 of step 3 .* makes files",
    ),
    (lambda use, g, _: g.command("ci.build", []), Misconfigured, "step 2 .ci.build."),
    (
        lambda use, g, _: g.command("ci.build", ["make"], inputs={"a": 3}),
        TypeError,
        "input 'a' of step 2",
    ),
]


@pytest.mark.parametrize("wrong, error, words", WRONG, ids=[words for *_, words in WRONG])
async def test_mistakes_are_found_before_anything_is_sent_and_name_the_step(wrong, error, words):
    use = Tasks()
    async with use.mesh:
        before = await records(use.mesh)
        with pytest.raises(Exception, match=words) as refused:
            async with use.mesh.graph() as g:
                wrong(use, g, g.add(use.fetch, 1))
        assert error is Misconfigured or isinstance(refused.value, error)
        assert await records(use.mesh) == before


async def test_a_step_of_another_graph_is_refused_and_so_is_one_added_after_the_block():
    use = Tasks()
    async with use.mesh as mesh:
        async with mesh.graph() as other:
            page = other.add(use.fetch, 1)
        with pytest.raises(Misconfigured, match=r"argument 1 of step 1 .* is step 1 .* of another"):
            async with mesh.graph() as g:
                g.add(use.count, page)
        with pytest.raises(Misconfigured, match="this graph is submitted"):
            other.add(use.fetch, 2)
        with pytest.raises(Misconfigured, match=r"'after' of step 1 .* of another graph"):  # noqa: PT012
            async with mesh.graph() as first, mesh.graph() as second:
                later = first.add(use.fetch, 3)
                second.add(use.count.options(after=[later]), "a")
        async with mesh.graph() as g:  # one that was submitted is a job like any other
            g.add(use.count.options(after=[page]), "a")


@pytest.mark.req("M19")
async def test_ten_steps_in_a_chain_and_a_diamond_run_in_order():
    use = Tasks()
    mesh = use.mesh

    @mesh.task("chain.link")
    async def link(before: list[int], name: int) -> list[int]:
        await asyncio.sleep(0)
        return [*before, name]

    @mesh.task("chain.join")
    async def join(left: list[int], right: list[int]) -> list[int]:
        return left + right

    async with mesh, mesh.worker(slots=8):
        async with mesh.graph() as g:
            last = g.add(link, [], 0)
            for number in range(1, 10):
                last = g.add(link, last, number)
            ends = g.add(join, g.add(link, last, 10), g.add(link, last, 11))
        begun = [*range(10)]
        assert await g.result(ends, PATIENCE_S) == [*begun, 10, *begun, 11]


async def test_a_graph_that_could_not_be_submitted_whole_says_which_job_it_was():
    use = Tasks()
    mesh = use.mesh
    async with mesh:
        with pytest.raises(PartlySubmitted, match="lease") as partly:  # noqa: PT012 - the same
            async with mesh.graph() as g:
                fine = g.add(use.fetch, 1)
                g.add(use.count.options(lease="30d", lease_max="30d"), fine)
        assert partly.value.position == 1
        assert [handle.kind for handle in partly.value.submitted] == ["web.fetch"]
        assert g.handle(fine).kind == "web.fetch"
