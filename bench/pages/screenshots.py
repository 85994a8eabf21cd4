"""`python -m bench.pages.screenshots FOLDER`: pictures of every page, on meshes in several states.

`busy` is a mesh with eight workers and two thousand jobs, `empty` one on which nothing happened
yet, `many` one with two hundred workers of five machines, `trouble` the mesh of `antiphon demo`:
workers killed and stalled, a late result refused, a machine revoked. Each page is taken at 1440 and
390 pixels, light and dark, checked with axe-core, and made small with pngquant. The pictures of
docs/do/dashboard.md are some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from antiphon import JobContext
from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.pages.dashboard import make_dashboard
from antiphon.interfaces.http.pages.verify_page import changed
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.dashboard.sign_in import SignIn
from antiphon.sdk.dashboard.source import Source
from antiphon.sdk.demo.story import perform
from antiphon.sdk.hosting.dev_mesh import development
from antiphon.sdk.mesh import Mesh
from antiphon.settings import HttpAddress
from bench.measurement.report import say
from bench.pages.axe import axe, violations
from bench.pages.chromium import Browser, browser
from bench.pages.command import room

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import FullNode

WORKERS: Final = 8
JOBS: Final = 2_000
SCENES: Final = ("empty", "busy", "many", "trouble")
MACHINES: Final = {"gpu-a": 60, "gpu-b": 52, "cpu-eu": 48, "cpu-us": 34, "edge": 6}
"""Of the scene `many`: two hundred workers. One home has 64 keys at most."""
MANY_S: Final = 100.0
"""How long they work before they are looked at: as much as the Staves show."""
SEAL_S: Final = 40.0
SIZES: Final = ((1440, 900), (390, 844))
PAGES: Final = ("for-you", "jobs", "staves", "nodes", "authority", "log")
KINDS: Final = ("render.frame", "render.still", "embed.text", "report.daily", "build.app")
QUANTISED: Final = "64"

Show = Callable[[str, Mesh, "FullNode | None", dict[str, str]], Awaitable[None]]
"""A scene, its mesh, its node, and further jobs by what they are called."""
FORM: Final = {
    "type": "object",
    "required": ["region", "replicas"],
    "properties": {
        "region": {"enum": ["eu-west", "us-east"], "title": "Region"},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 9, "title": "Replicas"},
        "careful": {"type": "boolean", "title": "One after the other"},
        "note": {"type": "string", "title": "A note for the log", "maxLength": 120},
    },
}


class Album:
    """Takes pictures of a mesh's pages into a folder."""

    def __init__(self, tab: Browser, folder: Path, script: str | None) -> None:
        self._tab = tab
        self._folder = folder
        self._axe = script
        self._name = ""

    async def show(
        self, scene: str, mesh: Mesh, node: FullNode | None, jobs: dict[str, str]
    ) -> None:
        """Take every page of a mesh."""
        async with self._signed_in(scene, mesh, node) as url:
            await self._tab.open(f"{url}/jobs")
            wanted = [(name, f"/{name}") for name in PAGES]
            found = {"job": await self._remarkable(), **jobs}
            wanted += [(name, f"/jobs/{job}") for name, job in found.items() if job]
            for name, path in wanted:
                for width, height in SIZES:
                    for dark in (False, True):
                        self._name = f"{scene}-{name}-{width}-{'dark' if dark else 'light'}"
                        await self._take(f"{url}{path}", width, height, dark=dark)
            if found["job"] and scene == "trouble":
                await self._verify(url, found["job"])

    async def _verify(self, url: str, job: str) -> None:
        """A job's bundle as it is checked, and the same with one changed byte."""
        text = await self._tab.ask(f"fetch('{url}/jobs/{job}/bundle').then((one) => one.text())")
        data = str(text).encode()
        for name, given in (("verify", data), ("verify_broken", changed(data).data)):
            file = self._folder / "bundle.json"
            file.write_bytes(given)
            for width, height in SIZES:
                for dark in (False, True):
                    await self._tab.look(width=width, height=height, dark=dark)
                    await self._tab.open(f"{url}/verify")
                    await self._tab.choose_file("#bundle", file)
                    self._name = f"trouble-{name}-{width}-{'dark' if dark else 'light'}"
                    await self._keep()
            file.unlink()

    @asynccontextmanager
    async def _signed_in(self, scene: str, mesh: Mesh, node: FullNode | None) -> AsyncIterator[str]:
        sign_in = SignIn()
        name = "farm" if scene != "trouble" else "demo"
        pages, end_streams = make_dashboard(Source(mesh, name, node), sign_in)
        async with serving(pages, HttpAddress("127.0.0.1", 0)) as port:
            await self._tab.open(f"http://127.0.0.1:{port}/sign-in/{sign_in.link()}")
            try:
                yield await room(self._tab)
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

    async def _take(self, url: str, width: int, height: int, *, dark: bool) -> None:
        await self._tab.look(width=width, height=height, dark=dark)
        await self._tab.open(url)
        await self._tab.until("!document.querySelector('.live.stop')")
        await self._keep()

    async def _keep(self) -> None:
        name = f"{self._name}.png"
        file = self._folder / name
        file.write_bytes(await self._tab.picture(whole=name.split("-")[1] != "jobs"))
        await _make_small(file)
        say(f"{file.stat().st_size / 1000:6.1f} kB  {name}")
        wrong = [] if self._axe is None else await violations(self._tab, self._axe)
        for problem in (*self._tab.seen.errors, *wrong):
            say(f"    {problem}")


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
        await show("empty", mesh, node, {})


