"""A mesh at another address: its host announces it, its members go there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from antiphon.assembly.backups import require_host
from antiphon.assembly.logins import Purpose, connect
from antiphon.assembly.mesh_connection import OWNER
from antiphon.errors import EngineDenied, Misconfigured
from antiphon.runtime.gate.addresses import announce, check_address, with_address

if TYPE_CHECKING:
    from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory


def announce_address(home: StateDirectory, address: str) -> str:
    """Have this host's gate tell members where the mesh will be; the address as they keep it."""
    described = require_host(home)
    if not described.ca:
        raise Misconfigured(
            f"{home.path} has a development mesh, which only this machine can reach",
            hint="'antiphon init' makes a mesh for several machines",
        )
    engine = check_address(address)
    now_ms = time.time_ns() // 1_000_000
    announce(home.gate, described.mesh, engine, home.signer(OWNER), now_ms=now_ms)
    return engine


async def follow_address(home: StateDirectory, address: str) -> MeshFile:
    """Look for this member's mesh at an address, and keep it; `AntiphonError` if it is not there.

    A server that refuses the login is the right one all the same: it has the mesh's certificate.
    """
    described = home.mesh()
    engine = check_address(address)
    there = msgspec.structs.replace(described, engine=engine)
    try:
        await (await connect(there, home.access(), Purpose(name="address"))).close()
    except EngineDenied:
        if not described.ca:
            raise
    moved = with_address(described, engine)
    home.write_mesh(moved)
    return moved
