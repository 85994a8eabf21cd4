"""Entering a lane is reading it: for every family with `enter`, whatever its ops (spec §7.5).

A new family is tried here as soon as it is part of the protocol.
"""

from random import Random

import pytest
from msgspec.structs import replace

from antiphon.core.families.locks import LOCKS, table
from antiphon.core.families.locks.ops import LockTake
from antiphon.core.family import Dep, Family, Lane, Reads
from antiphon.core.lane_entry import can_enter
from antiphon.core.opened_record import OpenedRecord, unsigned
from antiphon.core.protocol import Protocol
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.core.record.op import Op
from antiphon.core.record.verdict import Verdict
from tests.core.ledger import T0, Ledger
from tests.examples import size
from tests.families.polls import POLLS, WITH_POLLS
from tests.families.random_ops import RandomOps

LANES = size(16, soak=1_000)
OPS = 40
EVERY = 5
"""After so many ops a reader enters the lane and judges what follows."""
TRIES = (1, 12, 12)
ENOUGH = LANES // 2
"""A family of which fewer ops were entered was not really tried."""
WAITS_MS = (1, 1, 500, 4_000, 6_000, 40_000)
CAN_BE_ENTERED = [family for family in WITH_POLLS.families if family.enter is not None]


class RandomLane:
    """One thing of a family, written about at random and judged by the reducer."""

    def __init__(self, family: Family, seed: int) -> None:
        others = (one for one in WITH_POLLS.families if one.name != family.name)
        self.protocol = Protocol(WITH_POLLS.number, (*others, family))
        self.family, self.chance = family, Random(seed)
        self.ledger = Ledger(self.protocol)
        self.drawn = RandomOps(family, self.chance)
        self.lane: Lane = family.lane()
        self.records: list[OpenedRecord] = []
        self.now_ms = T0

    def add(self) -> tuple[OpenedRecord, Verdict]:
        """One more op, of several the first that is accepted; and its verdict."""
        self.now_ms += self.chance.choice(WAITS_MS)
        op_type = self.drawn.pick()
        for _ in range(self.chance.choice(TRIES)):
            record = self._drawn(op_type)
            outcome = self._judged(self.lane, record)
            if outcome.changed:
                break
        self.records.append(record)
        self.lane = outcome.lane
        self.drawn.remember(record.op, self.lane.state, is_accepted=outcome.changed)
        return record, outcome.verdict

    def _drawn(self, op_type: type[Op]) -> OpenedRecord:
        body, author = self.drawn.draw(op_type)
        named = tuple((one.seq, one.op_id) for one in self.records[:1])
        op = op_type(
            v=1,
            mesh=self.ledger.mesh,
            author=author,
            hlc=(self.now_ms, 0),
            prev=0,
            deps=named if self.chance.random() < 0.3 else (),
            auth=(),
            body=body,
        )
        place = self.protocol.place_of(op.subject(self.ledger.mesh))
        op = replace(op, prev=self.lane.tails[place.slot])
        op_bytes = codec.encode(op)
        assert codec.decode(op_bytes, self.protocol.decoder) == op, "what its schema admits"
        opened = unsigned(self.protocol, op, len(self.records) + 2, self.now_ms)
        return replace(opened, op_id=digest(op_bytes))

    def _judged(self, lane: Lane, record: OpenedRecord):
        found = {one.seq: Dep(one.op_id, one.place.key.kind, ()) for one in self.records}
        reads = Reads(records={seq: found.get(seq) for seq, _ in record.op.deps})
        return self.ledger.history.settle(lane, record, lambda _: reads)

    def entered(self) -> Lane | None:
        """The lane for a reader that enters it where its state says; None if it cannot."""
        state = self.lane.state
        place = 0 if state is None else self.family.entry(state)
        first = next((one for one in self.records if one.seq == place), None)
        assert first is not None or not place, "a place that is on the lane"
        if first is None or not can_enter(self.protocol, first.place.key):
            return None
        known = self.family.enter(first.op, first.seq, first.op_id)
        assert known is not None, "a place where it can be entered"
        time_ms = max(first.op.hlc[0], first.commit_ms)
        lane = self.family.lane((place,), known, 0, time_ms)
        for record in self.records:
            if record.seq > place:
                lane = self._judged(lane, record).lane
        return lane


def differences(family: Family) -> tuple[int, list[str]]:
    """How many ops of random lanes were entered, and where that was not what reading gave."""
    entered, wrong = 0, []
    for seed in range(LANES):
        if wrong:
            break
        one = RandomLane(family, seed)
        for _ in range(OPS):
            record, verdict = one.add()
            state = None
            if verdict is Verdict.OK:
                state = family.enter(record.op, record.seq, record.op_id)
            entered += state is not None
            if state is not None and state != one.lane.state:
                wrong.append(f"seed {seed}: {record.op}\nentered {state}\nread {one.lane.state}")
            lane = one.entered() if len(one.records) % EVERY == 0 else None
            if lane is not None and lane != one.lane:
                wrong.append(f"seed {seed}: from its entry {lane}\nread {one.lane}")
    return entered, wrong


@pytest.mark.parametrize("family", CAN_BE_ENTERED, ids=lambda family: family.name)
def test_a_lane_that_is_entered_has_the_state_of_one_that_is_read(family):
    entered, wrong = differences(family)
    assert not wrong, wrong[0]
    assert entered > ENOUGH, f"only {entered} ops: random_ops has to know more of this family"


def test_every_family_that_is_known_to_be_entered_is_tried():
    assert {"locks", "memory", "plans", "polls"} <= {family.name for family in CAN_BE_ENTERED}


def test_a_family_that_counts_what_came_before_is_found():
    """Polls whose `enter` forgets that a poll was opened by somebody at some time."""
    wrong = replace(POLLS, enter=lambda op, _seq, op_id: POLLS.enter(op, 0, op_id))
    assert differences(wrong)[1]


def test_a_renewal_that_keeps_a_later_deadline_is_found():
    """A lock's state would then not follow from its last renewal."""

    def step(lock, op, at):
        after = table.step(lock, op, at)
        is_short = after is Verdict.LEASE and isinstance(op, LockTake) and op.body.fence
        if not is_short or op.body.ttl_ms < at.control.rules.lease_min_ms:
            return after
        return replace(lock, hlc=op.hlc, hlc_author=op.author)

    assert differences(replace(LOCKS, step=step))[1]
