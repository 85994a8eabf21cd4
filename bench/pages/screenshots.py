"""`python -m bench.pages.screenshots FOLDER`: pictures of every page, on meshes in several states.

`busy` is a mesh with eight workers and two thousand jobs, `empty` one on which nothing happened
yet, `trouble` the mesh of `antiphon demo`: workers killed and stalled, a late result refused, a
machine revoked. Each page is taken at 1440 and 390 pixels, light and dark, and made small with
pngquant. The pictures of docs/do/dashboard.md are some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.pages.dashboard import make_dashboard
from antiphon.sdk.dashboard.sign_in import SignIn
from antiphon.sdk.dashboard.source import Source
from antiphon.sdk.demo.story import perform
from antiphon.sdk.hosting.dev_mesh import development
from antiphon.sdk.mesh import Mesh
from antiphon.settings import HttpAddress
from bench.measurement.report import say
from bench.pages.chromium import Browser, browser

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import FullNode

WORKERS: Final = 8
JOBS: Final = 2_000
SEAL_S: Final = 40.0
SIZES: Final = ((1440, 900), (390, 844))
PAGES: Final = ("jobs", "staves", "nodes", "authority", "log")
KINDS: Final = ("render.frame", "render.still", "embed.text", "report.daily", "build.app")
QUANTISED: Final = "64"

Show = Callable[[str, Mesh, "FullNode | None"], Awaitable[None]]


class Album:
    """Takes pictures of a mesh's pages into a folder."""

    def __init__(self, tab: Browser, folder: Path) -> None:
        self._tab = tab
        self._folder = folder

    async def show(self, scene: str, mesh: Mesh, node: FullNode | None = None) -> None:
        """Take every page of a mesh."""
        async with self._signed_in(scene, mesh, node) as url:
            await self._tab.open(f"{url}/jobs")
            wanted = [f"/{name}" for name in PAGES]
            wanted += [f"/jobs/{job}" for job in [await self._remarkable()] if job]
            for path in wanted:
                for width, height in SIZES:
                    for dark in (False, True):
                        await self._take(scene, f"{url}{path}", width, height, dark=dark)

    @asynccontextmanager
    async def _signed_in(self, scene: str, mesh: Mesh, node: FullNode | None) -> AsyncIterator[str]:
        sign_in = SignIn()
        name = "farm" if scene != "trouble" else "demo"
        pages, end_streams = make_dashboard(Source(mesh, name, node), sign_in)
        async with serving(pages, HttpAddress("127.0.0.1", 0)) as port:
            url = f"http://127.0.0.1:{port}"
            await self._tab.open(f"{url}/sign-in/{sign_in.link()}")
            try:
                yield url
            finally:
                await self._tab.open("about:blank")
                end_streams()

    async def _remarkable(self) -> str:
        """The job that has most to tell: one that was tried twice, or else the newest."""
        rows = "[...document.querySelectorAll('[data-job]')]"
        found = await self._tab.ask(
            f"({rows}.find((row) => /[2-9]\\/\\d+/.test(row.textContent)) ?? {rows}[0])"
            "?.dataset.job ?? ''"
        )
        return str(found)

    async def _take(self, scene: str, url: str, width: int, height: int, *, dark: bool) -> None:
        await self._tab.look(width=width, height=height, dark=dark)
        await self._tab.open(url)
        await self._tab.until("!document.querySelector('.live.stop')")
        path = re.sub(r".*//[^/]+/", "", url)
        page = "job" if path.startswith("jobs/") else path
        name = f"{scene}-{page}-{width}-{'dark' if dark else 'light'}.png"
        file = self._folder / name
        file.write_bytes(await self._tab.picture(whole=page in {"job", "log"}))
        await _make_small(file)
        say(f"{file.stat().st_size / 1000:6.1f} kB  {name}")


async def _make_small(file: Path) -> None:
    made = await asyncio.create_subprocess_exec(
        "pngquant", QUANTISED, "--strip", "--force", "--skip-if-larger", "--ext", ".png", str(file)
    )
    await made.wait()


@asynccontextmanager
async def developing(place: Path) -> AsyncIterator[tuple[Mesh, FullNode]]:
    """A mesh with its node."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(development(place / ".antiphon", name="farm"))
        mesh = await stack.enter_async_context(Mesh.open(home=running.home.path))
        node = await stack.enter_async_context(mesh.node())
        await running.coordinate(node)
        yield mesh, node


async def empty(place: Path, show: Show) -> None:
    """Nothing happened yet."""
    async with developing(place) as (mesh, node):
        await show("empty", mesh, node)


def worked_on(mesh: Mesh, chance: random.Random) -> Mesh:
    """The same with tasks that take a while, or fail."""
    for kind in KINDS:

        @mesh.task(kind, attempts=2)
        async def work(number: int, kind: str = kind) -> int:
            await asyncio.sleep(chance.random() * (20.0 if number >= JOBS else 0.1))
            if number % 97 == 0:
                raise ConnectionError(f"{kind}: the source {number} does not answer")
            return number

    return mesh


async def busy(place: Path, show: Show, jobs: int) -> None:
    """Eight workers, and many jobs; the last of them are still held."""
    chance = random.Random(5)
    async with developing(place) as (mesh, node), AsyncExitStack() as stack:
        home = mesh.home.path
        for _ in range(WORKERS):
            machine = worked_on(Mesh.open(home=home), chance)
            await stack.enter_async_context(machine)
            await stack.enter_async_context(machine.worker(slots=4))
        calls = [mesh.bind(chance.choice(KINDS), number) for number in range(jobs)]
        handles = await mesh.submit_many(calls)
        say(f"{len(handles):,} jobs submitted")
        for handle in handles:
            await handle.end()
        await asyncio.sleep(SEAL_S)
        held = [mesh.bind(chance.choice(KINDS), JOBS + one) for one in range(24)]
        await mesh.submit_many(held)
        await asyncio.sleep(1.0)
        await show("busy", mesh, node)


async def trouble(place: Path, show: Show) -> None:
    """The demonstration, when everything has gone wrong."""

    async def look(mesh: Mesh) -> None:
        await show("trouble", mesh, None)

    await perform(place, lambda words, _: say(words), [], look)


async def run(folder: Path, scenes: list[str], jobs: int) -> None:
    """Take them all."""
    folder.mkdir(parents=True, exist_ok=True)
    async with browser() as tab:
        album = Album(tab, folder)
        for scene in scenes:
            with tempfile.TemporaryDirectory(prefix="antiphon-pages-") as place:
                if scene == "empty":
                    await empty(Path(place), album.show)
                elif scene == "busy":
                    await busy(Path(place), album.show, jobs)
                else:
                    await trouble(Path(place), album.show)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench.pages.screenshots")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scene", action="append", choices=("busy", "empty", "trouble"))
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    asyncio.run(run(given.folder, given.scene or ["empty", "busy", "trouble"], given.jobs))
