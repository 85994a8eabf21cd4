"""Whether two full nodes and a light reader make the same of every record and of every lane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import msgspec

from antiphon.core.families.seals import SEALS
from antiphon.core.family import Lane
from antiphon.core.lane_entry import can_enter
from antiphon.core.record.branches import LaneKey
from antiphon.errors import Unavailable
from antiphon.runtime.log.lane_reader import LaneView
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import FullNode
from chaos.extremes.records import Records
from chaos.extremes.target import Target

LANES_READ: Final = 64
"""Lanes that the light reader reads together."""
TRIES: Final = 5
PAUSE_S: Final = 2.0
TOLD: Final = 12
"""Disagreements that are printed."""

T = TypeVar("T")


async def compare(target: Target, records: Records, lanes: Collection[LaneKey]) -> list[str]:
    """What they disagree on."""
    newest = await target.host.node.session.log.last()
    upto = newest.seq if newest is not None else 0
    for node in target.nodes:
        await records.reached(node, upto)
    found = list(_verdicts(target, upto))
    wanted = [key for key in lanes if key.family != SEALS.name]
    first, second = (node.replica for node in target.nodes)
    for key in wanted:
        one, other = first.lane(key), second.lane(key)
        if one.tails == other.tails and one != other:
            found.append(f"{key}: full nodes have different states")
    async with target.newcomer() as whole, target.newcomer() as entering:
        for start in range(0, len(wanted), LANES_READ):
            some = wanted[start : start + LANES_READ]
            views = await _patiently(partial(whole.session.read_lanes, dict.fromkeys(some, 0)))
            for key, view in views.items():
                found += await _lane(target, key, view, (whole.session, entering.session))
    return found


async def _patiently(read: Callable[[], Awaitable[T]]) -> T:
    """Ask again: what is compared is what they say, not how soon a busy gate answers."""
    for _ in range(TRIES):
        with suppress(Unavailable):
            return await read()
        await asyncio.sleep(PAUSE_S)
    return await read()


def _verdicts(target: Target, upto: int) -> Iterator[str]:
    first, second = (node.replica for node in target.nodes)
    for seq in range(1, upto + 1):
        one, other = first.record(seq), second.record(seq)
        if one is None or other is None:
            if (one is None) != (other is None):
                yield f"record {seq}: one full node has it, the other has not"
        elif one.verdict is not other.verdict:
            yield f"record {seq}: {one.verdict.value} and {other.verdict.value}"


async def _entered(node: FullNode, entering: Session, key: LaneKey) -> tuple[Lane, Lane]:
    """A lane as a light reader that enters it has it, and as a full node has it then."""
    for _ in range(TRIES):
        entered = (await _patiently(partial(entering.enter, key))).lane
        await node.reached(max(entered.tails))
        if entered.tails == node.replica.lane(key).tails:
            return entered, node.replica.lane(key)
    return (await _patiently(partial(entering.enter, key))).lane, node.replica.lane(key)


def is_same(entered: Lane, full: Lane) -> bool:
    """Whether both lead to the same verdicts.

    Who enters a lane cannot know before which archive it began. That matters only for subjects
    without a record since then, and a lane that can be entered has one subject, with a record.
    """
    return msgspec.structs.replace(entered, floor=full.floor) == full


def _differing(one: Lane, other: Lane) -> str:
    """The fields in which two states differ."""
    return ", ".join(
        f"{field.name} {getattr(one, field.name)!r:.200}, not {getattr(other, field.name)!r:.200}"
        for field in msgspec.structs.fields(one)
        if getattr(one, field.name) != getattr(other, field.name)
    )


async def _lane(
    target: Target, key: LaneKey, view: LaneView, readers: tuple[Session, Session]
) -> list[str]:
    """A lane as light readers have it, against the owner's full node."""
    whole, entering = readers
    node, found = target.host.node, []
    for _ in range(TRIES):  # workers and the coordinator go on writing meanwhile
        await node.reached(max(view.lane.tails))
        if view.lane.tails == node.replica.lane(key).tails:
            break
        view = await _patiently(partial(whole.read, key))
    if view.lane != node.replica.lane(key):
        found.append(f"{key}: a light reader has another state")
    for judged in view.history:
        stored = node.replica.record(judged.opened.seq)
        if stored is None or stored.verdict is not judged.verdict:
            said = None if stored is None else stored.verdict.value
            found.append(f"record {judged.opened.seq}: light {judged.verdict.value}, full {said}")
    if can_enter(node.session.protocol, key):
        entered, full = await _entered(node, entering, key)
        if not is_same(entered, full):
            found.append(f"{key}: a light reader that entered has {_differing(entered, full)}")
    return found
