"""The hostile member of `chaos hostile --only reader --right R --over http`, as a process.

It does what it is told on standard input, a name per line: a flood of its right (`floods`),
`everything`, `whole mesh` (what the right allows at the engine, through `Mesh.connect`), `nothing`,
or `pause`. It prints JSON events, as the reader does.

`nothing` is what a flood is compared with: as many bytes and connections a second as the flood
before it had, to a process that reads them and does nothing; and as much of this processor.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.assembly.mesh_connection import connect_by_http
from antiphon.core.bus.http_request import Asked
from antiphon.errors import AntiphonError
from antiphon.runtime.identity.state_directory import StateDirectory
from chaos.hostile.http.floods import HAS_WHOLE_MESH, WHOLE_MESH, Attacks, flood_of, repeat
from chaos.hostile.http.member import HttpMember, http_home, prepare
from chaos.hostile.rights import member as native
from chaos.hostile.rights.behaviours import BEHAVIOURS
from chaos.hostile.rights.material import Material
from chaos.network.http_wire import Wire

TICK_S: Final = 0.02
LOOK_S: Final = 0.1
"""How often it asks whether it is out."""
ELSEWHERE: Final = "127.0.0.9"
NOTHING: Final = "nothing"


class Effort(Struct, frozen=True):
    """What a flood took of this process, and sent, a second."""

    opened: float = 0.0
    sent: float = 0.0
    cpu: float = 0.0


class Flooder:
    """One member's process."""

    def __init__(self, member: HttpMember, right: str, node: int, sink: int) -> None:
        """`node` and `sink` are ports."""
        self.member = member
        self.right = right
        self._node, self._sink = node, sink
        member.port = node
        self._attacks = Attacks(member)
        self.effort = Effort()
        self._begun = (time.monotonic(), 0, 0, time.process_time())

    def begin(self) -> None:
        """Measure from here on."""
        traffic = self.member.traffic
        self._begun = (time.monotonic(), traffic.opened, traffic.sent, time.process_time())

    def note_effort(self) -> None:
        """What it did since it began."""
        at_s, opened, sent, cpu_s = self._begun
        took_s = max(time.monotonic() - at_s, 0.001)
        traffic = self.member.traffic
        self.effort = Effort(
            opened=(traffic.opened - opened) / took_s,
            sent=(traffic.sent - sent) / took_s,
            cpu=(time.process_time() - cpu_s) / took_s,
        )

    async def flood(self, name: str, home: StateDirectory) -> None:
        """Do one thing, or all of them."""
        self.member.port = self._node
        async with asyncio.TaskGroup() as tasks:
            if name != WHOLE_MESH:
                tasks.create_task(repeat(flood_of(self.right, name), self._attacks))
            if name == WHOLE_MESH or (name == "everything" and self.right in HAS_WHOLE_MESH):
                tasks.create_task(whole_mesh(home, self))

    async def send_nothing(self) -> None:
        """As much as the flood before, to the sink."""
        self.member.port = self._sink
        effort, key = self.effort, self.member.keys[0]
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        wire, opened, sent = self.member.wire(), 0, 0
        try:
            while True:
                there_s = time.monotonic() - begun_s
                while opened < effort.opened * there_s:
                    await wire.open()
                    opened += 1
                due = int(effort.sent * there_s) - sent
                if due > 0:
                    await wire.send(bytes(due))
                    sent += due
                until_s = time.monotonic() + TICK_S
                while (
                    time.process_time() - begun_cpu_s < effort.cpu * there_s
                    and time.monotonic() < until_s
                ):
                    key.sign("nothing", b"nothing")
                await asyncio.sleep(max(until_s - time.monotonic(), 0.0))
        finally:
            wire.close()


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "at_s": time.monotonic(), **fields}), flush=True)


async def watch(flooder: Flooder, port: int) -> None:
    """Emit `shut out` once neither a signature nor a token of its last key counts any more.

    It asks from an address of its own, which the floods' address does not slow down.
    """
    wire = Wire(port, source=ELSEWHERE)
    while True:
        await asyncio.sleep(LOOK_S)
        with suppress(OSError, TimeoutError):
            if await _is_out(flooder.member, wire):
                emit("shut out", why="none of its signatures and tokens counts any more")
                return


async def _is_out(member: HttpMember, wire: Wire) -> bool:
    body, key = b'{"ask":"end"}', member.keys[-1]
    header = member.signature(Asked("POST", "/v1/log", body), key)
    answers = [await wire.ask("POST", "/v1/log", body, authorization=header)]
    for role in member.roles:
        token = member.token(role, key)
        answers.append(await wire.ask("GET", "/v1/tempo", authorization=token))
    return all(answer.status == HTTPStatus.UNAUTHORIZED for answer in answers)


async def whole_mesh(home: StateDirectory, flooder: Flooder) -> None:
    """What the right allows at the engine, as a program that reaches the mesh over HTTP."""
    material = flooder.member.material
    url = f"http://127.0.0.1:{flooder.member.port}"
    while True:
        with suppress(AntiphonError):
            async with connect_by_http(http_home(home), url, flooder.member.mesh) as connection:
                await connection.session.sync_control()
                jobs = material.for_right(flooder.right)
                one = native.Member(connection, jobs, material.others)
                await native.repeat(one, [*BEHAVIOURS[flooder.right].values()])
        await asyncio.sleep(LOOK_S)


async def _until_told(home: StateDirectory, flooder: Flooder) -> None:
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    emit("ready")
    under_way: asyncio.Future[None] | None = None
    is_flood = False
    while command := (await commands.readline()).decode().strip():
        if under_way is not None:
            if under_way.done() and under_way.exception() is not None:
                emit("failed", why=repr(under_way.exception()))
            if is_flood:
                flooder.note_effort()
            while not under_way.done():
                under_way.cancel()
                await asyncio.wait((under_way,), timeout=0.1)
        traffic = flooder.member.traffic
        emit(
            "flooded",
            sent=traffic.sent,
            answered=traffic.answered,
            statuses=dict(traffic.statuses),
            cut_off=traffic.opened,
            effort=msgspec.to_builtins(flooder.effort),
        )
        is_flood = command not in (NOTHING, "pause")
        flooder.begin()
        if command == NOTHING:
            under_way = asyncio.ensure_future(flooder.send_nothing())
        elif command != "pause":
            under_way = asyncio.ensure_future(flooder.flood(command, home))


async def main(path: str, right: str, given: str, node: str, sink: str) -> None:
    logging.disable(logging.WARNING)  # it is meant to be refused
    home = StateDirectory(Path(path))
    material = msgspec.msgpack.decode(Path(given).read_bytes(), type=Material)
    member = await prepare(home, material, every_kind=right == "read")
    flooder = Flooder(member, right, int(node), int(sink))
    watching = asyncio.ensure_future(watch(flooder, int(node)))
    await _until_told(home, flooder)
    watching.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
