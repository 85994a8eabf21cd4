"""`bench pages`: the dashboard among a million jobs, in a real browser.

A mesh on a server and with a node of its own, and a replica with the jobs in place of that node's.
Every page is opened in Chromium, wide and as on a phone, light and dark. `page_kb` is what the
largest page brings with its style sheets and script; `first_paint_ms` is how long after the request
the slowest page is first drawn, by the median of its looks. Errors in the console include what the
content policy blocks.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.guard import Guard
from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.pages.dashboard import make_dashboard
from antiphon.runtime.replica.replica import Replica
from antiphon.sdk.dashboard.sign_in import SignIn
from antiphon.sdk.dashboard.source import Source
from antiphon.sdk.hosting.dev_mesh import development
from antiphon.sdk.mesh import Mesh
from antiphon.settings import HttpAddress
from bench.measurement.report import conclude, median, say
from bench.meshes.many_jobs import EVERY_MS, fill
from bench.pages.axe import axe, violations
from bench.pages.chromium import Browser, browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

JOBS: Final = 1_000_000
QUICK: Final = 2_000
PAGE_KB_MOST: Final = 300.0
FIRST_PAINT_MS_MOST: Final = 1_000.0
LOOKS: Final = ((1440, False), (390, True), (1440, True), (390, False))
QUICK_PATHS: Final = ("/for-you", "/jobs", "/authority", "/log")
PAINT: Final = "performance.getEntriesByType('paint')[0]?.startTime"


class Filled:
    """Stands for the node beside the dashboard: a replica to which nothing is added."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.applied = replica.cursor.seq
        self.guard = Guard()

    async def reached(self, _: int) -> None:
        """Wait for a record that does not come."""
        await asyncio.Event().wait()


class Found(Struct):
    """What was measured of a page."""

    path: str
    kb: float = 0.0
    paint_ms: float = 0.0
    errors: list[str] = []
    violations: list[str] = []


def paths(jobs: int) -> list[str]:
    """Every page, and the lists that are hard to find."""
    return [
        "/for-you",
        "/jobs",
        "/jobs?state=failed",
        "/jobs?kind=render&state=pending",
        "/jobs?kind=nothing.is.called.so",
        "/jobs?text=connection+refused",
        f"/jobs?since={max(jobs * EVERY_MS // 2_000, 1)}s",
        "/staves",
        "/nodes",
        "/authority",
        "/log",
        "/verify",
        "/jobs/ffff",
    ]


async def measure(tab: Browser, url: str, path: str, script: str | None, looks: int) -> Found:
    """Open a page in each look."""
    found, paints = Found(path), list[float]()
    for width, dark in LOOKS[:looks]:
        await tab.look(width=width, dark=dark)
        await tab.open(f"{url}{path}")
        await tab.until(f"{PAINT} !== undefined")
        paints.append(float(await tab.ask(PAINT)))
        found.kb = max(found.kb, tab.seen.bytes / 1000)
        # That a job is not there is what the page is about.
        found.errors += [one for one in tab.seen.errors if "404" not in one]
        if script is not None:
            found.violations += await violations(tab, script)
    found.paint_ms = median(paints)
    return found


async def served(stack: AsyncExitStack, jobs: int) -> str:
    """A dashboard over so many jobs until the stack ends; a link that signs in."""
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-bench-")))
    running = await stack.enter_async_context(development(place / ".antiphon", name="bench"))
    mesh = await stack.enter_async_context(Mesh.open(home=running.home.path))
    await stack.enter_async_context(mesh.node())
    replica = Replica(place / "replica.db", mesh=mesh.id)
    stack.callback(replica.close)
    say(f"writing {jobs:,} jobs")
    fill(replica, jobs, mesh=mesh.id, start_ms=round(time.time() * 1000) - jobs * EVERY_MS)
    node: Any = Filled(replica)
    sign_in = SignIn()
    pages, end_streams = make_dashboard(Source(mesh, "bench", node), sign_in)
    port = await stack.enter_async_context(serving(pages, HttpAddress("127.0.0.1", 0)))
    stack.callback(end_streams)
    return f"http://127.0.0.1:{port}/sign-in/{sign_in.link()}"


async def room(tab: Browser) -> str:
    """Where the pages of a browser are that has just signed in."""
    return str(await tab.ask("location.href")).removesuffix("/jobs")


async def run(jobs: int, looks: int) -> list[Found]:
    """Measure every page."""
    async with AsyncExitStack() as stack:
        script = await axe()
        if script is None:
            say("axe-core cannot be fetched here: accessibility is not checked")
        link = await served(stack, jobs)
        tab = await stack.enter_async_context(browser())
        await tab.open(link)
        url = await room(tab)
        wanted = paths(jobs) if looks > 1 else QUICK_PATHS
        return [found async for found in _each(tab, url, script, wanted, looks)]


async def _each(
    tab: Browser, url: str, script: str | None, wanted: Sequence[str], looks: int
) -> AsyncIterator[Found]:
    for path in wanted:
        found = await measure(tab, url, path, script, looks)
        say(f"{found.kb:6.1f} kB {found.paint_ms:6.0f} ms  {path[:80]}")
        for problem in (*found.errors, *found.violations):
            say(f"    {problem}")
        yield found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench pages")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    jobs = QUICK if args.quick else args.jobs
    found = asyncio.run(run(jobs, 1 if args.quick else len(LOOKS)))
    largest, slowest = max(one.kb for one in found), max(one.paint_ms for one in found)
    errors = sum(len(one.errors) for one in found)
    wrong = sum(len(one.violations) for one in found)
    conclude(
        page_kb=round(largest, 1),
        first_paint_ms=round(slowest),
        jobs=jobs,
        console_errors=errors,
        axe_violations=wrong,
        pages=len(found),
    )
    is_good = largest <= PAGE_KB_MOST and slowest <= FIRST_PAINT_MS_MOST
    return 0 if is_good and not errors and not wrong else 1
