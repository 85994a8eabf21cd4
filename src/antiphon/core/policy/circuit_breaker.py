"""When to stop asking somebody who does not answer: a circuit breaker.

    closed ──N failures in a row──▶ open ──reset_s later, the next to ask──▶ half-open
      ▲                              ▲                                        │     │
      │                              └──────────────the probe fails───────────┘     │
      └─────────────────────────────the probe succeeds──────────────────────────────┘

While it is open nobody waits in vain; half-open, one call alone goes ahead to see. Time is handed
in, from a clock that never steps.

A new line to the other side closes it, whatever the phase: somebody answered there. Lines are
numbered by whoever makes them.

Who is let through gets a pass of the present phase and hands it back with the outcome. An outcome
from an earlier phase, or of an earlier line, changes nothing: calls that were under way when the
breaker opened would otherwise open it again long after the other side is back.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NewType

FAILURES: Final = 5
RESET_S: Final = 30.0

Pass = NewType("Pass", int)


class Phase(Enum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitBreaker:
    """One breaker, for one thing that may be away."""

    __slots__ = ("_failed", "_line", "_number", "_since_s", "failures", "phase", "reset_s")

    def __init__(self, *, failures: int = FAILURES, reset_s: float = RESET_S) -> None:
        """Closed. Opens after `failures` in a row, for `reset_s` seconds at a time."""
        self.failures = failures
        self.reset_s = reset_s
        self.phase = Phase.CLOSED
        self._failed = 0
        self._since_s = 0.0
        self._number = 0
        self._line = 0

    def ask(self, now_s: float, *, line: int = 0) -> Pass | None:
        """A pass for one call over this line, or None while it should not be made."""
        if line != self._line:
            self._line = line
            self._failed = 0
            self._turn(Phase.CLOSED)
        if self.phase is Phase.HALF_OPEN:
            return None
        if self.phase is Phase.OPEN:
            if now_s < self._since_s + self.reset_s:
                return None
            self._turn(Phase.HALF_OPEN)
        return Pass(self._number)

    def wait_s(self, now_s: float) -> float:
        """Seconds until somebody may try again; 0 if now, or if somebody is at it."""
        if self.phase is not Phase.OPEN:
            return 0.0
        return max(self._since_s + self.reset_s - now_s, 0.0)

    def succeeded(self, given: Pass) -> None:
        """The call was answered, whatever the answer."""
        if given != self._number:
            return
        self._failed = 0
        if self.phase is not Phase.CLOSED:
            self._turn(Phase.CLOSED)

    def failed(self, given: Pass, now_s: float) -> None:
        """The call was not answered."""
        if given != self._number:
            return
        self._failed += 1  # a probe's failure is one more in the row that opened it
        if self._failed >= self.failures:
            self._since_s = now_s
            self._turn(Phase.OPEN)

    def abandoned(self, given: Pass) -> None:
        """The call ended without showing anything; if it was the probe, the next may be it."""
        if given == self._number and self.phase is Phase.HALF_OPEN:
            self._turn(Phase.OPEN)

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self._number += 1
