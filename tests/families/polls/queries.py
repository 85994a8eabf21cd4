"""What a replica knows about polls."""

import msgspec

from antiphon.runtime.replica.replica import Queries
from tests.families.polls.state import PollLane

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
