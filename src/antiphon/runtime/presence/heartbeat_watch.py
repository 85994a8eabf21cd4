"""What a full node knows from all heartbeats: the table, its changes, answers for all, and turns.

A heartbeat is checked only after its sender's share is: each engine user has a subject of its own,
so whoever sends many is left out alone, before a signature is looked at.

Full nodes take turns with what any of them may write. One that announces itself and does nothing
can delay a write by its turn, and any number of them by `MOST_TURNS` turns at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from antiphon.core.authority.job_rights import WORKED_BY
from antiphon.core.authority.parties import party_of_key
from antiphon.core.authority.scope import NOTHING, Scope, scope_of
from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import HEARTBEAT, ROLL
from antiphon.core.party_turns import shared
from antiphon.core.policy import selection
from antiphon.core.presence.cards import (
    HEARTBEATS,
    HEARTBEATS_WANTED,
    MAX_ON_PAGE,
    MAX_PAGE_BYTES,
    MAX_PAGES,
    OLD_HEARTBEATS,
    ROLL_PAGES,
    SHORTEST_BEAT_MS,
    KnownHeartbeat,
    RollPage,
)
from antiphon.core.presence.presence_table import (
    GRACE_MS,
    MAX_NODES,
    STALE_MS,
    Heard,
    KnownNode,
    Level,
    PresenceChange,
    PresenceTable,
)
from antiphon.errors import Rejected, Unavailable
from antiphon.runtime.presence.known_nodes import StoredNode
from antiphon.runtime.rights_cache import RightsCache
from antiphon.runtime.services import beside

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.presence.known_nodes import KnownNodes

SWEEP_S: Final = 1.0
WATCHED_MS: Final = 60_000
"""How often it is written down until when it listened."""
MOST_DEAD: Final = 1_000
"""Nodes that died, in one answer: those that were heard last, and parties share it."""
MAX_PENDING: Final = 8_192
MAX_OF_USER: Final = 256
"""Heartbeats of one engine user in the time of one: its processes share a login."""
_RIGHTS_FOR_S: Final = 30.0
MOST_TURNS: Final = 4
_PAGE_BYTES: Final = MAX_PAGE_BYTES // 2
"""Of heartbeats; the rest of a page is its envelope."""

Keep = Callable[[int, PresenceChange], None]


class HeartbeatWatch:
    """Listens to every heartbeat of a mesh until cancelled."""

    def __init__(self, session: Session, keep: Keep, known: KnownNodes | None = None) -> None:
        """`keep` stores a change and when it was noticed; `known` is where nodes are kept."""
        self.table = PresenceTable()
        self.ready = asyncio.Event()
        """Set once it listens."""
        self.newcomer = asyncio.Event()
        """Set when another full node comes: it should hear of this one before its first turn."""
        self._session = session
        self._keep = keep
        self._stored = known
        self._written_ms = 0
        self._listens_since_ms: int | None = None
        self._coordinator = ("", 0)
        self._shares: dict[str, int] = {}
        self._shares_until_ms = 0
        self._scopes = RightsCache(session, self._scope, kept_s=_RIGHTS_FOR_S, most=2 * MAX_NODES)

    @property
    def now_ms(self) -> int:
        """A clock that no adjustment moves."""
        return round(self._session.wall.boot_s() * 1000)

    @property
    def knows_others(self) -> bool:
        """Whether everybody who is online must have been heard by now."""
        since_ms = self._listens_since_ms
        return since_ms is not None and self.now_ms - since_ms >= SHORTEST_BEAT_MS + GRACE_MS

    async def run(self) -> None:
        """Listen and keep what changes."""
        self._remember()
        async with beside(self._sweep()):
            attempt = 0
            while True:
                try:
                    await self._hear()
                except Unavailable:
                    self._listens_since_ms = None
                    self.ready.set()
                    await self._session.pause(min(attempt, 6))
                    attempt += 1

    async def _hear(self) -> None:
        bus = self._session.engine.bus
        async with bus.subscribe(HEARTBEAT.at(user="*"), max_pending=MAX_PENDING) as heartbeats:
            self._listens_since_ms = self.now_ms
            self.ready.set()
            with suppress(Rejected):  # each says its next one within a minute in any case
                await bus.publish(ROLL.at(), HEARTBEATS_WANTED, reply=bus.new_inbox())
            async for message in heartbeats:
                self.hear(message.subject, message.payload)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    # --- what is heard ------------------------------------------------------------------------

    def hear(self, subject: str, payload: bytes) -> None:
        """Take in a heartbeat, if its sender has not used up its share."""
        if not self._may_be_heard(subject):
            return
        session = self._session
        message = HEARTBEATS.open(
            payload, mesh=session.mesh, subject=subject, now_ms=session.wall.now_ms()
        )
        if isinstance(message, Refused) or message.body.node != message.author:
            return
        if self._has_ended(message.author):
            return
        if message.author == session.control.coordinator and not message.body.is_away:
            self._coordinator = (message.author, session.wall.now_ms())
        changed = self.table.hear(
            message.body,
            Heard(subject.rpartition(".")[2], payload, at_ms=message.at_ms, heard_ms=self.now_ms),
        )
        if changed is not None:
            self._note(changed)
            if message.body.role == "node" and message.author != session.author.did:
                self.newcomer.set()

    def coordinator_heard_ms(self, did: str) -> int | None:
        """When this coordinator was last heard, by this machine's time; None: not since its turn.

        Kept beside the table, which may be full.
        """
        node, at_ms = self._coordinator
        return at_ms if node == did else None

    def sweep(self) -> None:
        """Notice who fell silent, and whose authority ended."""
        for changed in self.table.sweep(self.now_ms, self._has_ended):
            self._note(changed)
        stored, is_due = self._stored, self.now_ms - self._written_ms >= WATCHED_MS
        if stored is not None and is_due and self._listens_since_ms is not None:
            self._written_ms = self.now_ms
            stored.watched(self._session.wall.now_ms())

    def _note(self, changed: PresenceChange) -> None:
        """Keep a change, and what is known of its node now."""
        wall_ms, stored = self._session.wall.now_ms(), self._stored
        self._keep(wall_ms, changed)
        last = self.table.last_of(changed.node)
        if stored is None or last is None:
            return
        if changed.level in {Level.LEFT, Level.ENDED}:
            stored.drop(changed.node)
            return
        heard_ms = wall_ms - (self.now_ms - last.heard_ms)
        of = (changed.node, changed.alias, last.user, last.heartbeat, last.at_ms)
        stored.put(StoredNode(*of, heard_ms, changed.level))

    def _remember(self) -> None:
        """Know the nodes again that were known when this machine listened before."""
        session = self._session
        for one in self._stored.all() if self._stored is not None else ():
            where = HEARTBEAT.at(user=one.user)
            message = OLD_HEARTBEATS.open(one.heartbeat, mesh=session.mesh, subject=where)
            if not isinstance(message, Refused) and one.node != session.author.did:
                silent_ms = max(session.wall.now_ms() - one.heard_ms, 0)
                last = Heard(one.user, one.heartbeat, one.at_ms, self.now_ms - silent_ms)
                was_alive = one.level != Level.DEAD
                self.table.remember(message.body, last, is_from_before=was_alive)

    def _may_be_heard(self, subject: str) -> bool:
        if self.now_ms >= self._shares_until_ms:
            self._shares.clear()
            self._shares_until_ms = self.now_ms + SHORTEST_BEAT_MS
        heard = self._shares[subject] = self._shares.get(subject, 0) + 1
        return heard <= MAX_OF_USER

    def _has_ended(self, did: str) -> bool:
        """Whether a node has no right on this mesh."""
        return self._scopes.of(did).by_command == NOTHING.by_command

    def _scope(self, did: str) -> Scope:
        session = self._session
        now_s = session.wall.now_ms() // 1000
        return scope_of(session.control, session.protocol.branches, did, now_s)

    # --- turns --------------------------------------------------------------------------------

    def turn(self, kind: str, job_id: str, fence: str) -> int:
        """How many other full nodes should write what is due about a job before this one."""
        able = (did for did in self.table.full_nodes() if self._may_work(did, kind))
        return min(selection.turn(job_id, fence, self._session.author.did, able), MOST_TURNS)

    def _may_work(self, did: str, kind: str) -> bool:
        return self._scopes.of(did).admits(kind, *WORKED_BY)

    # --- answers for all ----------------------------------------------------------------------

    def answers(self, question: str) -> bool:
        """Whether it is this node's to answer a roll call for all."""
        return self.knows_others and self.table.answers(question, self._session.author.did)

    def pages(self, where: str, *, with_dead: bool = False) -> Iterator[bytes]:
        """Everything it knows of live nodes, signed for one inbox; also of those that died."""
        nodes = self.table.live(self.now_ms, stale_ms=10 * STALE_MS)
        if with_dead:
            alive = (one for one in nodes if one.level is not Level.DEAD)
            party = partial(party_of_key, self._session.control)
            dead = shared(self.table.dead(), lambda one: party(one.card.node), MOST_DEAD)
            nodes = [*alive, *dead]
        known = [self._heard(one) for one in nodes]
        parts = list(_parts(known))[:MAX_PAGES]
        author = self._session.author
        for number, part in enumerate(parts, 1):
            page = RollPage(page=number, pages=len(parts), known=tuple(part))
            me = (author.did, author.vouch)
            yield ROLL_PAGES.sign(page, me, mesh=self._session.mesh, subject=where)

    def _heard(self, one: KnownNode) -> KnownHeartbeat:
        ago_ms = max(self.now_ms - one.last.heard_ms, 0)
        return KnownHeartbeat(ago_ms, one.last.user, Raw(one.last.heartbeat))


def _parts(known: list[KnownHeartbeat]) -> Iterator[list[KnownHeartbeat]]:
    part: list[KnownHeartbeat] = []
    size = 0
    for one in known:
        length = len(bytes(one.heartbeat))
        if part and (size + length > _PAGE_BYTES or len(part) == MAX_ON_PAGE):
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    yield part
