"""`mesh.polls`: polls on a mesh."""

from antiphon.core.record.branches import LaneKey
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.lane_lists import LaneList, Lists
from antiphon.sdk.connection.connection import Connection
from tests.families.polls.ops import POLL, CloseBody, OpenBody, PollClose, PollOpen
from tests.families.polls.table import PollLane

MOST_LISTED = 100
BEST = LaneList("polls", PollLane, POLL, "ayes", order="ayes", is_newest_first=True)
"""Polls, those with the most votes first."""


class Polls:
    """The polls of a mesh."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def open(self, kind: str, name: str, question: str) -> None:
        """Ask something."""
        await self._write(PollOpen, OpenBody(kind=kind, poll=name, question=question))

    async def close(self, kind: str, name: str) -> None:
        """End a poll."""
        await self._write(PollClose, CloseBody(kind=kind, poll=name))

    async def _write(self, op, body) -> None:
        session = self._connection.session
        lane = (await session.read(LaneKey("polls", body.kind, body.poll))).lane
        await write_one(session, Intent(op, body, lane), BEHIND)

    async def best(self):
        """The polls that this machine can read, those with the most votes first."""
        control = self._connection.session.control
        async with self._connection.replica() as replica:
            return Lists(replica, control).shared(BEST, limit=MOST_LISTED).rows
