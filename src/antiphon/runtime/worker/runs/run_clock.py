"""The clock by which a worker counts beats: the pulse's, or without one this machine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from antiphon.core.tempo.meter import Meter
    from antiphon.core.tempo.phases import Phases
    from antiphon.core.tempo.pulse_view import Mode
    from antiphon.runtime.log.session import Session


class RunClock(Protocol):
    """Beats as one process knows them; `antiphon.runtime.tempo.beat_clock` follows the pulse."""

    def now_ms(self) -> int:
        """The time that beats are counted in."""

    def meter(self) -> Meter:
        """The tempo in force, the length of a bar, and a downbeat."""

    def phases(self) -> Phases:
        """The beats of each phase of a bar."""

    def mode(self) -> Mode:
        """What the beats are taken from."""


class LocalClock:
    """Beats by the mesh's tempo policy and this machine's clock."""

    def __init__(self, session: Session) -> None:
        """Listens to nothing."""
        self._session = session

    def now_ms(self) -> int:
        """This machine's time."""
        return self._session.wall.now_ms()

    def meter(self) -> Meter:
        """The policy's."""
        return self._session.control.tempo.meter

    def phases(self) -> Phases:
        """The policy's."""
        return self._session.control.tempo.beats

    def mode(self) -> Mode:
        """Nothing is heard."""
        return "local"
