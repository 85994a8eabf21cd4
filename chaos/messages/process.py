"""The processes of a run: the gate, some agents, and one that floods."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.assembly.hosted_mesh import gatekeeping
from antiphon.errors import AntiphonError, InboxFull, RateLimited, Unavailable
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.messages.received_message import ReceivedMessage
from chaos.cluster.child_process import begin
from chaos.messages.journal import Journal, read_journal

KEY: Final = "agent"
AGAIN_S: Final = 0.3
LEASE_S: Final = 30.0
IN_FLIGHT: Final = 1
"""Messages that one agent is sending at a time."""
ACKS_AT_ONCE: Final = 8


class AgentConfig(Struct, frozen=True, kw_only=True):
    """The agents of one process."""

    homes: dict[int, Path]
    journals: Path
    addresses: dict[int, str]
    count: int
    """Messages from each agent to each other one."""
    pause_s: float
    """Between two messages of one agent."""
    log: Path
    lease_s: float = LEASE_S
    """How long a message is with a reader that does not settle it."""


class GateConfig(Struct, frozen=True, kw_only=True):
    """The gate's process."""

    home: Path
    log: Path


class FloodConfig(Struct, frozen=True, kw_only=True):
    """One that sends as much as it can to one inbox."""

    home: Path
    to: str
    told: Path
    """Where it writes how often it was told to stop."""
    log: Path


# --- the gate -----------------------------------------------------------------------------------


async def keep_gate(config: GateConfig) -> None:
    """Be the mesh's gate until killed."""
    home = StateDirectory(config.home)
    while True:
        try:
            async with (
                Mesh.open(home=config.home, key="gate") as mesh,
                gatekeeping(home, mesh.connection.session),
            ):
                await asyncio.get_running_loop().create_future()
        except AntiphonError as problem:
            print(f"gate: {problem!r}", file=sys.stderr, flush=True)
            await asyncio.sleep(AGAIN_S)


# --- agents -------------------------------------------------------------------------------------


async def be_agents(config: AgentConfig) -> None:
    """Send and read for all agents of this process until killed."""
    async with asyncio.TaskGroup() as group:
        for number in config.homes:
            group.create_task(_be_agent(config, number))


async def _be_agent(config: AgentConfig, me: int) -> None:
    path = config.journals / f"{me}.journal"
    stored = Counter(line.key.rpartition(".")[0] for line in read_journal(path) if line.what == "A")
    journal = Journal(path)
    while True:
        try:
            async with (
                Mesh.open(home=config.homes[me], key=KEY) as mesh,
                asyncio.TaskGroup() as group,
            ):
                reading = group.create_task(_read(mesh, journal, config.lease_s))
                room = asyncio.Semaphore(IN_FLIGHT)
                for other, address in config.addresses.items():
                    if other != me:
                        pair = f"{me}.{other}"
                        rest = range(stored[pair], config.count)
                        thread = Thread(pair, address, rest, config.pause_s)
                        group.create_task(_send_all(mesh, journal, room, thread))
                await reading
        except* AntiphonError as problems:
            print(f"agent {me}: {problems.exceptions!r}", file=sys.stderr, flush=True)
            await asyncio.sleep(AGAIN_S)
            lines = read_journal(path)
            stored = Counter(one.key.rpartition(".")[0] for one in lines if one.what == "A")


class Thread(Struct, frozen=True):
    """The messages from one agent to another."""

    pair: str
    to: str
    rest: range
    pause_s: float


async def _send_all(mesh: Mesh, journal: Journal, room: asyncio.Semaphore, thread: Thread) -> None:
    """One message after the other; the same message until it is confirmed."""
    pair, to = thread.pair, thread.to
    for number in thread.rest:
        key = f"{pair}.{number}"
        async with room:
            journal.write("S", key)
            while True:
                try:
                    await mesh.messages.send(to, {"n": number}, kind="chaos", key=key, thread=pair)
                    break
                except RateLimited as limited:
                    await asyncio.sleep(limited.retry_s)
                except (InboxFull, Unavailable):
                    await asyncio.sleep(AGAIN_S)
            journal.write("A", key)
            await asyncio.sleep(thread.pause_s)


async def _read(mesh: Mesh, journal: Journal, lease_s: float) -> None:
    """Messages that are here together are of different threads: they are settled together."""
    room = asyncio.Semaphore(ACKS_AT_ONCE)

    async def settle(message: ReceivedMessage) -> None:
        async with room:
            with suppress(AntiphonError):  # else it is handed out again
                await message.ack()
                journal.write("K", message.key)

    async with asyncio.TaskGroup() as group:
        async for message in mesh.messages.inbox(lease=lease_s, prefetch=ACKS_AT_ONCE):
            journal.write("H", message.key)
            group.create_task(settle(message))


# --- the flood ----------------------------------------------------------------------------------


async def flood(config: FloodConfig) -> None:
    """Send to one inbox without a pause, many at a time."""
    os.nice(15)  # it is another machine: its own work must not slow the others down here
    told = os.open(config.told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    async with Mesh.open(home=config.home, key=KEY) as mesh:

        async def pour(lane: int) -> None:
            number = 0
            while True:
                number += 1
                try:
                    await mesh.messages.send(
                        config.to, "x" * 200, kind="chaos", key=f"flood.{lane}.{number}"
                    )
                    os.write(told, b".")
                except RateLimited:
                    os.write(told, b"!")
                except AntiphonError:
                    os.write(told, b"?")

        async with asyncio.TaskGroup() as group:
            for lane in range(32):
                group.create_task(pour(lane))


def main(config: AgentConfig | GateConfig | FloodConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    begin(config.log)
    match config:
        case AgentConfig():
            asyncio.run(be_agents(config))
        case GateConfig():
            asyncio.run(keep_gate(config))
        case FloodConfig():
            asyncio.run(flood(config))
