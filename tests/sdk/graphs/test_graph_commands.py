"""Graphs with commands, and graphs where nothing is awaited."""

import pytest

from antiphon import Mesh
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes


async def test_commands_read_files_that_commands_wrote(tmp_path):
    mesh = Mesh.open(engine="memory")

    @mesh.task("web.count")
    async def count(page: str) -> int:
        return len(page)

    source = tmp_path / "numbers.txt"
    source.write_text("3\n1\n2\n")
    how = {"commands": ["ci.run"], "unsafe_no_sandbox": True}
    async with mesh, mesh.worker(**how):
        async with mesh.graph() as g:
            size = g.add(count, "abc")
            sort = g.command(
                "ci.run",
                ["sh", "-c", "sort numbers.txt > sorted.txt"],
                inputs={"numbers.txt": source},
                outputs=["*.txt"],
            )
            both = g.command(
                "ci.run",
                ["sh", "-c", "cat size.json sorted.txt first.txt"],
                inputs={
                    "sorted.txt": sort,
                    "first.txt": sort.output("sorted.txt"),
                    "size.json": size,
                },
            )
        ended = await g.handle(both).end(PATIENCE_S)
        assert ended.exit == 0
        texts = {one.name: one.text for one in ended.outputs}
        assert texts["stdout"] == "31\n2\n3\n1\n2\n3\n"


def test_a_blocking_graph_waits_instead_of_being_awaited():
    with Mesh.open(engine="memory").blocking() as mesh:

        @mesh.task("web.double")
        def double(number: int) -> int:
            return 2 * number

        with mesh.worker():
            with mesh.graph() as g:
                four = g.add(double, g.add(double, 1))
                many = g.map(double, [four, four])
            assert g.result(many, PATIENCE_S) == [8, 8]
            assert g.handle(four).result() == 4
            with pytest.raises(RuntimeError), mesh.graph() as g:
                raise RuntimeError
