"""The lease of the pulse: who leads, for how long, and from which state the next one goes on.

Two keys. `pulse.leader` is the lease. It lasts about a beat and is renewed three times in it. The
revision with which it was taken is the leader's term. `pulse.state` holds the last change of tempo.
It outlives the leader, and only the leader writes it, each time over the revision that it knows:
a leader that lost its lease without noticing cannot undo what the next one wrote.

A lease is counted from before it was asked for, by a clock that also runs while the machine sleeps:
it may have ended at the engine later than here, and never earlier. A small part of it is left out,
since two clocks do not run equally fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.tempo.pulse_state import PulseState
from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, Held

if TYPE_CHECKING:
    from antiphon.ports import LeaseEntry
    from antiphon.runtime.log.session import Session

LEADER_KEY: Final = "pulse.leader"
STATE_KEY: Final = "pulse.state"
STATE_TTL_MS: Final = 30 * 86_400_000
"""A mesh that had no pulse for so long begins anew with the policy's tempo."""
SECOND_MS: Final = 1000
RENEWALS: Final = 3
USED: Final = 0.98
"""The part of a lease that is used."""


def lease_ms(beat_ms: int) -> int:
    """How long a lease lasts: a beat, in whole seconds, which is what engines count in."""
    return max(beat_ms // SECOND_MS, 1) * SECOND_MS


class PulseLease:
    """One candidate's hold on the pulse, if it has any."""

    def __init__(self, session: Session) -> None:
        """Holds nothing yet."""
        self._session = session
        self._entry: LeaseEntry | None = None
        self._state: LeaseEntry | None = None
        self._until_s = self._lasts_s = 0.0
        self.term = 0
        """The revision with which the lease was last taken."""

    @property
    def is_held(self) -> bool:
        """Whether it certainly has not ended."""
        return self._entry is not None and self._session.wall.boot_s() < self._until_s

    @property
    def is_kept(self) -> bool:
        """Whether it may not have ended, or only a moment ago: then it is worth a renewal."""
        now_s = self._session.wall.boot_s()
        return self._entry is not None and now_s < self._until_s + self._lasts_s

    async def take(self, beat_ms: int) -> PulseState | None:
        """Take the lease, and the state that the last leader left; `Held` if another leads.

        None is no state: nobody led before, or long ago.
        """
        leases, ttl_ms = self._session.engine.leases, lease_ms(beat_ms)
        begun_s = self._session.wall.boot_s()
        entry = await leases.create(LEADER_KEY, self._session.author.did.encode(), ttl_ms=ttl_ms)
        self._state = await leases.get(STATE_KEY)
        self._entry, self.term = entry, entry.revision
        self._lasts_s = ttl_ms / 1000
        self._until_s = begun_s + self._lasts_s * USED
        return _state_in(self._state)

    async def renew(self, beat_ms: int) -> None:
        """Keep it; `Held` if it is another's by now."""
        if self._entry is None:
            return
        ttl_ms, begun_s = lease_ms(beat_ms), self._session.wall.boot_s()
        try:
            self._entry = await self._session.engine.leases.renew(
                self._entry, self._entry.value, ttl_ms=ttl_ms
            )
        except Held:
            self.drop()
            raise
        self._lasts_s = ttl_ms / 1000
        self._until_s = begun_s + self._lasts_s * USED

    async def keep(self, state: PulseState) -> None:
        """Store a state before it is followed; `Held` if another leader has stored one.

        Any failure ends the lead: whether it was stored is for the next leader to find out.
        """
        value, leases = msgspec.json.encode(state), self._session.engine.leases
        try:
            if self._state is None:
                self._state = await leases.create(STATE_KEY, value, ttl_ms=STATE_TTL_MS)
            else:
                self._state = await leases.renew(self._state, value, ttl_ms=STATE_TTL_MS)
        except AntiphonError:
            self.drop()
            raise

    def drop(self) -> None:
        """Lead no more."""
        self._entry = None

    async def release(self) -> None:
        """Free the lease, so that another can take it at once."""
        entry, self._entry = self._entry, None
        if entry is not None:
            await self._session.engine.leases.release(entry)


async def stored_state(session: Session) -> PulseState | None:
    """What the newest leader stored; None if there was none for long."""
    return _state_in(await session.engine.leases.get(STATE_KEY))


def _state_in(entry: LeaseEntry | None) -> PulseState | None:
    try:
        return msgspec.json.decode(entry.value, type=PulseState) if entry else None
    except UNREADABLE:
        return None
