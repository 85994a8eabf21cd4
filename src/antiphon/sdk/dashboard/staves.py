"""Who held which job in the last minutes: the data of the page with a staff for each worker."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core.authority.parties import party_of_key
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import JobClaim, JobComplete, JobExpire, JobYield
from antiphon.core.party_turns import shared
from antiphon.core.record.verdict import Verdict
from antiphon.sdk.dashboard.node_names import aliases, in_order
from antiphon.sdk.dashboard.views import nodes_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from antiphon.runtime.log.lane_reader import Judged
    from antiphon.sdk.mesh import Mesh

WINDOW_S: Final = 96
RECORDS: Final = 2_000
"""That are looked at: on a mesh that writes more, the page shows less than its window."""
HOLDS: Final = 500
WORKERS: Final = 200


class Hold(Struct, kw_only=True):
    """One worker's hold of a job."""

    worker: str
    kind: str
    job: str
    since_ms: int
    until_ms: int
    """When it ended; of one that lasts, when its lease ends."""
    end: str = ""
    """`succeeded`, `failed`, `gave it back`, `lost its lease`; empty: it lasts."""
    slot: int = 0
    """Where it is drawn: holds of one worker that overlap have different ones."""
    follows: int = -1
    """The hold of the same job that lost its lease before it: its place in the list."""


class Refused(Struct, frozen=True, kw_only=True):
    """A record about a job that took no effect."""

    worker: str
    kind: str
    job: str
    at_ms: int
    verdict: str


class StavesView(Struct, frozen=True, kw_only=True):
    """The page."""

    now_ms: int
    since_ms: int
    workers: list[str]
    names: dict[str, str]
    levels: dict[str, str]
    """Of those that are online; others are not in it."""
    slots: dict[str, int]
    holds: list[Hold]
    refused: list[Refused]
    is_cut: bool


async def staves_view(mesh: Mesh) -> StavesView:
    """The last minutes, as far as the newest records tell."""
    now_ms = round(time.time() * 1000)
    since_ms = now_ms - WINDOW_S * 1000
    records = await mesh.queries.latest(since_ms=since_ms, limit=RECORDS)
    party = partial(party_of_key, mesh.connection.session.control)
    holds, refused = _held(records, since_ms, party)
    cards = [one for one in (await nodes_view(mesh)).nodes if one.card.role == "worker"]
    seen = [one.card.node for one in cards] + [one.worker for one in holds]
    everybody = list(dict.fromkeys(seen))
    names = await aliases(mesh, everybody)
    by_name = sorted(everybody, key=lambda did: in_order(names.get(did, did[-8:])))
    workers = shared(by_name, party, WORKERS)
    shown = [one for one in holds if one.worker in set(workers)]
    _give_slots(shown)
    return StavesView(
        now_ms=now_ms,
        since_ms=since_ms,
        workers=workers,
        names={did: names.get(did, did[-8:]) for did in everybody},
        levels={one.card.node: one.level for one in cards},
        slots={one.card.node: one.card.slots for one in cards},
        holds=shown,
        refused=[one for one in refused if one.worker in set(workers)],
        is_cut=len(records) == RECORDS or len(everybody) > WORKERS,
    )


def _held(
    records: Iterable[Judged], since_ms: int, party: Callable[[str], str]
) -> tuple[list[Hold], list[Refused]]:
    """Holds and refusals, job by job; one that began before the window begins with it.

    Of too many, the newest of each party.
    """
    holds, refused = list[Hold](), list[Refused]()
    newest: dict[tuple[str, str], int] = {}
    for judged in records:
        op, place = judged.opened.op, judged.opened.place
        if op is None or place is None or place.key.family != JOBS.name:
            continue
        key, at_ms = (place.key.kind, place.key.name), judged.opened.commit_ms
        about: dict[str, Any] = {"worker": op.author, "kind": key[0], "job": key[1]}
        if not judged.verdict.is_accepted:
            if judged.verdict is not Verdict.HELD:
                refused.append(Refused(**about, at_ms=at_ms, verdict=judged.verdict.value))
            continue
        last = newest.get(key, -1)
        is_open = last >= 0 and not holds[last].end
        if isinstance(op, JobClaim):
            until_ms = op.hlc[0] + op.body.lease_ms
            if is_open and holds[last].worker == op.author:
                holds[last].until_ms = until_ms
                continue
            lost = last if last >= 0 and holds[last].end == "lost its lease" else -1
            holds.append(Hold(**about, since_ms=at_ms, until_ms=until_ms, follows=lost))
            newest[key] = len(holds) - 1
        elif isinstance(op, JobComplete | JobYield | JobExpire):
            if not is_open:
                if isinstance(op, JobExpire):
                    continue  # whose lease it was is further back
                holds.append(Hold(**about, since_ms=since_ms, until_ms=at_ms))
                last = newest[key] = len(holds) - 1
            holds[last].until_ms, holds[last].end = at_ms, _end(op)
    newest_first = range(len(holds) - 1, -1, -1)
    kept = sorted(shared(newest_first, lambda at: party(holds[at].worker), HOLDS))
    places = {at: place for place, at in enumerate(kept)}
    for one in holds:
        one.follows = places.get(one.follows, -1)
    shown = shared(refused[::-1], lambda one: party(one.worker), HOLDS)
    return [holds[at] for at in kept], shown[::-1]


def _end(op: JobComplete | JobYield | JobExpire) -> str:
    if isinstance(op, JobComplete):
        return "succeeded" if op.body.status == "succeeded" else "failed"
    return "gave it back" if isinstance(op, JobYield) else "lost its lease"


def _give_slots(holds: list[Hold]) -> None:
    """The lowest place of its worker that is free while it lasts."""
    taken: dict[str, list[int]] = {}
    for one in sorted(holds, key=lambda hold: hold.since_ms):
        ends = taken.setdefault(one.worker, [])
        free = next((slot for slot, end in enumerate(ends) if end <= one.since_ms), len(ends))
        if free == len(ends):
            ends.append(0)
        ends[free], one.slot = one.until_ms, free
