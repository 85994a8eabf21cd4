"""Count the words of many files: a step for each file, and one that adds them up."""

import asyncio
import sys
from pathlib import Path

from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("text.count")
def count(text: str) -> int:
    """The words of one file."""
    return len(text.split())


@mesh.task("text.sum")
def add_up(counts: list[int]) -> int:
    """The words of all files."""
    return sum(counts)


def make_files(folder: Path, number: int) -> list[Path]:
    """Something to count, made once."""
    folder.mkdir(exist_ok=True)
    files = [folder / f"{at:04}.txt" for at in range(number)]
    for at, file in enumerate(files):
        if not file.exists():
            file.write_text("word " * at)
    return files


async def main(number: int) -> None:
    """Submit the graph, and wait for the sum."""
    files = make_files(Path("texts"), number)
    async with mesh:
        async with mesh.graph() as g:
            counts = g.map(count, (file.read_text() for file in files))
            words = g.add(add_up, counts)
        print(f"{len(g):,} jobs; antiphon show {g.handle(words).id[:8]}")
        print(f"{await g.result(words, timeout='10m'):,} words")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 1_000))
