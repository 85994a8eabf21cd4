"""Documents as guests in a simulated cluster: who writes them, and what must hold of them.

Two agents of one machine write a few documents under every strategy, through crashes and silence.
Now and then one of them writes past its own runtime: a value that was made from an old revision, as
a program would that never looks. Everybody must reject that.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, get_args

from blake3 import blake3

from antiphon.core.families.memory import MEMORY
from antiphon.core.families.memory.ops import Inline, MemoryBody, MemoryPut, Strategy
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.core.record.ids import DIGEST_PREFIX
from antiphon.errors import Conflict, Rejected, Unavailable
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.memory.documents import Documents
from simulator.actors.guests import Guest
from simulator.actors.machines import Machine

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.testing.host_clock import HostClock
    from simulator.checks.law_state import Committed, LaneFacts, LawState
    from simulator.checks.plain_record import PlainRecord
    from simulator.cluster import Cluster

SPACE: Final = "team.notes"
KEYS: Final = ("plan", "list", "count")
EVERY_S: Final = (2.0, 20.0)
_STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
_CARELESS: Final = 0.2
_RESOLVES: Final = 0.3


class DocumentMachine(Machine):
    """Writes documents, from what its agents last knew of them."""

    def __init__(self, cluster: Cluster, clock: HostClock) -> None:
        super().__init__(cluster, "secretary", clock=clock)
        self._chance = random.Random(f"{cluster.seed}/documents")
        self._number = 0

    async def run(self) -> None:
        """Two agents, until the machine is killed."""
        session = self.connect()
        await session.sync_control()
        async with asyncio.TaskGroup() as tasks:
            for agent in ("one", "two"):
                tasks.create_task(self._agent(session, agent))

    async def _agent(self, session: Session, agent: str) -> None:
        documents, seen = Documents(session), dict.fromkeys(KEYS, 0)
        while True:
            await asyncio.sleep(self._chance.uniform(*EVERY_S))
            key = self._chance.choice(KEYS)
            with suppress(Conflict, Rejected, Unavailable):
                seen[key] = await self._deed(documents, agent, key, seen[key])

    async def _deed(self, documents: Documents, agent: str, key: str, base: int) -> int:
        """One put; the revision from which this agent will make its next value."""
        self._number += 1
        strategy = self._chance.choice(_STRATEGIES)
        value, resolves = Inline(text=str(self._number)), tuple[str, ...]()
        if self._chance.random() < _CARELESS:
            await self._careless(documents.session, agent, key, base)
        if self._chance.random() < _RESOLVES:
            known = await documents.read(SPACE, key)
            if known is not None:
                resolves, base = tuple(one.op for one in known.siblings), known.revision
        settled = await documents.put(
            Wanted(
                space=SPACE,
                key=key,
                agent=agent,
                value=value,
                base=base,
                strategy=strategy,
                resolves=resolves,
            )
        )
        is_news = settled.outcome != "conflict" and settled.document is not None
        return settled.document.revision if is_news and settled.document else base

    async def _careless(self, session: Session, agent: str, key: str, base: int) -> None:
        """A put that claims an old revision and does not say what it found."""
        lane = (await session.read(document_key(SPACE, key))).lane
        keeps = lane.state.siblings if lane.state is not None else ()
        body = MemoryBody(
            kind=SPACE, key=key, agent=agent, value=Inline(text="0"), base=base, keeps=keeps
        )
        with suppress(Rejected):
            await write_one(session, Intent(MemoryPut, body, lane))


def home(mesh: str, _type: str, body: dict[str, Any]) -> str:
    """Where a put belongs, spelled by hand."""
    name = base64.b32encode(blake3(body["key"].encode()).digest()[:15]).decode().lower()
    return f"ap.{mesh}.memo.{body['kind']}.{name}"


class NothingOverwritten:
    """A law with a memory of its own: who replaces a revision has read it, or says that it did not.

    And no deferred value is forgotten: it is listed until a put names it.
    """

    __name__ = "nothing_overwritten"

    def __init__(self) -> None:
        self.revisions: dict[tuple[str, str], int] = {}
        self.siblings: dict[tuple[str, str], list[str]] = {}
        self.seen = 0
        self.deferred = 0
        self.resolved = 0

    def __call__(
        self, _ledger: LawState, _lane: LaneFacts, now: Committed, fact: PlainRecord
    ) -> Iterator[str]:
        """What is wrong with one put that took effect."""
        self.seen += 1
        if not now.took_effect:
            return
        body, key = fact.body, (fact.body["kind"], fact.body["key"])
        revision, siblings = self.revisions.get(key, 0), self.siblings.setdefault(key, [])
        base, strategy = body.get("base", 0), body.get("strategy", "remote")
        if base != revision and strategy == "defer":
            siblings.append(DIGEST_PREFIX + blake3(fact.op_bytes).hexdigest())
            self.deferred += 1
            return
        if base != revision and strategy != "local":
            yield f"revision {revision} was replaced by a value made from {base}"
        named = body.get("resolves", [])
        if not set(named) <= set(siblings):
            yield "a conflict was resolved that was not there"
        left = [one for one in siblings if one not in named]
        if [one["op"] for one in body.get("keeps", [])] != left:
            yield "a deferred value was left out of the list"
        self.resolved += len(siblings) - len(left)
        self.siblings[key], self.revisions[key] = left, now.record.seq


def documents_as_guest() -> tuple[Guest, NothingOverwritten]:
    """The guest, and the law that watches it."""
    law = NothingOverwritten()
    guest = Guest(family=MEMORY, prefix="memory", home=home, laws=(law,), machine=DocumentMachine)
    return guest, law
