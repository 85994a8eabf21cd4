"""The read-only member of `chaos hostile --only reader`, as a process of its own.

It holds a login and a raw connection, and floods what it is told on standard input, a name per
line: one of `FLOODS`, `nowhere`, `everything`, or `pause`. When it is
disconnected it reconnects, with a new login if need be, until it gets none. It prints JSON events.
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
from antiphon.runtime.identity.state_directory import StateDirectory
from chaos.hostile.reader.floods import BY_REFRESH_KEY, FLOODS, Reader, everything, nowhere
from chaos.network.raw_connection import Credentials, RawConnection

BURST: Final = 64
KEPT_BYTES: Final = 1 << 20


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "at_s": time.monotonic(), **fields}), flush=True)


class Flooder:
    """One member with a raw client."""

    def __init__(
        self, home: StateDirectory, owner: str, cids: list[str], others: list[str]
    ) -> None:
        self._home = home
        self._owner, self._cids, self._others = owner, tuple(cids), tuple(others)
        self._connections: dict[bool, RawConnection] = {}
        """By whether it uses the refresh key."""
        self.sent = 0
        self.cut_off = 0

    async def connect(self, *, by_refresh_key: bool = False) -> RawConnection:
        """Log in, as often as it takes; `Rejected` once no login is accepted."""
        connection = self._connections.get(by_refresh_key)
        while connection is None or not connection.is_open:
            if connection is not None:
                emit("cut off", errors=connection.errors[-2:])
                self.cut_off += 1
                with suppress(Exception):
                    await connection.close()
            connection = await self._open(by_refresh_key=by_refresh_key)
            if connection is not None:
                self._connections[by_refresh_key] = connection
        return connection

    async def _open(self, *, by_refresh_key: bool) -> RawConnection | None:
        access = self._home.access()
        try:
            credentials = (
                Credentials(access.refresh_jwt, access.refresh_seed) if by_refresh_key else None
            )
            connection = await RawConnection.open(self._home, credentials)
            inboxes = (connection.inbox, f"apb.{connection.mesh}.inbox.{connection.user}")
            for number, inbox in enumerate(inboxes, start=1000):
                await connection.send(b"SUB %b.flood %d\r\n" % (inbox.encode(), number))
            await connection.flush()
        except (nats_errors.Error, OSError, TimeoutError):
            with suppress(EngineDenied):  # the refresh key's own login is refused: nobody knows it
                await asyncio.wait_for(log_in(self._home, access, ()), 10)
                return None
            raise Rejected("the server accepts no login of it any more", reason="login") from None
        return connection

    async def reader(self) -> Reader:
        connection, access = await self.connect(), self._home.access()
        return Reader(
            mesh=connection.mesh,
            stream=connection.stream,
            user=connection.user,
            refresh_key=access.refresh_key,
            inbox=connection.inbox,
            key=self._home.signer("machine"),
            owner=self._owner,
            revoked=self._cids,
            others=self._others,
        )

    async def write(self, frames: Iterator[bytes], *, by_refresh_key: bool) -> None:
        """Send as much as the connection takes."""
        while True:
            connection = await self.connect(by_refresh_key=by_refresh_key)
            with suppress(nats_errors.Error, OSError):
                await connection.write(b"".join(itertools.islice(frames, BURST)))
                self.sent += BURST
            if len(connection.received) > KEPT_BYTES:
                connection.received.clear()
            await asyncio.sleep(0)


async def flood(flooder: Flooder, name: str) -> None:
    made = await flooder.reader()
    known = {**FLOODS, "nowhere": nowhere, "everything": everything}
    try:
        await flooder.write(known[name](made), by_refresh_key=name in BY_REFRESH_KEY)
    except (AntiphonError, TimeoutError) as refused:
        emit("shut out", why=str(refused))


async def main(path: str, owner: str, cids: str, others: str) -> None:
    flooder = Flooder(StateDirectory(Path(path)), owner, cids.split(","), others.split(","))
    await flooder.connect()
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    emit("ready")
    under_way: asyncio.Task[None] | None = None
    while command := (await commands.readline()).decode().strip():
        if under_way is not None:
            while not under_way.done():  # nats-py may swallow a cancellation
                under_way.cancel()
                await asyncio.wait((under_way,), timeout=0.1)
        emit("flooded", sent=flooder.sent, cut_off=flooder.cut_off)
        if command != "pause":
            under_way = asyncio.ensure_future(flood(flooder, command))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
