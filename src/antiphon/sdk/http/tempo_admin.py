"""The tempo for an HTTP interface: as it is, and the owner's changes to it.

Only the owner's key can write the policy. A node signs with another one, so a change is written
with the owner's key if this machine has it. Whoever asks must therefore be the owner, or the
operator of the machine that has the key: see `HttpAccess.may_govern`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.tempo.namespace import tempo_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from antiphon.sdk.mesh import Mesh


class TempoAdmin:
    """Reads and changes one mesh's tempo, one change at a time; every field is written out."""

    def __init__(self, mesh: Mesh) -> None:
        """Something else must listen to the mesh's clock."""
        self._mesh = mesh
        self._turn = asyncio.Lock()

    def now(self) -> dict[str, Any]:
        """The tempo in force, as this process knows it."""
        return _written_out(tempo_now(self._mesh.connection.clock))

    async def set(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the policy; `Rejected` if it is not valid, or without the owner's key."""
        async with self._as_owner() as mesh:
            return _written_out(await mesh.tempo.set(fields))

    async def freeze(self) -> dict[str, Any]:
        """Hold the tempo where it is; the policy."""
        async with self._as_owner() as mesh:
            return _written_out(await mesh.tempo.freeze())

    async def unfreeze(self) -> dict[str, Any]:
        """Let the adaptation change it again; the policy."""
        async with self._as_owner() as mesh:
            return _written_out(await mesh.tempo.unfreeze())

    @asynccontextmanager
    async def _as_owner(self) -> AsyncIterator[Mesh]:
        async with self._turn:
            if self._mesh.did == self._mesh.connection.session.control.owner:
                yield self._mesh
                return
            async with with_authority(self._mesh.home.path) as mesh:
                yield mesh


def _written_out(struct: Struct) -> dict[str, Any]:
    """A struct as JSON has it, with the fields that are at their default, too."""
    values = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {
        name: _written_out(value) if isinstance(value, Struct) else value
        for name, value in values.items()
    }


__all__ = ["TempoAdmin"]
