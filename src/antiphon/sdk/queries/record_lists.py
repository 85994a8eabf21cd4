"""Lists of records, whatever they are about: those that took no effect, and the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.parties import party_behind
from antiphon.core.party_turns import shared
from antiphon.core.record.branches import READS_ALL
from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.log.lane_reader import Judged
from antiphon.runtime.replica.job_pages import is_below, is_visible
from antiphon.runtime.replica.replica_records import ReplicaRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.authority.scope import Scope
    from antiphon.core.protocol import Protocol
    from antiphon.core.record.branches import Place
    from antiphon.sdk.connection.connection import Connection

LATEST: Final = 2_000
LATEST_EXAMINED: Final = 10_000
REFUSALS_EXAMINED: Final = 5_000
NO_END: Final = 2**62


class Refusal(Struct, frozen=True, kw_only=True):
    """A record that took no effect, and why."""

    seq: int
    at_ms: int
    family: str
    """What it was about: `jobs`, `locks`; empty if that cannot be told."""
    kind: str
    name: str
    """The job's id, or whatever it was about."""
    verdict: str


async def refusals(
    connection: Connection, scope: Scope, kind: str, *, before: int, limit: int
) -> tuple[list[Refusal], int]:
    """Records before a sequence, if any; and where to go on, 0 if there are no more."""
    protocol = connection.session.protocol
    sees, place_of, found = _sight(protocol, scope), protocol.place_of, list[Refusal]()
    async with connection.replica() as replica:
        rows = replica.ask(ReplicaRecords).refused(before or NO_END, limit=REFUSALS_EXAMINED)
    for seq, at_ms, subject, verdict in rows:
        place = place_of(subject)
        about = place.key if place is not None else None
        its_kind = about.kind if about is not None else ""
        if not is_below(its_kind, kind) or not sees(place):
            continue
        one = Refusal(
            seq=seq,
            at_ms=at_ms,
            family=about.family if about is not None else "",
            kind=its_kind,
            name=about.name if about is not None else "",
            verdict=verdict.value,
        )
        found.append(one)
        if len(found) == limit:
            return found, seq
    return found, rows[-1][0] if len(rows) == REFUSALS_EXAMINED else 0


async def latest(connection: Connection, scope: Scope, since_ms: int, limit: int) -> list[Judged]:
    """The newest records since a time, oldest first; parties share them."""
    session, since_ns = connection.session, since_ms * NANOSECONDS_PER_MS
    sees, place_of = _sight(session.protocol, scope), session.protocol.place_of
    async with connection.replica() as replica:
        records, control = replica.ask(ReplicaRecords), session.control
        newest = records.authored(since_ns, limit=LATEST_EXAMINED)
        rows = [one for one in newest if sees(place_of(one.subject))]
        # Anybody can write somebody else's name into a record that is refused.
        turns = shared(rows, lambda one: (one.is_ok, party_behind(control, one.whose)), limit)
        found = records.at(one.seq for one in reversed(turns))
    return [Judged(session.open(record), verdict) for record, verdict in found]


def _sight(protocol: Protocol, scope: Scope) -> Callable[[Place | None], bool]:
    """Whether records at a place may be seen; what is about no kind takes the whole mesh."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def sees(place: Place | None) -> bool:
        by = (protocol.read_by(place) if place is not None else ()) or (READS_ALL,)
        if by not in known:
            known[by] = scope.of(*by)
        return is_visible(place.key.kind if place is not None else "", known[by])

    return sees


__all__ = ["LATEST", "Refusal", "latest", "refusals"]
