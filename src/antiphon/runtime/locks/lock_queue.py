"""What those that wait for locks of a scope tell each other on the bus (spec §10).

Each says that it has come, repeats it now and then, answers whoever asks, and says when it leaves.
Nothing of this is read from the log, and nothing on the log depends on it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.bus.signed_message import MessageType, Refused
from antiphon.core.bus.subjects import LOCK_WAIT
from antiphon.core.policy.locks.lock_turns import CREDIT_MS, REFRESH_S, Arrival, LockTurns
from antiphon.errors import AntiphonError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.runtime.locks.lock_line import LockLine

MAX_PENDING: Final = 512
ANSWER_S: Final = 0.5
"""An answer is not repeated within this time: many may ask at once."""
TICKET_BYTES: Final = 8
ARRIVALS: Final = MessageType("lock-arrival", Arrival, max_bytes=2 * 1024, max_age_ms=CREDIT_MS)


class LockQueue:
    """One waiter's place among those that wait for the same lock."""

    def __init__(self, line: LockLine, changed: Callable[[], None]) -> None:
        """`changed` is called when the rank may be another."""
        session = line.session
        self._line = line
        self._changed = changed
        self._where = LOCK_WAIT.at(kind=line.scope)
        ticket = session.entropy.token(TICKET_BYTES).hex()
        self.turns = LockTurns(ticket, session.wall.now_ms())
        self._answered_s = 0.0

    def rank(self) -> int:
        """How many others that came before are still waiting."""
        return self.turns.rank(self._now_s())

    async def run(self) -> None:
        """Listen and repeat until cancelled. Without a bus everybody has rank 0."""
        attempt = 0
        while True:
            with suppress(Unavailable):
                await self._attend()
            await self._line.session.pause(attempt)
            attempt = min(attempt + 1, 6)

    async def _attend(self) -> None:
        bus = self._line.session.engine.bus
        async with bus.subscribe(self._where, max_pending=MAX_PENDING) as heard:
            await self.say(asks=True)
            messages = heard.__aiter__()
            coming: asyncio.Future[object] = asyncio.ensure_future(messages.__anext__())
            try:
                while True:
                    done, _ = await asyncio.wait([coming], timeout=REFRESH_S)
                    if not done:
                        await self.say()
                        continue
                    message = await coming
                    await self._hear(getattr(message, "payload", b""))
                    coming = asyncio.ensure_future(messages.__anext__())
            except StopAsyncIteration:
                return
            finally:
                coming.cancel()
                await asyncio.wait([coming])

    async def _hear(self, payload: bytes) -> None:
        session = self._line.session
        now_ms = session.wall.now_ms()
        message = ARRIVALS.open(payload, mesh=session.mesh, subject=self._where, now_ms=now_ms)
        if isinstance(message, Refused) or message.body.name != self._line.at.name:
            return
        said, now_s = message.body, self._now_s()
        if said.ticket == self.turns.ticket:
            return
        self.turns.heard(message.author, said, now_ms=now_ms, now_s=now_s)
        if said.asks and now_s - self._answered_s > ANSWER_S:
            self._answered_s = now_s
            await self.say()
        self._changed()

    async def say(self, *, asks: bool = False, leaves: bool = False) -> None:
        """Tell the others; lost while the engine is away."""
        session = self._line.session
        said = Arrival(
            name=self._line.at.name,
            agent=self._line.agent,
            ticket=self.turns.ticket,
            arrived_ms=self.turns.arrived_ms,
            asks=asks,
            leaves=leaves,
        )
        signer = (session.author.did, session.author.vouch)
        payload = ARRIVALS.sign(
            said, signer, mesh=session.mesh, subject=self._where, at_ms=session.wall.now_ms()
        )
        with suppress(AntiphonError):
            await session.engine.bus.publish(self._where, payload)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
