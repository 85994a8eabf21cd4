"""`mesh.polls`: polls on a mesh."""

import msgspec

from antiphon.core.record.branches import LaneKey
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.replica import Queries
from antiphon.sdk.connection.connection import Connection
from tests.families.polls.ops import CloseBody, OpenBody, PollClose, PollOpen
from tests.families.polls.table import PollLane

MOST_LISTED = 100
_decode = msgspec.msgpack.Decoder(PollLane).decode


class ReplicaPolls(Queries):
    """Queries for people who list polls."""

    def best(self, *, limit: int):
        """Kind, name and state of polls, those with the most votes first."""
        rows = self._db.execute(
            "select kind, name, body from lanes_polls where ayes is not null"
            " order by ayes desc, id limit ?",
            (limit,),
        )
        return [(kind, name, _decode(body).state) for kind, name, body in rows]


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
        async with self._connection.replica() as replica:
            return replica.ask(ReplicaPolls).best(limit=MOST_LISTED)
