"""Where a mesh is reached: shown, announced by its host, and followed by its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.assembly.moving import announce_address, follow_address
from antiphon.sdk.environment import read_environment

if TYPE_CHECKING:
    from pathlib import Path


def known_addresses(home: Path | None = None) -> list[str]:
    """Where this machine looks for its mesh, in this order."""
    return read_environment().state_directory(home).mesh().engine.split(",")


async def change_address(address: str, *, home: Path | None = None) -> tuple[bool, str]:
    """On a mesh's host: announce where it will be. Elsewhere: look for the mesh there and keep it.

    Returns whether it was announced, and the address.
    """
    place = read_environment().state_directory(home)
    if place.hosts_mesh:
        return True, announce_address(place, address)
    return False, (await follow_address(place, address)).engine.partition(",")[0]


__all__ = ["change_address", "known_addresses"]
