"""Kinds whose jobs wait and that nobody runs: what every command and page says of them.

A job counts if a worker could claim it now: it is pending, no pause keeps it back, the time until
its next attempt is over, and it is no question. Whether somebody runs its kind follows from the
heartbeats of workers and from what they may claim. Where there are more such kinds than are
listed, parties share the list by whose job waits longest (decision 0093).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.authority.parties import party_behind, whose
from antiphon.core.authority.scope import EVERY_KIND, EVERYTHING, Scope, meet
from antiphon.core.families.jobs.ops import JOB, JobSchedule
from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.core.party_turns import shared
from antiphon.core.policy.selection import claiming_party
from antiphon.core.tempo.time_text import time_text
from antiphon.errors import Unavailable
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.replica.job_pages import is_visible
from antiphon.runtime.replica.lane_lists import LaneList, Lists
from antiphon.sdk.job_wait import unanswered
from antiphon.sdk.jobs import waiting_kinds
from antiphon.sdk.jobs.waiting_kinds import WaitingKinds

if TYPE_CHECKING:
    from antiphon.core.presence.cards import Card
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.connection.namespace import Connected

MOST_LISTED: Final = 100
LOOKED_AT: Final = 100
"""Jobs of one kind, to count those that do not wait for a worker."""
ROWS: Final = 10_000
"""The same of all kinds, to find the job of each that waits longest."""
PENDING_JOBS: Final = LaneList[Job]("jobs", JobLane, JOB, "recall_ms", order="recall_ms")
"""Those that workers could claim, the one first that was announced longest ago."""
WAITED_MS: Final = 15_000
"""A worker may start, or be busy: what waits for less needs nobody's attention."""
TRY: Final = "try: "
_DAY: Final = slice(0, 10)
_MINUTE: Final = slice(11, 16)


class UnservedKind(Struct, frozen=True, kw_only=True):
    """A kind whose jobs wait, and that nobody runs."""

    kind: str
    party: str
    """Whose job waits longest."""
    jobs: int
    since_ms: int
    words: str
    """For people: what is missing, since when, and who ran the kind last."""
    hint: str
    """What to type."""


