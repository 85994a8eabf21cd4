"""Tells other nodes what the coordinator's services have set aside, in signed reports on the bus.

Runs beside every full node. The coordinator's says it when it changes, at most once in a round; and
again after a while, for those who were not there. Others keep what the present coordinator says,
until it says something else or nothing for a long time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.bus.attention_report import (
    ATTENTION_REPORTS,
    MAX_REASON,
    MAX_TEXT,
    MOST_ITEMS,
    AttentionReport,
    ReportedItem,
)
from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import ATTENTION
from antiphon.errors import AntiphonError, Corrupt, EngineDenied, Unavailable
from antiphon.runtime.attention.attention_table import Attention
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.ports import Keyring
    from antiphon.runtime.node.full_node import FullNode

ROUND_S: Final = 30.0
"""So at most 120 reports an hour."""
AGAIN_S: Final = 600.0
"""After which the same is said again."""
SILENT_S: Final = 3 * AGAIN_S
"""After which nothing is kept of what was said."""
MAX_PENDING: Final = 64
LONGEST_PAUSE: Final = 6
"""Doublings of the pause between two tries to listen."""

log = LazyLogger(__name__)


class AttentionReports:
    """Says and hears what is set aside, beside one full node."""

    def __init__(self, node: FullNode, keyring: Keyring) -> None:
        """Nothing is said or heard before `run`."""
        self._node = node
        self._session = node.session
        self._table = node.replica.attention
        self._signer = (keyring.did, keyring.sign)
        self._said: tuple[ReportedItem, ...] = ()
        self._said_s = self._heard_s = 0.0
        self._heard_of = ""
        """Who said what is kept here."""
        self._heard_ms = 0
        """When, by its own clock: nothing older counts."""

    async def run(self) -> None:
        """Until cancelled; a node that may not read everything does neither."""
        await self._node.ready.wait()
        if self._session.log.reads != WHOLE:
            return
        self._table.report("", ())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear())
            tasks.create_task(self._say())

    # --- the coordinator --------------------------------------------------------------------------

    async def _say(self) -> None:
        while True:
            try:
                await self.look()
            except Corrupt:
                raise
            except AntiphonError as problem:
                log.info("attention_report_not_sent", problem=problem.message)
            chance = self._session.entropy.random()
            await asyncio.sleep(ROUND_S * (1 + chance / 10))

    async def look(self) -> None:
        """One round: say what changed, and forget whoever says nothing any more."""
        session, now_s = self._session, self._session.wall.boot_s()
        if session.control.coordinator != session.author.did:
            self._said = ()
            is_silent = now_s - self._heard_s >= SILENT_S
            if self._heard_of and (is_silent or self._heard_of != session.control.coordinator):
                self._forget()
            return
        self._forget()
        items = tuple(map(_reported, self._table.newest(limit=MOST_ITEMS)))
        is_old = bool(items) and now_s - self._said_s >= AGAIN_S
        if items == self._said and not is_old:
            return
        where, mesh, at_ms = ATTENTION.at(), session.mesh, session.wall.now_ms()
        report = AttentionReport(items=items)
        payload = ATTENTION_REPORTS.sign(
            report, self._signer, mesh=mesh, subject=where, at_ms=at_ms
        )
        await session.engine.bus.publish(where, payload)
        self._said, self._said_s = items, now_s

    # --- the others -------------------------------------------------------------------------------

    async def _hear(self) -> None:
        attempt = 0
        while True:
            try:
                bus = self._session.engine.bus
                async with bus.subscribe(ATTENTION.at(), max_pending=MAX_PENDING) as messages:
                    attempt = 0
                    async for message in messages:
                        self.hear(message.payload)
            except EngineDenied:
                return  # this node may read everything, and not hear that
            except Unavailable as problem:
                log.info("attention_reports_not_heard", problem=problem.message)
            await self._session.pause(attempt)
            attempt = min(attempt + 1, LONGEST_PAUSE)

    def hear(self, payload: bytes) -> None:
        """Keep what the coordinator says in place of what it said before."""
        session = self._session
        opened = ATTENTION_REPORTS.open(
            payload, mesh=session.mesh, subject=ATTENTION.at(), now_ms=session.wall.now_ms()
        )
        if isinstance(opened, Refused):
            return
        by = opened.author
        if by != session.control.coordinator or by == session.author.did:
            return
        if by == self._heard_of and opened.at_ms <= self._heard_ms:
            return  # a replay
        items = [
            Attention(one.service, one.item, one.whose, one.reason, one.since_ms, one.tries, by)
            for one in opened.body.items
        ]
        self._table.report(by, items)
        self._heard_of, self._heard_ms, self._heard_s = by, opened.at_ms, session.wall.boot_s()

    def _forget(self) -> None:
        if self._heard_of:
            self._table.report("", ())
            self._heard_of = ""


def _reported(one: Attention) -> ReportedItem:
    return ReportedItem(
        service=one.service[:MAX_TEXT],
        item=one.item[:MAX_TEXT],
        whose=one.whose[:MAX_TEXT],
        reason=one.reason[:MAX_REASON],
        since_ms=one.since_ms,
        tries=one.tries,
    )
