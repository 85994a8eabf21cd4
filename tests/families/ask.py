"""Opens a poll and closes it again, on the mesh of a state directory."""

import asyncio
import sys
from pathlib import Path

from antiphon import Mesh
from antiphon.core.record.branches import LaneKey
from antiphon.runtime.log.writer import Intent, write_one
from tests.families.polls.ops import CloseBody, OpenBody, PollClose, PollOpen
from tests.families.polls.state import PollLane

KIND, NAME = "team.lunch", "pizza"


async def main(home: Path) -> None:
    async with Mesh.open(home=home, role="client") as mesh:
        body = OpenBody(kind=KIND, poll=NAME, question="Pizza?")
        await write_one(mesh.connection.session, Intent(PollOpen, body, PollLane()))
        lane = (await mesh.connection.session.read(LaneKey("polls", KIND, NAME))).lane
        await write_one(
            mesh.connection.session, Intent(PollClose, CloseBody(kind=KIND, poll=NAME), lane)
        )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
