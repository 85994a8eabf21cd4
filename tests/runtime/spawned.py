"""Handlers at the top level of a module, where another process finds them."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from antiphon import GiveUp, JobContext
from tests.runtime.inference.exchanges import calls_a_model

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def add(a: int, b: int) -> int:
    return a + b


async def slowly(a: int) -> int:
    await asyncio.sleep(0.01)
    return a


def whoami() -> list[int]:
    return [os.getpid(), os.getppid()]


def environment() -> dict[str, str]:
    return dict(os.environ)


def open_files() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return found


def about(ctx: JobContext) -> list[object]:
    ctx.progress(0.5, "half")
    return [ctx.kind, ctx.attempt, ctx.fence]


def missing_file() -> None:
    raise FileNotFoundError("no such file")


def hopeless() -> None:
    raise GiveUp("never")


def leave() -> None:
    sys.exit(3)


def vanish() -> None:
    os._exit(0)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


ORPHAN = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.DEVNULL)
print(child.pid)
"""


def endless(notes: str) -> None:
    """Start a family, some of whom run away from home, write down who they are, and stay."""
    family = [subprocess.Popen(SLEEPER), subprocess.Popen(SLEEPER, start_new_session=True)]
    ran_away = subprocess.run(
        [sys.executable, "-c", ORPHAN, *SLEEPER], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    pids = [os.getpid(), *(one.pid for one in family), int(ran_away)]
    Path(notes).write_text(" ".join(map(str, pids)))
    time.sleep(600)


def stubborn(notes: str) -> None:
    """Say who is here, and take no notice of anything."""
    Path(notes).write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def reports_a_device(device: str, seconds: float, ctx: JobContext) -> None:
    """Say that a device was used, a little at a time."""
    ctx.used(gpu_sec={device: seconds - 0.5})
    ctx.used(gpu_sec={device: 0.5})


def spins() -> None:
    """Use a processor until somebody ends it."""
    while True:
        pass


def resumed(ctx: JobContext) -> list[object]:
    """Stores how far it came, fails, and goes on from there."""
    done = (ctx.last_checkpoint or b"").decode()
    if not done:
        ctx.checkpoint(b"1")
        is_saved = ctx.checkpoint(b"1,2").wait(60)
        raise ValueError(f"saved: {is_saved}")
    return [done, ctx.phase in {"plan", "work", "review"} and 1 <= ctx.beat <= 8]


def overruns_review(ctx: JobContext) -> str:
    """Moves on to its last phase at once, and stays there."""
    ctx.next_phase()
    ctx.next_phase()
    ctx.stop.wait(60)
    return "too late"


def talks(steps: int) -> int:
    for step in range(steps):
        print("step", step)
    logging.getLogger("spawned").warning("logged")
    print("no line break", end="")
    return steps


def _noted(notes: str, word: str) -> str:
    """A step that leaves a line in a file each time that it is computed."""
    with Path(notes).open("a") as file:
        file.write(f"{word}\n")
    return word.upper()


def _too_long(size: int) -> str:
    return "x" * size


def takes_steps(notes: str, ctx: JobContext) -> list[str]:
    """Fails once, after two steps: the second attempt has their results."""
    first = ctx.step("first", _noted, notes, "a").wait()
    large = ctx.step("large", _too_long, 100_000).wait()
    if ctx.attempt == 1:
        raise ValueError("once")
    return [first, large[:1] * (len(large) // 50_000), ctx.step("last", _noted, notes, "b").wait()]


async def takes_steps_in_a_loop(notes: str, ctx: JobContext) -> list[str]:
    """The same as a coroutine."""
    first = await ctx.step("first", _noted, notes, "a")
    large = await ctx.step("large", _too_long, 100_000)
    if ctx.attempt == 1:
        raise ValueError("once")
    return [first, large[:1] * (len(large) // 50_000), await ctx.step("last", _noted, notes, "b")]


def takes_one_step_twice(notes: str, ctx: JobContext) -> None:
    """Two steps of one name: an error, and no second computation."""
    ctx.step("same", _noted, notes, "a").wait()
    ctx.step("same", _noted, notes, "b").wait()


def asking(ctx: JobContext) -> str:
    return ctx.ask("deploy?", kind="approve.deploy", choices=("yes", "no")).wait()


def calls_models(count: int) -> int:
    for number in range(count):
        calls_a_model(f"call {number}")
    return count
