"""The read-only member of `chaos hostile --only reader`, as a process of its own.

It holds a login and a raw connection, and floods what it is told on standard input, a name per
line: one of `FLOODS`, `nowhere`, `everything`, or `pause`. Cut off, it comes back by itself, with
a new login if need be, until nobody gives it one. What it says is JSON, a line each.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nats import errors as nats_errors

from antiphon.assembly.logins import log_in
from antiphon.errors import AntiphonError, EngineDenied, Rejected
from antiphon.runtime.home import Home
from chaos.hostile_reader_floods import BY_DOOR, FLOODS, Reader, everything, nowhere
from chaos.outsider_line import Line, Pass

BURST: Final = 64
KEPT_BYTES: Final = 1 << 20
COME_BACK_S: Final = 0.2


def say(event: str, **told: object) -> None:
    print(json.dumps({"event": event, "at_s": time.monotonic(), **told}), flush=True)


class Flooder:
    """One member with a raw client."""

    def __init__(self, home: Home, owner: str, cids: list[str], others: list[str]) -> None:
        self._home = home
        self._owner, self._cids, self._others = owner, tuple(cids), tuple(others)
        self._lines: dict[bool, Line] = {}
        """By whether it is its door key's."""
        self.sent = 0
        self.cut_off = 0

    async def enter(self, *, by_door: bool = False) -> Line:
        """Log in, as often as it takes; `Rejected` if nobody lets it."""
        line = self._lines.get(by_door)
        while line is None or not line.is_up:
            if line is not None:
                say("cut off", errors=line.errors[-2:])
                self.cut_off += 1
                with suppress(Exception):
                    await line.close()
            line = await self._open(by_door=by_door)
            if line is not None:
                self._lines[by_door] = line
        return line

    async def _open(self, *, by_door: bool) -> Line | None:
        access = self._home.access()
        try:
            held = Pass(access.door_jwt, access.door_seed) if by_door else None
            line = await Line.open(self._home, held)
            inboxes = (line.inbox, f"apb.{line.mesh}.inbox.{line.user}")
            for number, inbox in enumerate(inboxes, start=1000):
                await line.send(b"SUB %b.flood %d\r\n" % (inbox.encode(), number))
            await line.flush()
        except (nats_errors.Error, OSError, TimeoutError):
            with suppress(EngineDenied):  # the door's own login is refused: nobody knows it
                await asyncio.wait_for(log_in(self._home, access, ()), 10)
                return None
            raise Rejected("the server lets it in no more", reason="login") from None
        return line

    async def reader(self) -> Reader:
        line, access = await self.enter(), self._home.access()
        return Reader(
            mesh=line.mesh,
            stream=line.stream,
            user=line.user,
            door=access.door,
            inbox=line.inbox,
            key=self._home.signer("machine"),
            owner=self._owner,
            revoked=self._cids,
            others=self._others,
        )

    async def pour(self, frames: Iterator[bytes], *, by_door: bool) -> None:
        """As much as the connection takes."""
        while True:
            line = await self.enter(by_door=by_door)
            with suppress(nats_errors.Error, OSError):
                await line.pour(b"".join(itertools.islice(frames, BURST)))
                self.sent += BURST
            if len(line.received) > KEPT_BYTES:
                line.received.clear()
            await asyncio.sleep(0)


async def flood(flooder: Flooder, name: str) -> None:
    made = await flooder.reader()
    known = {**FLOODS, "nowhere": nowhere, "everything": everything}
    try:
        await flooder.pour(known[name](made), by_door=name in BY_DOOR)
    except (AntiphonError, TimeoutError) as refused:
        say("shut out", why=str(refused))


async def main(path: str, owner: str, cids: str, others: str) -> None:
    flooder = Flooder(Home(Path(path)), owner, cids.split(","), others.split(","))
    await flooder.enter()
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    say("ready")
    under_way: asyncio.Task[None] | None = None
    while command := (await commands.readline()).decode().strip():
        if under_way is not None:
            while not under_way.done():  # nats-py may swallow a cancellation
                under_way.cancel()
                await asyncio.wait((under_way,), timeout=0.1)
        say("flooded", sent=flooder.sent, cut_off=flooder.cut_off)
        if command != "pause":
            under_way = asyncio.ensure_future(flood(flooder, command))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