def worked_on(mesh: Mesh, chance: random.Random) -> Mesh:
    """The same with tasks that take a while, or fail."""
    for kind in KINDS:

        @mesh.task(kind, attempts=2)
        async def work(number: int, kind: str = kind) -> int:
            await asyncio.sleep(chance.random() * (20.0 if number >= JOBS else 0.1))
            if number % 97 == 0:
                raise ConnectionError(f"{kind}: the source {number} does not answer")
            return number

    @mesh.task("release.ship")
    async def ship(ctx: JobContext, version: int) -> object:
        await ctx.step("build", lambda: {"image": f"web:{version}", "size_mb": 41.7})
        await ctx.step("test", lambda: {"passed": 212, "failed": 0})
        how: dict[str, Any] = {"schema": FORM} if version % 2 else {"choices": ("yes", "not today")}
        return await ctx.ask(f"Ship web {version} to production?", kind="approve.ship", **how)

    @mesh.task("render.movie")
    async def movie(ctx: JobContext, frames: int) -> None:
        for frame in range(frames):
            print(f"frame {frame:04}: 1,920 × 1,080, {chance.randrange(300, 900)} ms")
            ctx.progress(frame / frames, f"frame {frame} of {frames}")
            await asyncio.sleep(0.5)

    return mesh


async def talking(mesh: Mesh) -> dict[str, str]:
    """Jobs that ask, one that prints, and a document with a conflict."""
    asking = [await mesh.submit("release.ship", version) for version in (7, 8)]
    printing = await mesh.submit("render.movie", 600)
    notes = mesh.memory["notes.team"]
    plan = {"steps": 4, "owner": "attic", "next": "index the archive"}
    old = (await notes.put("plan", plan)).document
    await notes.put("plan", {**plan, "steps": 5}, base=old)
    await notes.put("plan", {**plan, "steps": 6, "then": "publish"}, base=old, strategy="defer")
    for one in asking:
        while (await one.state()).state.value != "waiting":
            await asyncio.sleep(0.1)
    return {"job_waits": asking[0].id, "job_prints": printing.id}


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
        await show("busy", mesh, node, await talking(mesh))


async def many(place: Path, show: Show) -> None:
    """Two hundred workers of five machines."""
    chance = random.Random(7)
    async with developing(place) as (mesh, node), AsyncExitStack() as stack:
        for name, workers in MACHINES.items():
            home = StateDirectory(place / name)
            home.write(mesh.home.mesh(), structs.replace(mesh.home.access(), alias=name))
            for _ in range(workers):
                machine = await stack.enter_async_context(_rendering(home.path, chance))
                await stack.enter_async_context(machine.worker(slots=1))
            say(f"{name}: {workers} workers")
        feeding = asyncio.ensure_future(_feed(mesh, chance))
        stack.callback(feeding.cancel)
        await asyncio.sleep(MANY_S)
        await show("many", mesh, node, {})


def _rendering(home: Path, chance: random.Random) -> Mesh:
    mesh = Mesh.open(home=home)

    @mesh.task("render.scene", attempts=1)
    async def work(number: int) -> int:
        await asyncio.sleep(25.0 + 30.0 * chance.random())
        if number % 41 == 0:
            raise MemoryError("the scene does not fit")
        return number

    return mesh


async def _feed(mesh: Mesh, chance: random.Random) -> None:
    """As many jobs as they can do, which come one after the other."""
    numbers = itertools.count(1)
    while True:
        calls = [mesh.bind("render.scene", next(numbers)) for _ in range(chance.randrange(8, 16))]
        await mesh.submit_many(calls)
        await asyncio.sleep(2.5)


async def trouble(place: Path, show: Show) -> None:
    """The demonstration, when everything has gone wrong."""

    async def look(mesh: Mesh) -> None:
        await show("trouble", mesh, None, {})

    await perform(place, lambda words, _: say(words), [], look)


async def run(folder: Path, scenes: list[str], jobs: int) -> None:
    """Take them all."""
    folder.mkdir(parents=True, exist_ok=True)
    async with browser() as tab:
        album = Album(tab, folder, await axe())
        for scene in scenes:
            with tempfile.TemporaryDirectory(prefix="antiphon-pages-") as place:
                if scene == "empty":
                    await empty(Path(place), album.show)
                elif scene == "busy":
                    await busy(Path(place), album.show, jobs)
                elif scene == "many":
                    await many(Path(place), album.show)
                else:
                    await trouble(Path(place), album.show)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench.pages.screenshots")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scene", action="append", choices=SCENES)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    asyncio.run(run(given.folder, given.scene or list(SCENES), given.jobs))
