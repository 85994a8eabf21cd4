"""A contender for the locks, in a process of its own. It writes down what it did and when."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from antiphon import assembly
from antiphon.core.policy.locks.lock_time import fixed
from antiphon.errors import AntiphonError, Held, LockLost, Unavailable
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.log.session import Session
from antiphon.sdk.locks.lock import Lock
from chaos.cluster.child_process import begin

SCOPE: Final = "chaos.locks"
TTL_MS: Final = 2_000
WAIT_S: Final = 8.0
JOIN_S: Final = 120.0
HOLD_S: Final = (0.0, 0.03)
Event = Literal["ask", "got", "check", "refused", "let", "free", "lost", "none"]


class ContenderConfig(Struct, frozen=True, kw_only=True):
    """How such a process works."""

    home: Path
    key: str
    directory: Path
    keys: int
    seed: int


def end_of(directory: Path) -> Path:
    """Where it says when the run ends, once everybody is there: by a clock that all share."""
    return directory / "ends"


class Note(Struct, frozen=True, array_like=True):
    """One thing that happened, as the journal has it."""

    event: Event
    key: str
    number: int
    """Of the attempt, within its process."""
    at_s: float
    fence: str = ""


def notes_of(journal: Path) -> list[Note]:
    """A journal; a last line that was cut off is left out."""
    text = journal.read_bytes() if journal.exists() else b""
    return [msgspec.json.decode(line, type=Note) for line in text.split(b"\n")[:-1]]


def witness(directory: Path, key: str, fence: str, who: str) -> bool:
    """Write on the one shared page; False if somebody with a higher fence was there before."""
    with (directory / f"{key}.witness").open("a+", encoding="ascii") as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        page.seek(0, os.SEEK_END)
        page.seek(max(page.tell() - 200, 0))
        last = page.read().strip().rpartition("\n")[2]
        if last and last.split()[0] > fence:
            return False
        page.write(f"{fence} {who}\n")
        return True


class Contender:
    """Takes one of the locks after the other, until the time is over."""

    def __init__(self, config: ContenderConfig, session: object, journal: int) -> None:
        self._config = config
        self._session = session
        self._journal = journal
        self._chance = random.Random(f"{config.key} {config.seed} {os.getpid()}")
        self._number = 0

    async def run(self) -> None:
        while not (told := end_of(self._config.directory)).exists():
            await asyncio.sleep(0.05)
        ends_s = float(told.read_text())
        while time.monotonic() < ends_s:
            self._number += 1
            key = f"lock-{self._chance.randrange(self._config.keys)}"
            self._note("ask", key)
            try:
                await self._hold(key)
            except (Held, LockLost) as problem:
                self._note("lost" if isinstance(problem, LockLost) else "none", key)
            except AntiphonError as problem:
                print(f"{key}: {problem}", file=sys.stderr, flush=True)
                self._note("lost", key)
                await asyncio.sleep(0.1)

    async def _hold(self, key: str) -> None:
        name, time_of = self._config.key, fixed(TTL_MS)
        line = LockLine(self._session, SCOPE, key, "main")  # type: ignore[arg-type]
        async with Lock(line, lambda _after_ms: time_of, WAIT_S) as lock:
            self._note("got", key, lock.fence)
            for _ in range(3):
                at_s = time.monotonic()  # before the check: what is certain then was certain now
                if lock.is_held:
                    self._write(Note("check", key, self._number, at_s, lock.fence))
                if not witness(self._config.directory, key, lock.fence, name):
                    self._note("refused", key, lock.fence)
                await asyncio.sleep(self._chance.uniform(*HOLD_S))
            fence = lock.fence
            self._note("let", key, fence)
        self._note("free", key, fence)

    def _note(self, event: Event, key: str, fence: str = "") -> None:
        self._write(Note(event, key, self._number, time.monotonic(), fence))

    def _write(self, note: Note) -> None:
        os.write(self._journal, msgspec.json.encode(note) + b"\n")


async def contend(config: ContenderConfig) -> None:
    """Contend until the time is over, or killed."""
    async with AsyncExitStack() as stack:
        session = await _joined(stack, config)
        journal = config.directory / f"{config.key}.{os.getpid()}.journal"
        handle = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        await Contender(config, session, handle).run()


async def _joined(stack: AsyncExitStack, config: ContenderConfig) -> Session:
    """Log in, again if need be: all start at once, and a server may be down just then."""
    deadline = time.monotonic() + JOIN_S
    while True:
        join = assembly.join(StateDirectory(config.home), "client", key=config.key)
        try:
            connection = await stack.enter_async_context(join)
            await connection.session.sync_control()
        except Unavailable:
            if time.monotonic() > deadline:
                raise
        else:
            return connection.session


def main(config: ContenderConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    begin(config.directory / f"{config.key}.log")
    asyncio.run(contend(config))
