"""Opens a mesh with the most powerful key of this machine."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.grant_reach import Grant, State
from antiphon.errors import Held
from antiphon.sdk.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OWNER_KEY: Final = "owner"
MACHINE_KEY: Final = "machine"
KEY_WITHIN_S: Final = 5.0
"""How long to wait for such a key: other processes use it for moments only."""
KEY_AGAIN_S: Final = 0.1


@asynccontextmanager
async def with_authority(home: Path | None = None) -> AsyncIterator[Mesh]:
    """The mesh, opened with the most powerful key here: the owner's, or else the machine's.

    A directory that has neither opens it as a client, and can read.
    """
    place = Mesh.open(home=home).home
    place.mesh()
    key = next((name for name in (OWNER_KEY, MACHINE_KEY) if place.has_key(name)), None)
    async with AsyncExitStack() as stack:
        yield await _open_in_time(stack, place.path, key)


async def _open_in_time(stack: AsyncExitStack, path: Path, key: str | None) -> Mesh:
    deadline = time.monotonic() + KEY_WITHIN_S
    while True:
        try:
            return await stack.enter_async_context(Mesh.open(home=path, key=key))
        except Held as held:
            if key is None or time.monotonic() > deadline:
                raise Held(held.message, hint="wait until that process is done") from held
        await asyncio.sleep(KEY_AGAIN_S)


async def owner_and_own_grants(home: Path) -> tuple[str, tuple[Grant, ...]]:
    """The mesh's owner, and the permissions of a state directory's machine, by the log now."""
    async with with_authority(home) as mesh:
        held = await mesh.authority.who()
    live = (one for one in held.tree.grants() if one.state is State.LIVE)
    return held.tree.owner, tuple(one for one in live if one.audience == held.me)
