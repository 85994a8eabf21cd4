"""Writes drawn ops on the log, round by round, each by somebody who may write there."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from msgspec.structs import replace

from antiphon.assembly import MeshConnection
from antiphon.assembly.hosted_mesh import owner_of
from antiphon.core.clock.hlc import MAX_LOGICAL, MAX_WALL
from antiphon.core.families.grants.ops import RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs import ops as jobs
from antiphon.core.families.mesh import ops as mesh
from antiphon.core.manifest import job_id
from antiphon.core.record import codec
from antiphon.core.record.branches import CONTROL, LaneKey
from antiphon.core.record.op import MAX_AUTH, MAX_DEPS, Op, subject_of
from antiphon.core.tempo.policy import TempoPolicy
from antiphon.errors import AntiphonError, Rejected
from antiphon.runtime.log.author import Author, Draft
from chaos.extremes.known import Known
from chaos.extremes.ops import OWNED, Drawer, Drawn, decode_errors, proved
from chaos.extremes.target import RULES, Target

ROUND: Final = 96
"""Ops on different lanes that are written together."""
ODD_ENVELOPES: Final = 0.06
SEND_S: Final = 20.0
CONTROL_EVERY: Final = 400
"""Records between two turns of control ops."""


class Records:
    """What was written so far, and what became of it."""

    def __init__(self, target: Target, drawer: Drawer, known: Known) -> None:
        self._target = target
        self._drawer = drawer
        self._known = known
        self._by_did: dict[str, MeshConnection] = {
            one.session.author.did: one for one in target.writers
        }
        self._chance = known.chance
        self.written = 0
        self.newest = 0
        self.lanes: set[LaneKey] = set()
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """By what refused them: a verdict, or what happened before they were on the log."""

    async def write_round(self, most: int) -> None:
        """Write up to so many, and wait until the owner's full node has judged them."""
        self._known.now_ms = self._target.host.node.session.wall.now_ms()
        drafts: dict[str, list[Draft]] = {}
        busy: set[LaneKey] = set()
        for _ in range(min(ROUND, most)):
            by, draft = self._draft(self._drawer.next(), busy)
            if draft is not None:
                drafts.setdefault(by, []).append(draft)
        sent = await asyncio.gather(*(self._send(by, some) for by, some in drafts.items()))
        await self._judged([one for some in sent for one in some])

    async def write_one(self, drawn: Drawn) -> bool:
        """Write this one alone; whether it is on the log."""
        by, draft = self._draft(drawn, set())
        sent = [] if draft is None else await self._send(by, [draft])
        await self._judged(sent)
        return bool(sent)

    def _draft(self, drawn: Drawn, busy: set[LaneKey]) -> tuple[str, Draft | None]:
        by = drawn.by if drawn.by in self._by_did else self._chance.choice([*self._by_did])
        session = self._by_did[by].session
        try:
            body: Any = drawn.body
            if isinstance(body, jobs.CompleteBody) and body.proof is None:
                body = proved(session, body, self._known) or body
            op = session.compose(drawn.op, body, prev=0)
            place = session.protocol.place_of(subject_of(op))
            if place is None or place.key in busy:
                return by, None
            busy.add(place.key)
            tail = self._known.replica.lane(place.key).tails[place.slot]
            op = replace(op, prev=tail, hlc=session.author.tick())
            (signed,) = session.author.sign([self._odd(op)])
            if isinstance(signed, Rejected):
                raise signed
        except (AntiphonError, *decode_errors) as problem:
            self.refused[f"unsigned: {_word(problem)}"] += 1
            return by, None
        return by, signed

    def _odd(self, op: Op) -> Op:
        """Now and then an envelope at the ends of what it admits, too."""
        if self._chance.random() > ODD_ENVELOPES:
            return op
        records = [*self._known.records] or [(0, "blake3:" + "0" * 64)]
        odd: dict[str, Any] = self._chance.choice(
            (
                {"hlc": (0, 0)},
                {"hlc": (MAX_WALL, MAX_LOGICAL)},
                {"auth": ("a" * 128,) * MAX_AUTH},
                {"auth": ()},
                {"deps": tuple(records[-MAX_DEPS:])},
                {"deps": (records[-1],) * MAX_DEPS},
                {"deps": ((2**53 - 1, records[-1][1]),)},
            )
        )
        return replace(op, **odd)

    async def _send(self, by: str, drafts: list[Draft]) -> list[tuple[int, Draft]]:
        answers = await self._by_did[by].session.send(drafts, timeout_s=SEND_S)
        stored = []
        for draft, answer in zip(drafts, answers, strict=True):
            if isinstance(answer, int):
                stored.append((answer, draft))
            else:
                self.refused[f"unsent: {_word(answer)}"] += 1
        return stored

    async def _judged(self, stored: list[tuple[int, Draft]]) -> None:
        if not stored:
            return
        self.written += len(stored)
        self.newest = max(self.newest, *(seq for seq, _ in stored))
        await self.reached(self._target.host.node, self.newest)
        for seq, draft in stored:
            record = self._known.replica.record(seq)
            place = draft.opened.place
            if record is None or place is None:
                continue
            if place.key.family != CONTROL:
                self.lanes.add(place.key)
            self._known.records.append((seq, draft.op_id))
            if not record.verdict.is_accepted:
                self.refused[record.verdict.value] += 1
                continue
            self.accepted[draft.op.type_name()] += 1
            self._learn(draft.op)

    async def reached(self, node: Any, seq: int) -> None:
        """Wait until a full node has judged a record; `BroughtDown` if a part of the mesh ended."""
        waiting = asyncio.ensure_future(node.reached(seq))
        try:
            while not waiting.done():
                await asyncio.wait((waiting,), timeout=0.2)
                self._target.check()
        finally:
            waiting.cancel()

    def _learn(self, op: Op) -> None:
        body = op.body
        if isinstance(body, jobs.ScheduleBody) and isinstance(op, jobs.JobSchedule):
            self._known.jobs.append((body.kind, job_id(body.manifest)))
        if isinstance(body, jobs.CompleteBody):
            self._known.digests.extend(one.hash for one in body.outputs[:2])

    # --- control --------------------------------------------------------------------------------

    async def write_control(self) -> None:
        """Ops of the families that no member writes: by the owner, and by who is not.

        What the owner changes for everybody, it changes back at once.
        """
        node = self._target.host.node
        async with owner_of(self._target.home, node.session) as (owner, keyring):
            for op in self._drawer.classes:
                is_owned = op in OWNED and self._chance.random() < 0.5
                if op is UcanDelegate:
                    body: Any = self._drawer.delegation(keyring, owner.did)
                elif op is UcanRevoke and self._known.cids:
                    body = RevokeBody(cid=self._chance.choice(self._known.cids))
                else:
                    body = self._drawer.of(op).body
                if isinstance(body, mesh.RouteBody):
                    body = replace(body, kind="x.routed")
                await self._control(op, body, owner if is_owned else None)
                if isinstance(body, mesh.PauseBody):  # which the coordinator may write as well
                    await self._control(op, replace(body, is_paused=False), None)
                if is_owned and op is mesh.MeshRules:
                    await self._control(op, mesh.RulesBody(rules=RULES), owner)
                if is_owned and op is mesh.MeshTempo:
                    await self._control(op, mesh.TempoBody(policy=_USUAL_TEMPO), owner)

    async def _control(self, op: type[Op], body: Any, by: Author | None) -> None:
        """Write it whatever is foreseen, since rejected ones have to be judged as well."""
        node = self._target.host.node
        author = by or node.session.author
        try:
            await node.session.sync_control()
            composed = author.compose(op, body, prev=0, hlc=author.now(), auth=())
            tail = node.session.history.tail(subject_of(composed, codec.encode(composed)))
            draft = author.draft(op, body, prev=tail, auth=())
            seq = await node.session.commit(draft)
        except (AntiphonError, *decode_errors) as problem:
            self.refused[f"unsent: {_word(problem)}"] += 1
            return
        await self._judged([(seq, draft)])


def _word(problem: BaseException) -> str:
    return str(getattr(problem, "reason", "") or type(problem).__name__)


_USUAL_TEMPO: Final = TempoPolicy()
