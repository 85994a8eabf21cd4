"""Build, test and release a small program: tasks, one graph, and two plans."""

import asyncio
import subprocess
import sys
import zipapp
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("ci.build")
def build(source: str) -> bytes:
    """A program in one file that Python can run."""
    with TemporaryDirectory() as folder:
        program, built = Path(folder, "program"), Path(folder, "program.pyz")
        program.mkdir()
        (program / "__main__.py").write_text(source)
        zipapp.create_archive(program, built)
        return built.read_bytes()


@mesh.task("ci.test", timeout="1m", attempts=2)
def test(program: bytes, name: str) -> str:
    """Run the program as a user would."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "program.pyz")
        file.write_bytes(program)
        words = [sys.executable, str(file), name]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    if said != f"Hello, {name}!\n":
        raise ValueError(f"it said {said!r} to {name}")
    return f"{name} was greeted"


@mesh.task("ci.release")
def release(program: bytes, reports: list[str]) -> str:
    """What has passed every test gets its name."""
    return f"greeting-{sha256(program).hexdigest()[:8]}.pyz, {len(reports)} tests passed"


@mesh.task("ci.tell")
def tell(words: str) -> str:
    """Always the last step, whatever happened before."""
    return words.upper()


@mesh.on("succeeded", kind="ci.release")
@mesh.task("news.announce")
def announce() -> str:
    """Whenever a release succeeds, whoever submitted it."""
    return "there is a new release"


@mesh.cron("0 3 * * *", zone="Europe/Berlin")
@mesh.task("nightly.sweep")
def sweep() -> str:
    """Every night at three, summer and winter."""
    return "nothing to sweep"


async def main(source: Path, names: list[str]) -> None:
    """Submit the pipeline, and wait for it."""
    async with mesh:
        await (
            mesh.plans.put_all()
        )  # from now on the mesh runs them, whether or not this program does
        async with mesh.graph() as g:
            program = g.add(build, source.read_text())
            reports = [g.add(test, program, name) for name in names]
            released = g.add(release, program, reports)
            told = g.add(tell.options(after=[released], any_outcome=True), "the pipeline is over")
        print(f"antiphon show {g.handle(released).id[:8]}")
        print(await g.result(told, timeout="5m"))
        print(await g.result(released))


if __name__ == "__main__":
    here = Path(__file__).parent
    asyncio.run(main(here / "greeting.py", sys.argv[1:] or ["Ada", "Grace", "world"]))
