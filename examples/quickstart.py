"""One process, no server: call a task, let a worker answer, print the result."""

import asyncio

from antiphon import Mesh

mesh = Mesh.open(engine="memory")


@mesh.task("example.add")
async def add(a: int, b: int) -> int:
    return a + b


async def main() -> None:
    async with mesh, mesh.worker():
        handle = await add.submit(2, 3)
        print(await handle.result())


asyncio.run(main())
