"""Asks full nodes where a long lane can be entered, and checks what they answer.

Nobody has to answer, and no answer has to be right: then the lane is read from its beginning.
"""

from __future__ import annotations

import asyncio
import typing
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.bus.subjects import ENTRY
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.families.seals.state import lane_before
from antiphon.core.lane_entry import LaneEntry, can_enter, lane_at
from antiphon.core.record.verdict import Verdict
from antiphon.decoding import UNREADABLE
from antiphon.errors import Rejected, Unavailable

if TYPE_CHECKING:
    from antiphon.core.family import Lane
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.protocol import Protocol
    from antiphon.core.record.branches import LaneKey
    from antiphon.core.reducer import Outcome
    from antiphon.ports import Engine, Entropy, Record, WallClock

ANSWER_WITHIN_S: Final = 2.0
ANSWERS_CHECKED: Final = 4
QUIET_S: Final = 30.0
"""How long nobody is asked after nobody has answered."""
_decode: Final = msgspec.json.Decoder(LaneEntry).decode


class Entered(Struct, frozen=True):
    """A lane at the record at which it was entered."""

    record: Record
    opened: OpenedRecord
    lane: Lane


class Asker(typing.Protocol):
    """What asks: a `Session`."""

    mesh: str
    protocol: Protocol
    engine: Engine
    entropy: Entropy
    wall: WallClock

    def open(self, record: Record) -> OpenedRecord:
        """A record of the log, opened."""

    async def confirm(self, upto: int) -> None:
        """Make sure that every control op up to `upto` was read."""

    async def judge(self, opened: OpenedRecord, lane: Lane) -> Outcome:
        """The verdict on one record."""


class EntrySearch:
    """Finds entries for one session."""

    def __init__(self, by: Asker) -> None:
        """Nothing is asked yet."""
        self._by = by
        self._quiet_until_s = 0.0

    async def find(self, key: LaneKey) -> Entered | None:
        """The newest sealed record at which a lane can be entered; None if nobody knows one."""
        by = self._by
        if not can_enter(by.protocol, key) or by.wall.boot_s() < self._quiet_until_s:
            return None
        (subject,) = by.protocol.subjects_of(by.mesh, key)
        bus, checked = by.engine.bus, 0
        inbox = f"{bus.new_inbox()}.{by.entropy.token(16).hex()}"
        try:
            async with (
                asyncio.timeout(ANSWER_WITHIN_S),
                bus.subscribe(inbox, max_pending=ANSWERS_CHECKED) as answers,
            ):
                await bus.publish(ENTRY.at(), subject.encode(), reply=inbox)
                async for answer in answers:
                    found = await self._checked(key, answer.payload)
                    checked += 1
                    if found is not None or checked == ANSWERS_CHECKED:
                        return found
        except (TimeoutError, Unavailable, Rejected):
            self._quiet_until_s = by.wall.boot_s() + QUIET_S
        return None

    async def _checked(self, key: LaneKey, payload: bytes) -> Entered | None:
        """The lane that an answer leads to; None if the answer shows nothing."""
        by = self._by
        try:
            entry = _decode(payload)
        except UNREADABLE:
            return None
        if entry.seal <= entry.seq:
            return None
        try:
            both = await by.engine.log.fetch_many([entry.seq, entry.seal])
        except Unavailable:
            return None  # perhaps there is no such record at all
        found = {one.seq: one for one in both}
        record, sealed = found.get(entry.seq), found.get(entry.seal)
        if record is None or sealed is None:
            return None
        seal = by.open(sealed).op
        if not isinstance(seal, MeshSeal):
            return None
        await by.confirm(entry.seal)
        outcome = await by.judge(by.open(sealed), lane_before(seal))
        if outcome.verdict not in (Verdict.OK, Verdict.UNSEEN):
            return None
        opened = by.open(record)
        lane = lane_at(by.protocol, key, entry, opened, record.payload, seal.body)
        return None if lane is None else Entered(record, opened, lane)
