"""How much was written to a mesh's log in the last hour, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.authority.write_volume import CONTROL
from antiphon.runtime.node.write_volume_watch import lately, suspects

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh


class HighVolume(Struct, frozen=True, kw_only=True):
    """A volume that is more than usual."""

    kind: str
    """The first part of the kinds; empty where it is about one author."""
    by: str
    """Its author, or the members that can have written it."""
    bytes: int
    refused_bytes: int

    @property
    def is_control(self) -> bool:
        """Whether it is about the mesh itself, not about a kind."""
        return self.kind == CONTROL


class Written(Struct, frozen=True, kw_only=True):
    """The last hour, as far as this machine's replica has it."""

    records: int
    bytes: int
    much: tuple[HighVolume, ...]


async def written_lately(mesh: Mesh) -> Written:
    """What was written in the last hour, and which part of it is more than usual."""
    session = mesh.connection.session
    control, now_ms = await session.sync_control(), session.wall.now_ms()
    async with mesh.replica() as replica:
        volumes = lately(replica, now_ms)
    kinds = [one for (what, _), one in volumes.within(now_ms).items() if what == "kind"]
    much = [
        HighVolume(
            kind=one.name if one.what == "kind" else "",
            by=suspects(control, one, now_ms // 1000),
            bytes=one.volume.bytes,
            refused_bytes=one.volume.refused_bytes,
        )
        for one in volumes.excesses(now_ms)
    ]
    return Written(
        records=sum(one.records for one in kinds),
        bytes=sum(one.bytes for one in kinds),
        much=tuple(much),
    )


__all__ = ["HighVolume", "Written", "written_lately"]
