"""Addresses with a time, such as `JOB;beats=~~4`, on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import err

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.sdk.mesh import Line, Mesh
    from antiphon.sdk.tempo.addresses import Address as Address  # noqa: PLC0414 - commands


def read_address(text: str) -> Address:
    """The parts of an address; a deprecated form is read with a warning."""
    from antiphon.sdk.tempo.addresses import parse_address

    address = parse_address(text)
    if address.warning:
        err.say("!", f" {address.warning}", style="running")
    return address


def moment_of(address: Address, home: Path | None) -> datetime:
    """When something that is submitted to such an address may begin."""
    found: list[int] = []

    async def ask() -> int:
        async with open_mesh(home) as mesh:
            await mesh.tempo()
            clock = mesh.clock
            found.append(address.begins_ms(clock.meter(), clock.phases(), clock.now_ms()))
        return Exit.OK

    command_loop.run(ask())
    return datetime.fromtimestamp(found[0] / 1000, UTC)


async def happened_at(mesh: Mesh, address: Address, story: list[Line]) -> list[Line]:
    """The lines of a story that belong to such an address."""
    await mesh.tempo()
    clock = mesh.clock
    meter, phases, now_ms = clock.meter(), clock.phases(), clock.now_ms()
    return [one for one in story if address.includes(one.commit_ms, meter, phases, now_ms)]
