"""Polls as guests in the simulator: who writes them, and what must hold of them."""

import asyncio
import random
from contextlib import suppress

from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest
from antiphon.errors import Conflict, Rejected, Unavailable
from antiphon.runtime.log.writer import Intent, Policy, go_behind, write_one
from simulator.actors.guests import Guest
from simulator.actors.machines import Machine
from tests.families.polls import POLLS
from tests.families.polls.ops import CloseBody, OpenBody, PollClose, PollOpen, PollVote, VoteBody
from tests.families.polls.table import PollLane

KIND = "team.sim"
EVERY_S = 40.0


class PollMachine(Machine):
    """Opens polls, votes in them and closes them, through crashes and silence."""

    def __init__(self, cluster, clock) -> None:
        super().__init__(cluster, "pollster", clock=clock)
        self.chance = random.Random(f"{cluster.seed}/polls")
        self.number = 0

    async def run(self) -> None:
        session = self.connect()
        await session.sync_control()
        while True:
            self.number += 1
            with suppress(Conflict, Rejected, Unavailable):
                await self._poll(session, f"poll-{self.number}")
            await asyncio.sleep(EVERY_S)

    async def _poll(self, session, name) -> None:
        body = OpenBody(kind=KIND, poll=name, question="?")
        await write_one(session, Intent(PollOpen, body, PollLane()), Policy(again=go_behind))
        view = await session.read(LaneKey("polls", KIND, name))
        dep = (view.lane.state.opened_seq, view.history[0].opened.op_id)
        for _ in range(self.chance.randint(1, 3)):  # all but the first change nothing
            vote = VoteBody(kind=KIND, poll=name, choice=self.chance.random() < 0.5)
            lane = (await session.read(LaneKey("polls", KIND, name))).lane
            named = dep if self.chance.random() < 0.9 else (dep[0], digest(b"another"))
            with suppress(Rejected):
                await write_one(session, Intent(PollVote, vote, lane, deps=(named,)))
        lane = (await session.read(LaneKey("polls", KIND, name))).lane
        await write_one(session, Intent(PollClose, CloseBody(kind=KIND, poll=name), lane))


def home(mesh, kind_of_op, body) -> str:
    """Where such an op belongs, spelled by hand."""
    stem = {"poll.open": "poll", "poll.vote": "vote", "poll.close": "close"}[kind_of_op]
    return f"ap.{mesh}.{stem}.{body['kind']}.{body['poll']}"


class OneVoteEach:
    """A law with a memory of its own: nobody's second vote counts, and none after the end."""

    __name__ = "one_vote_each"

    def __init__(self) -> None:
        self.closed, self.voted, self.seen = set(), set(), 0

    def __call__(self, _ledger, _lane, now, fact):
        self.seen += 1
        poll = (fact.body["kind"], fact.body["poll"])
        if not now.took_effect:
            return
        if fact.type == "poll.vote":
            if poll in self.closed or (poll, fact.author) in self.voted:
                yield f"a vote of {fact.author} took effect that should not"
            self.voted.add((poll, fact.author))
        if fact.type == "poll.close":
            self.closed.add(poll)


def polls_as_guest() -> tuple[Guest, OneVoteEach]:
    """The guest, and the law that watches it."""
    law = OneVoteEach()
    guest = Guest(family=POLLS, prefix="poll", home=home, laws=(law,), machine=PollMachine)
    return guest, law
