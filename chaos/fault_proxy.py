"""A TCP proxy that misbehaves on purpose: late, half open, or cut.

It stands between some clients and a server on loopback and can be in one of four moods:

    fine    passes bytes on
    late    passes them on after a pause, in order
    frozen  passes nothing on and closes nothing: both ends believe in a connection that is none
    cut     closes every connection and refuses new ones

Bytes that arrive while it is frozen are passed on afterwards, as a network does that comes back
before anybody gave up. What it holds back is bounded: a full pipe makes the sender wait.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from typing import Final, Literal, Self

Mood = Literal["fine", "late", "frozen", "cut"]
PIECE_BYTES: Final = 64 * 1024


class FaultProxy:
    """One way to a server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._mood: Mood = "fine"
        self._late_s = 0.0
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Where clients connect instead."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._pipes)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        await self._hang_up()

    async def be(self, mood: Mood, *, late_s: float = 0.0) -> None:
        """Change the mood; from `cut` on, what was open is closed."""
        self._mood, self._late_s = mood, late_s
        if mood == "frozen":
            self._thawed.clear()
        else:
            self._thawed.set()
        if mood == "cut":
            await self._hang_up()

    async def _hang_up(self) -> None:
        for pipe in self._pipes:
            pipe.cancel()
        if self._pipes:
            await asyncio.wait(set(self._pipes))

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        pipe = asyncio.current_task()
        assert pipe is not None
        self._pipes.add(pipe)
        far: StreamWriter | None = None
        try:
            if self._mood == "cut":
                return
            await self._thawed.wait()
            back, far = await asyncio.open_connection(*self._target)
            async with asyncio.TaskGroup() as tasks:
                there = tasks.create_task(self._pass_on(reader, far))
                home = tasks.create_task(self._pass_on(back, writer))
                await asyncio.wait((there, home), return_when=asyncio.FIRST_COMPLETED)
                there.cancel()
                home.cancel()
        except (OSError, asyncio.CancelledError):
            return  # the server is down, or the proxy hangs up: the client sees its end close
        finally:
            self._pipes.discard(pipe)
            for end in (writer, far):
                if end is not None:
                    with suppress(OSError):
                        end.transport.abort()

    async def _pass_on(self, source: StreamReader, target: StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(PIECE_BYTES):
                if self._mood == "late":
                    await asyncio.sleep(self._late_s)
                await self._thawed.wait()
                target.write(piece)
                await target.drain()
