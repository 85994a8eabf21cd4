"""A laptop, in a process of its own that ends itself with SIGKILL at a step.

Steps are what is durable or leaves the machine: syncs, renames and removals of files, records,
messages and large values that are sent. Before and after each the process may be killed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.core.families.memory.ops import Strategy
from antiphon.errors import AntiphonError
from antiphon.runtime.artifacts.waiting_blobs import WaitingBlobs
from antiphon.runtime.log.session import Session
from antiphon.runtime.messages.message_client import MessageClient
from antiphon.runtime.outbox.outbox_item import OfJob
from antiphon.sdk.mesh import Mesh
from chaos.cluster.child_process import begin

SPACE: Final = "chaos.notes"
KIND: Final = "chaos.offline"
KEY: Final = "laptop"
AGAIN_S: Final = 0.1
EXPLAIN: Final = signal.SIGUSR1
"""Sent to a laptop that does not end."""
PRELOADED: Final = ("antiphon.sdk.memory.memory_space", "antiphon.sdk.outbox.namespace")


class Deed(Struct, frozen=True, kw_only=True):
    """Something to do without a connection."""

    what: Literal["job", "call", "put", "message", "file"]
    text: str
    """The job's argument, the document's value, the message's payload, or the file's content."""
    where: str = ""
    """The document's key, or the message's receiver."""
    base: int = 0
    strategy: Strategy = "remote"


class LaptopConfig(Struct, frozen=True, kw_only=True):
    """One life of a laptop's process."""

    home: Path
    journal: Path
    log: Path
    deeds: tuple[Deed, ...] = ()
    """What to do; none: send what waits, and note what is told."""
    kind: str = ""
    """Of the jobs that a worker's process runs."""
    network: Path | None = None
    """The network namespace to live in; None for that of the parent."""
    kill_at: int = 0
    """The step at which it ends itself; 0: never."""


class Line(Struct, frozen=True, omit_defaults=True):
    """A line of a laptop's journal."""

    said: Literal["begins", "kept", "told", "steps", "claimed", "made", "late", "ran"]
    """A worker's process has `claimed` a job, and `made` steps and an end, which wait, unless its
    lease ended too early: `late`. `ran` is what is told of them."""
    number: int = 0
    """Of the deed or what was made; or how many steps there were."""
    name: str = ""
    """The job, the document or the message."""
    state: str = ""
    why: str = ""


def lines_of(journal: Path) -> list[Line]:
    """A laptop's journal; a last line that was cut off is left out."""
    text = journal.read_bytes() if journal.exists() else b""
    return [msgspec.json.decode(one, type=Line) for one in text.split(b"\n")[:-1]]


class Steps:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, kill_at: int) -> None:
        """`watch` has to be called first."""
        self._kill_at = kill_at
        self.done = 0

    def watch(self) -> None:
        """Count from now on, for the rest of this process."""
        for owner, name in (
            (os, "fsync"),
            (os, "replace"),
            (os, "unlink"),
            (WaitingBlobs, "send"),
            (Session, "commit"),
            (MessageClient, "put"),
        ):
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, really: Any) -> Any:
        if inspect.iscoroutinefunction(really):

            @functools.wraps(really)
            async def later(*given: Any, **how: Any) -> Any:
                self._count()
                found = await really(*given, **how)
                self._count()
                return found

            return later

        @functools.wraps(really)
        def now(*given: Any, **how: Any) -> Any:
            self._count()
            found = really(*given, **how)
            self._count()
            return found

        return now

    def _count(self) -> None:
        self.done += 1
        if self.done == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Laptop:
    """One life of a laptop."""

    def __init__(self, config: LaptopConfig) -> None:
        """Nothing is done yet."""
        self._config = config

    async def live(self) -> None:
        """Do everything that was not begun before, or send what waits."""
        steps = Steps(self._config.kill_at)
        steps.watch()
        async with Mesh.open(home=self._config.home, key=KEY, offline=True) as mesh:
            if self._config.deeds:
                await self._do_all(mesh)
            else:
                await self._send_all(mesh)
        self._note(Line("steps", steps.done))

    async def _do_all(self, mesh: Mesh) -> None:
        begun = {one.number for one in lines_of(self._config.journal) if one.said == "begins"}
        for number, deed in enumerate(self._config.deeds):
            if number in begun:
                continue  # whoever did it was killed, and nobody was promised anything
            self._note(Line("begins", number))
            self._note(Line("kept", number, await self._do(mesh, deed)))

    async def _do(self, mesh: Mesh, deed: Deed) -> str:
        match deed.what:
            case "job":
                job = {"command": ["true", deed.text], "timeout": 30}
                return (await mesh.submit_manifest(KIND, job)).id
            case "call":
                return (await mesh.submit(KIND, deed.text)).id
            case "file":
                file = self._config.journal.with_suffix(".txt")
                file.write_text(deed.text)
                return (await mesh.artifacts.keep(file)).hash.removeprefix("blake3:")
            case "put":
                how: Any = {"base": deed.base, "strategy": deed.strategy}
                result = await mesh.memory[SPACE].put(deed.where, deed.text, **how)
                if result.outcome != "tentative":
                    raise AssertionError(f"without a connection a put was {result.outcome}")
                return f"{SPACE}/{deed.where}"
            case "message":
                return await mesh.messages.send(deed.where, deed.text, key=deed.text)

    async def _send_all(self, mesh: Mesh) -> None:
        while any(one.state == "waiting" for one in mesh.outbox.items()):
            try:
                await mesh.outbox.send()
            except AntiphonError as problem:
                print(f"not sent: {problem!r}", file=sys.stderr, flush=True)
            await asyncio.sleep(AGAIN_S)
        for one in mesh.outbox.items():
            said: Literal["ran", "told"] = "ran" if isinstance(one.what, OfJob) else "told"
            self._note(Line(said, 0, one.what.name, one.state, one.why))
            mesh.outbox.told([one])

    def _note(self, line: Line) -> None:
        note(self._config, line)


def note(config: LaptopConfig, line: Line) -> None:
    """Write a line of the journal."""
    handle = os.open(config.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, msgspec.json.encode(line) + b"\n")
    finally:
        os.close(handle)


async def _explained(life: Coroutine[Any, Any, None]) -> None:
    """Live; a signal has the log say what everything waits for."""

    def explain() -> None:
        for task in asyncio.all_tasks():
            print(task.get_name(), file=sys.stderr)
            inner: Any = task.get_coro()
            while frame := getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None):
                print(f"  {frame.f_code.co_qualname}:{frame.f_lineno}", file=sys.stderr)
                inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)

    asyncio.get_running_loop().add_signal_handler(EXPLAIN, explain)
    await life


def run(config: LaptopConfig, life: Coroutine[Any, Any, None]) -> None:
    """A process of a laptop, from its beginning to its end: on its network, and with its log."""
    begin(config.log, network=config.network)
    asyncio.run(_explained(life))


def main(config: LaptopConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    run(config, Laptop(config).live())
