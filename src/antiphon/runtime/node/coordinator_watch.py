"""Watches whether the coordinator is online. Full nodes run the watch; `ask_once` asks right now.

A coordinator that stops answering is reported, never replaced (spec §7.4): everything here reads,
and nothing writes to the log. The rule is in `antiphon.core.policy.coordinator_silence`.

structlog is imported where events are logged: commands that only ask do not need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.jobs.state import State
from antiphon.core.policy import coordinator_silence
from antiphon.errors import AntiphonError
from antiphon.runtime.attention.attention_table import Attention
from antiphon.runtime.presence.roll_call import roll_call
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.replica.replica import Replica

ROUND_S: Final = 30.0
LISTEN_S: Final = 1.0
ROUNDS_MISSED: Final = 3
"""Rounds without listening after which this node was itself offline."""
LOOK_BACK: Final = 10_000
"""Records among which `ask_once` looks for the coordinator's newest op."""


SERVICE: Final = "coordinator"
"""Under which name a quiet one is listed among what needs attention."""

_log = LazyLogger(__name__)


class CoordinatorWatch:
    """Runs beside a full node; logs when the coordinator stops answering and when it is back."""

    def __init__(
        self,
        node: FullNode,
        heard_ms: Callable[[str], int | None],
        *,
        round_s: float = ROUND_S,
        listen_s: float = LISTEN_S,
        quiet_after_ms: int = coordinator_silence.QUIET_AFTER_MS,
    ) -> None:
        """`heard_ms`: a coordinator's last heartbeat; `round_s`: the mean wait between rounds."""
        self.node = node
        self.heard_ms = heard_ms
        self.round_s = round_s
        self.listen_s = listen_s
        self.quiet_after_ms = quiet_after_ms
        self.quiet_since_ms: int | None = None
        """Since when the present coordinator has not answered; None while it is online."""
        self._watch: coordinator_silence.Watch | None = None

    async def run(self) -> None:
        """Listen until cancelled."""
        self.node.watchers.append(self._applied)
        try:
            await self.node.ready.wait()
            while True:
                try:
                    await self.look()
                except AntiphonError as problem:
                    # Without the engine it is this node that is offline. Others may be fine.
                    _log.info("coordinator_watch_waits", problem=problem.message)
                chance = self.node.session.entropy.random()
                await asyncio.sleep(self.round_s * (0.5 + chance))
        finally:
            self.node.watchers.remove(self._applied)

    async def look(self) -> None:
        """One round: roll call if there was no sign of life lately, then log what changed."""
        session = self.node.session
        watch = self._with_heartbeat()
        seen: list[str] = []
        if watch.coordinator == session.author.did:
            seen.append(session.author.did)
        elif coordinator_silence.should_ask(
            watch,
            session.wall.now_ms(),
            owner=session.control.owner,
            quiet_after_ms=self.quiet_after_ms,
        ):
            seen += [card.node for card in await roll_call(session, wait_s=self.listen_s)]
        now_ms = session.wall.now_ms()
        gap_ms = int(ROUNDS_MISSED * (self.round_s + self.listen_s) * 1000)
        # Not the watch from above: the owner may have named another coordinator meanwhile.
        watch = coordinator_silence.listened(self._present_watch(), now_ms, gap_ms=gap_ms)
        for node in seen:
            watch = coordinator_silence.shown(watch, node, now_ms, is_answer=True)
        self._watch = watch
        self._settle(watch, now_ms)

    def _with_heartbeat(self) -> coordinator_silence.Watch:
        """The watch, with the coordinator's last heartbeat as a sign of life."""
        watch = self._present_watch()
        heard_ms = self.heard_ms(watch.coordinator)
        if heard_ms is not None:
            watch = coordinator_silence.shown(watch, watch.coordinator, heard_ms, is_answer=True)
            self._watch = watch
        return watch

    def _present_watch(self) -> coordinator_silence.Watch:
        session = self.node.session
        watch = coordinator_silence.watching(
            self._watch, session.control.coordinator, session.wall.now_ms()
        )
        if watch is not self._watch:
            self._watch = watch
            self.quiet_since_ms = None
            self.node.replica.attention.drop(SERVICE, "")  # another one was named
        return watch

    def _applied(self, applied: Applied) -> None:
        """An accepted op of the coordinator is a sign of life; a rejected one may be a replay."""
        op, control = applied.opened.op, self.node.session.history.current
        if op is None or control is None or op.author != control.coordinator:
            return
        if not applied.verdict.is_accepted:
            return
        at_ms = min(applied.opened.commit_ms, self.node.session.wall.now_ms())
        self._watch = coordinator_silence.shown(
            self._present_watch(), op.author, at_ms, is_answer=False
        )

    def _settle(self, watch: coordinator_silence.Watch, now_ms: int) -> None:
        owner = self.node.session.control.owner
        since_ms = coordinator_silence.quiet_since(
            watch, now_ms, owner=owner, quiet_after_ms=self.quiet_after_ms
        )
        was_quiet = self.quiet_since_ms is not None
        self.quiet_since_ms = since_ms
        if was_quiet == (since_ms is not None):
            return
        # Both at one level: a reader who saw the first should see the second.
        if since_ms is not None:
            why = "the coordinator does not answer: waiting jobs, plans and seals stop"
            self.node.replica.attention.put(
                Attention(SERVICE, "", watch.coordinator, why, since_ms, 1)
            )
            _log.warning("coordinator_quiet", coordinator=watch.coordinator, since_ms=since_ms)
        else:
            self.node.replica.attention.drop(SERVICE, "")
            _log.warning("coordinator_back", coordinator=watch.coordinator)


class CoordinatorStatus(Struct, frozen=True, kw_only=True):
    """What is known about the coordinator right now."""

    coordinator: str
    alias: str
    """Its own name for itself, if it answers."""
    is_owner: bool
    """Whether the owner's own key is the coordinator, as it is from genesis on."""
    answers: bool
    last_op_ms: int | None
    """Its newest op among the last `LOOK_BACK` records."""
    is_quiet: bool
    """Expected to be online, and silent for longer than it may be."""
    waiting: int
    """Jobs that become claimable only by its offer."""


async def ask_once(session: Session, replica: Replica, *, wait_s: float) -> CoordinatorStatus:
    """Do one roll call, and look through the newest records of an up-to-date replica."""
    control = session.control
    who = control.coordinator
    cards = {card.node: card for card in await roll_call(session, wait_s=wait_s)}
    now_ms = session.wall.now_ms()
    last_op_ms = _last_op_ms(replica, who)
    watch = coordinator_silence.Watch(
        coordinator=who,
        since_ms=0,
        listened_ms=now_ms,
        shown_ms=now_ms if who in cards else last_op_ms,
        has_answered=who in cards,
    )
    return CoordinatorStatus(
        coordinator=who,
        alias=cards[who].alias if who in cards else "",
        is_owner=who == control.owner,
        answers=who in cards,
        last_op_ms=last_op_ms,
        is_quiet=coordinator_silence.quiet_since(watch, now_ms, owner=control.owner) is not None,
        waiting=replica.sizes.by_state().get(State.WAITING.value, 0),
    )


def _last_op_ms(replica: Replica, author: str) -> int | None:
    end = replica.cursor.seq
    for seq in range(end, max(end - LOOK_BACK, 0), -1):
        stored = replica.record(seq)
        if stored is None or not stored.verdict.is_accepted:
            continue
        op_bytes, _, _ = stored.record.payload.partition(b"\n")
        if replica.protocol.decoder.decode(op_bytes).author == author:
            return stored.record.commit_ms
    return None
