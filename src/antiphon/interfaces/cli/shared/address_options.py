"""Addresses with a time, such as `JOB;beats=~~4`, on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from antiphon.interfaces.cli.screen.durations import beginning_in_words
from antiphon.interfaces.cli.screen.terminal import counted, err

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Line, Mesh
    from antiphon.sdk.tempo.addresses import Address as Address  # noqa: PLC0414 - commands


def read_address(text: str) -> Address:
    """The parts of an address; a deprecated form is read with a warning."""
    from antiphon.sdk.tempo.addresses import parse_address

    address = parse_address(text)
    if address.warning:
        err.say("!", f" {address.warning}", style="running")
    return address


async def begins_at(mesh: Mesh, address: Address, *, is_silent: bool) -> datetime:
    """When something that is submitted to such an address may begin."""
    await _listen(mesh, is_silent=is_silent)
    clock = mesh.tempo.clock
    now_ms = clock.now_ms()
    begins_ms = address.begins_ms(clock.meter(), clock.phases(), now_ms)
    if not is_silent:
        words = beginning_in_words(begins_ms // 1000, now_ms // 1000)
        err.say(
            f"it may begin {words}: {counted(clock.meter().beats_until(now_ms, begins_ms), 'beat')}"
        )
    return datetime.fromtimestamp(begins_ms / 1000, UTC)


async def happened_at(
    mesh: Mesh, address: Address, story: list[Line], *, is_silent: bool
) -> list[Line]:
    """The lines of a story that belong to such an address."""
    await _listen(mesh, is_silent=is_silent)
    clock = mesh.tempo.clock
    meter, now_ms, stamps = clock.meter(), clock.now_ms(), await mesh.tempo.history()
    return [
        one
        for one in story
        if address.includes(one.commit_ms, stamps.at(one.commit_ms).phase, meter, now_ms)
    ]


async def _listen(mesh: Mesh, *, is_silent: bool) -> None:
    """Hear a beat, which takes up to a beat and a quarter."""
    if not is_silent:
        err.say("listening for a beat of the mesh, to count from")
    await mesh.tempo.now()
