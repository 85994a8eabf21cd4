"""Anything on the log, of any family: found by name, and told in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.core.history.story import Line, tell
from antiphon.core.record.branches import LaneKey

if TYPE_CHECKING:
    from antiphon.ports import Record
    from antiphon.sdk.mesh import Mesh


class LaneStory(Struct, frozen=True, kw_only=True):
    """One lane as it is on the log now, and every record on it in words."""

    key: LaneKey
    facts: dict[str, Any]
    """Its state as a replica stores it; empty where it never began."""
    story: list[Line]


async def newest_record(mesh: Mesh) -> Record | None:
    """The newest record on the log; None while there is none."""
    return await mesh.connection.session.log.last()


async def find_lanes(mesh: Mesh, prefix: str) -> list[LaneKey]:
    """Lanes whose name begins with this prefix, jobs included."""
    async with mesh.replica() as replica:
        return [key for key, lane in replica.find_lanes(prefix) if lane.state is not None]


async def story_of(mesh: Mesh, key: LaneKey) -> LaneStory:
    """Read a lane and put its records in words."""
    session = mesh.connection.session
    view = await session.read(key)
    control = await session.sync_control()
    family, state = session.protocol.family(key.family), view.lane.state
    if state is not None:
        state = family.standing(control, state, session.confirmed + 1)
    told = [one for one in family.columns if one.is_told and state is not None]
    facts = {column.name: column.value(state) for column in told}
    story = tell((judged.opened, judged.verdict) for judged in view.history)
    return LaneStory(key=key, facts=facts, story=story)


__all__ = ["LaneKey", "LaneStory", "Line", "find_lanes", "newest_record", "story_of"]
