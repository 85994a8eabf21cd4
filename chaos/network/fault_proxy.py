"""A TCP proxy with faults: it is late, half open, or cut.

It stands between some clients and a server on loopback and is in one of four modes:

    normal  passes bytes on
    late    passes them on after a pause, in order
    frozen  passes nothing on and closes nothing: both ends think that they are connected
    cut     closes every connection and refuses new ones

Bytes that arrive while it is frozen are passed on afterwards, as on a network that comes back
before a timeout. What it holds back is bounded: a full pipe makes the sender wait.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from typing import Final, Literal, Self

Mode = Literal["normal", "late", "frozen", "cut"]
CHUNK_BYTES: Final = 64 * 1024


class FaultProxy:
    """A proxy in front of one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._mode: Mode = "normal"
        self._late_s = 0.0
        self._not_frozen = asyncio.Event()
        self._not_frozen.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Where clients connect instead of the server."""
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
        await self._close_connections()

    async def set_mode(self, mode: Mode, *, late_s: float = 0.0) -> None:
        """Change the mode; `cut` closes every open connection."""
        self._mode, self._late_s = mode, late_s
        if mode == "frozen":
            self._not_frozen.clear()
        else:
            self._not_frozen.set()
        if mode == "cut":
            await self._close_connections()

    async def _close_connections(self) -> None:
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
            if self._mode == "cut":
                return
            await self._not_frozen.wait()
            back, far = await asyncio.open_connection(*self._target)
            async with asyncio.TaskGroup() as tasks:
                forward = tasks.create_task(self._pass_on(reader, far))
                backward = tasks.create_task(self._pass_on(back, writer))
                await asyncio.wait((forward, backward), return_when=asyncio.FIRST_COMPLETED)
                forward.cancel()
                backward.cancel()
        except (OSError, asyncio.CancelledError):
            return  # the server is down, or the proxy closes it: the client sees its end close
        finally:
            self._pipes.discard(pipe)
            for end in (writer, far):
                if end is not None:
                    with suppress(OSError):
                        end.transport.abort()

    async def _pass_on(self, source: StreamReader, target: StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(CHUNK_BYTES):
                if self._mode == "late":
                    await asyncio.sleep(self._late_s)
                await self._not_frozen.wait()
                target.write(chunk)
                await target.drain()