async def unserved_kinds(
    connection: Connection,
    replica: Replica,
    *,
    scope: Scope = EVERYTHING,
    among: Sequence[str] = (EVERY_KIND,),
    cards: Sequence[Card] | None = None,
    waited_ms: int = 0,
) -> list[UnservedKind]:
    """The kinds with jobs that have waited so long and that no worker runs which is online.

    `cards` are those of nodes that are known to be online; without them one full node is asked.
    Nobody is heard over HTTP, so nothing is said there.
    """
    if connection.engine_name == "http":
        return []
    replica.flush()
    session = connection.session
    visible = meet((scope.of(*JOB.read_by), tuple(among)))
    kinds = _pending_kinds(session, replica, visible) if visible else {}
    if not kinds:
        return []
    if cards is None:
        try:
            cards = await connection.online()
        except Unavailable:
            return []  # nobody can be asked
    look = _Look(session, replica, cards, waited_ms)
    each = max(1, min(LOOKED_AT, ROWS // len(kinds)))
    found = [one for kind in kinds if (one := look.oldest(kind, each)) is not None]
    found.sort(key=lambda job: job.open_since_ms)

    def party(job: Job) -> str:
        return party_behind(session.control, whose(job.call_auth, job.scheduler))

    return [
        look.unserved(job, party(job), kinds[job.kind]) for job in shared(found, party, MOST_LISTED)
    ]


def _pending_kinds(session: Session, replica: Replica, visible: Sequence[str]) -> dict[str, int]:
    """The kinds with pending jobs, and how many; of too many kinds, some of each party's."""
    found = dict(replica.ask(WaitingKinds).kinds(visible))
    if len(found) >= waiting_kinds.MOST_KINDS:
        lists = Lists(replica, session.control)
        others = lists.shared(
            PENDING_JOBS,
            limit=LOOKED_AT,
            only=lambda job: job.kind not in found and is_visible(job.kind, visible),
        )
        for row in others.rows:
            found[row.kind] = found.get(row.kind, 0) + 1
    return found


async def unserved_here(
    mesh: Connected, *, kind: str = "", cards: Sequence[Card] | None = None
) -> list[UnservedKind]:
    """Those of a kind and below it, or all, however short their jobs wait."""
    among = (kind, f"{kind}.>") if kind else (EVERY_KIND,)
    async with mesh.connection.replica() as replica:
        return await unserved_kinds(mesh.connection, replica, among=among, cards=cards)


def known_name(session: Session, replica: Replica) -> Callable[[str], str]:
    """How to call a node, also one that is gone: as the owner does, else as it called itself."""
    held, aliases = holdings_of(session), replica.known_nodes.aliases()
    return lambda did: held.tree.names.get(did) or aliases.get(did) or held.name(did)


class _Look:
    """What is looked at for all kinds."""

    def __init__(
        self, session: Session, replica: Replica, cards: Sequence[Card], waited_ms: int
    ) -> None:
        self._session, self._replica, self._cards = session, replica, cards
        self._rows = replica.ask(WaitingKinds)
        self._now_ms = session.wall.now_ms()
        self._until_ms = self._now_ms - waited_ms
        self._name = known_name(session, replica)
        self._workers: dict[str, list[Card]] = {}
        for card in cards:
            for kind in card.kinds:
                self._workers.setdefault(kind, []).append(card)

    def oldest(self, kind: str, looked_at: int) -> Job | None:
        """The job that waits longest; None if somebody runs the kind, or none waits so long."""
        if any(self._may_claim(card.node, kind) for card in self._workers.get(kind, ())):
            return None
        return next(iter(self._waiting(self._rows.oldest(kind, limit=looked_at))), None)

    def unserved(self, oldest: Job, party: str, pending: int) -> UnservedKind:
        """What there is to say of a kind, with so many pending jobs."""
        kind, looked_at = oldest.kind, self._rows.oldest(oldest.kind, limit=LOOKED_AT)
        jobs = len(self._waiting(looked_at))
        if len(looked_at) == LOOKED_AT:
            jobs += max(pending - LOOKED_AT, 0)
        lines = unanswered(
            self._session, oldest, self._cards, is_command=_is_command(self._replica, oldest)
        )
        what = f"nobody runs {kind}"
        if kind in self._workers or self._session.control.route_for(kind) is not None:
            what = lines[0] if lines else what
        since_ms = oldest.open_since_ms
        wait = "1 job waits" if jobs == 1 else f"{jobs:,} jobs wait"
        words = f"{what}: {wait} since {self._at(since_ms)}"
        last = self._rows.last_run(kind)
        if last is not None:
            words += f" (last: {self._name(last.worker)}, {self._at(last.at_ms)})"
        hint = next((one.removeprefix(TRY) for one in lines if one.startswith(TRY)), "")
        return UnservedKind(
            kind=kind, party=party, jobs=jobs, since_ms=since_ms, words=words, hint=hint
        )

    def _waiting(self, jobs: Sequence[Job]) -> list[Job]:
        """Those that a worker could claim, and could for long enough."""
        control = self._session.control
        return [
            job
            for job in jobs
            if job.open_since_ms <= self._until_ms
            and job.start_by_ms >= self._now_ms
            and control.pause_of(job.kind, job.concurrency, job.plan_name) is None
        ]

    def _may_claim(self, did: str, kind: str) -> bool:
        control, choice = self._session.control, ChainChoice(did)
        return bool(claiming_party(control, choice, did=did, kind=kind, now_ms=self._now_ms))

    def _at(self, ms: int) -> str:
        text, today = time_text(ms), time_text(self._now_ms)
        day = "" if text[_DAY] == today[_DAY] else f"{text[_DAY]} "
        return f"{day}{text[_MINUTE]} UTC"


def _is_command(replica: Replica, job: Job) -> bool:
    stored = replica.record(job.scheduled_seq)
    if stored is None:
        return False
    op = open_stored(replica.protocol, replica.mesh, stored.record).op
    return isinstance(op, JobSchedule) and op.body.manifest.handler is None
