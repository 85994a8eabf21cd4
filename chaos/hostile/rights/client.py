"""The hostile member of `chaos hostile --only reader --right R`, as a process of its own.

It has a login with one right, and does what it is told on standard input, a name per line: one of
the behaviours of its right, `everything`, `nowhere`, or `pause`. Beside them it keeps a plain
connection open: when the server ends that and accepts no new login, it is out. It prints JSON
events, as the reader does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from nats import errors as nats_errors

from antiphon import assembly
from antiphon.assembly.logins import log_in
from antiphon.errors import AntiphonError, RateLimited
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.messages.message_requests import REQUESTS, MessageRequest
from chaos.hostile.rights.behaviours import BEHAVIOURS
from chaos.hostile.rights.material import Material
from chaos.hostile.rights.member import Member, Step, repeat
from chaos.network.raw_connection import RawConnection

LOGIN_S: Final = 30.0
"""Long, since an attempt that is given up begins anew, and would never end on a slow machine."""
PAUSED_S: Final = 0.25
"""How often it asks again while it is paused."""


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "at_s": time.monotonic(), **fields}), flush=True)


async def nowhere(member: Member) -> None:
    """As much to sign and to send as otherwise, for nobody."""
    session, where = member.session, f"inbox.{member.session.engine.bus.user}.nobody"
    signed = REQUESTS.sign(
        MessageRequest(do="threads", agent="main", error=os.urandom(16).hex()),
        (member.key.did, member.key.sign),
        mesh=session.mesh,
        subject=where,
        at_ms=session.wall.now_ms(),
    )
    await session.engine.bus.publish(where, signed)
    await asyncio.sleep(0.001)


async def watch(home: StateDirectory) -> None:
    """Emit `shut out` once the server has ended a connection and accepts no login."""
    while True:
        try:
            raw = await RawConnection.open(home)
            await raw.ended.wait()
        except (nats_errors.Error, OSError, TimeoutError) as refused:
            while True:
                try:
                    await asyncio.wait_for(log_in(home, home.access(), ()), LOGIN_S)
                except RateLimited:  # for a while, and not for good
                    await asyncio.sleep(PAUSED_S)
                    continue
                except AntiphonError as denied:
                    emit("shut out", why=str(denied))
                    return
                except TimeoutError:
                    emit("no answer", why=str(refused))
                break
        await asyncio.sleep(0.02)


def steps_of(right: str, command: str) -> list[Step]:
    """What a command means."""
    known = BEHAVIOURS[right]
    if command == "nowhere":
        return [nowhere]
    return [*known.values()] if command == "everything" else [known[command]]


async def main(path: str, right: str, given: str) -> None:
    logging.disable(logging.WARNING)  # it is meant to be disconnected
    home = StateDirectory(Path(path))
    material = msgspec.msgpack.decode(Path(given).read_bytes(), type=Material)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    watching = asyncio.ensure_future(watch(home))
    async with assembly.join(home, "client") as connection:
        await connection.session.sync_control()
        member = Member(connection, material.for_right(right), material.others)
        emit("ready")
        under_way: asyncio.Task[None] | None = None
        while command := (await commands.readline()).decode().strip():
            while under_way is not None and not under_way.done():
                under_way.cancel()
                await asyncio.wait((under_way,), timeout=0.1)
            emit("flooded", sent=member.steps, cut_off=0)
            if command != "pause":
                under_way = asyncio.ensure_future(repeat(member, steps_of(right, command)))
    watching.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
