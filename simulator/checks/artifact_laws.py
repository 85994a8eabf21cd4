"""What holds of what runs store: steps, parts of streams, and snapshots of model calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.checks.law_state import Committed, LaneFacts, LawState, parts_in
from simulator.checks.plain_record import PlainRecord, content_of

SNAPSHOT: Final = "likewise.inference.snapshot"
"""The type of an output that is a snapshot of a model call."""


def calls_accounted_for(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """An audited result names the stored snapshot of each model call, and says how many.

    An honest worker leaves out none that its handler has made.
    """
    if fact.type != "job.complete" or not now.took_effect or lane.held is None:
        return
    outputs, calls = fact.body.get("outputs", ()), fact.body.get("calls")
    if calls is None:
        if lane.held.is_audited and not fact.body.get("answered"):  # people make none
            yield "an audited result says nothing of its model calls"
        return
    named = [content_of(one)[0] for one in outputs if one.get("type") == SNAPSHOT]
    if len(named) != calls or named != lane.snapshots:
        yield f"{calls} model calls, {len(named)} named, {len(lane.snapshots)} stored"
    if now.is_honest and now.key is not None:
        made, stored = ledger.calls_made[now.key, fact.fence], lane.calls_stored[fact.fence]
        if made != stored:
            yield f"the handler made {made} model calls, and {stored} are stored"


def stored_by_holder(
    _: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """What a run stores is its holder's, under the newest fence, and the next of its sort."""
    if fact.type != "job.artifact" or not now.took_effect:
        return
    if lane.held is None or lane.held.claimer != fact.author:
        yield "something was stored by somebody who does not hold the job"
    newest = lane.fences[-1] if lane.fences else "none"
    if fact.fence != newest:
        yield f"stored under {fact.fence}, the newest accepted claim began {newest}"
    sort, number = fact.body["as"], fact.body["n"]
    if number != lane.artifacts[sort]:
        yield f"{sort} {number} was stored, and {lane.artifacts[sort]} was next"
    if ("value" in fact.body) == ("digest" in fact.body):
        yield f"{sort} {number} has no content, or two"


def parts_in_order(
    _: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """An honest stream goes on where it was: none of its parts is left out or comes again.

    Handlers of simulated worlds yield the number of each part.
    """
    if fact.type != "job.artifact" or not now.took_effect or not now.is_honest:
        return
    if fact.body["as"] == "part":
        first, parts = len(lane.parts), parts_in(fact.body)
        if parts != list(range(first, first + len(parts))):
            yield f"the parts {parts} were stored after {first} others"


LAWS: Final = (calls_accounted_for, stored_by_holder, parts_in_order)
