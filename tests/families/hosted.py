"""A hosted mesh with polls: an owner, a member that reads and writes some, one that may less.

Run by `tests/families/test_hosted.py` in a process of its own; the last line is what was found.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from antiphon import Mesh
from antiphon.assembly.hosted_mesh import coordinate
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.branches import LaneKey
from antiphon.errors import EngineDenied, Rejected
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.node.sealer import Sealer
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.lanes import find_lanes, story_of
from antiphon.sdk.proofs import bundles
from tests.families.polls.ops import CloseBody, OpenBody, PollClose, PollOpen, PollVote, VoteBody
from tests.families.polls.table import PollLane

KIND, OTHER, NAME = "team.lunch", "board.pay", "pizza"
KEY = LaneKey("polls", KIND, NAME)


async def refused(write) -> str:
    """Why a write was turned away, and by which wall."""
    try:
        await write
    except EngineDenied:
        return "server"
    except Rejected as problem:
        return problem.reason
    return ""


async def scene(directory: Path) -> dict[str, object]:
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        here = await enter(
            hosted_mesh.found_and_host(directory / "owner", name="polls", listen=listen)
        )
        owner = await enter(Mesh.open(home=directory / "owner", role="client"))
        whole = await enter(owner.node())
        await enter(here.gate(whole))

        async def joined(alias: str, right: str) -> Mesh:
            place = StateDirectory(directory / alias)
            terms = Terms(can=("read", right), kinds=("team.*",), alias=alias)
            ticket = hosted_mesh.invite(StateDirectory(directory / "owner"), terms)
            await hosted_mesh.redeem(place, ticket, alias=alias)
            return await enter(Mesh.open(home=place.path, role="client"))

        asker = await joined("asker", "ask")
        voter = await joined("voter", "vote")
        scoped = await enter(voter.node())
        await coordinate(StateDirectory(directory / "owner"), whole.session)
        found = await polled(owner, whole, asker, voter, scoped)
        (directory / "poll.json").write_bytes(await bundles.export_lane(owner, KEY))
        return found


async def polled(owner, whole, asker, voter, scoped) -> dict[str, object]:
    question = OpenBody(kind=KIND, poll=NAME, question="Pizza?")
    written = await write_one(asker.connection.session, Intent(PollOpen, question, PollLane()))
    dep = (written.seq, written.view.history[0].opened.op_id)
    secret = OpenBody(kind=OTHER, poll=NAME, question="Raise?")
    await write_one(owner.connection.session, Intent(PollOpen, secret, PollLane()))

    def vote(mesh, lane, kind=KIND):
        body = VoteBody(kind=kind, poll=NAME, choice=True)
        return write_one(mesh.connection.session, Intent(PollVote, body, lane, deps=(dep,)), BEHIND)

    lane = (await voter.connection.session.read(KEY)).lane
    await vote(voter, lane)
    walls = {
        "vote on another kind": await refused(vote(voter, PollLane(), OTHER)),
        "open without the right": await refused(
            write_one(voter.connection.session, Intent(PollOpen, question, PollLane(), prev=0))
        ),
        "close without the right": await refused(
            write_one(
                voter.connection.session, Intent(PollClose, CloseBody(kind=KIND, poll=NAME), lane)
            )
        ),
    }
    lane = (await asker.connection.session.read(KEY)).lane
    closing = Intent(PollClose, CloseBody(kind=KIND, poll=NAME), lane)
    closed = await write_one(asker.connection.session, closing, BEHIND)
    after = await refused(vote(asker, (await asker.connection.session.read(KEY)).lane))
    await whole.reached(closed.seq)
    await scoped.reached(closed.seq)
    views = [await mesh.connection.session.read(KEY) for mesh in (owner, asker, voter)]
    nodes = [
        {one.record.seq: one.verdict.value for one in node.replica.lane_records(KEY)}
        for node in (whole, scoped)
    ]
    assert await Sealer(whole, bar_s=0.0).seal()
    data = await bundles.export_lane(owner, KEY)
    report = bundles.open_bundle(data)
    told = await story_of(voter, KEY)
    return {
        "walls": walls,
        "after the end": after,
        "light readers agree": len({repr(view.lane) for view in views}) == 1,
        "full and scoped agree": nodes[0] == nodes[1] and len(nodes[0]) > 0,
        "verdicts": list(nodes[0].values()),
        "scoped sees the other kind": bool(
            scoped.replica.lane_records(LaneKey("polls", OTHER, NAME))
        ),
        "whole sees it": bool(whole.replica.lane_records(LaneKey("polls", OTHER, NAME))),
        "bundle": [report.key.family, report.state.ayes, report.is_job],
        "found": [tuple(key) for key in await find_lanes(voter, "piz")],
        "words": [line.words.partition(" ")[2] for line in told.story],
        "facts": told.facts,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scene(Path(sys.argv[1])))))
