"""A circuit breaker: stop sending requests to something that does not answer.

    closed ──N failures in a row──▶ open ──reset_s later, the next to ask──▶ half-open
      ▲                              ▲                                        │     │
      │                              └──────────────the probe fails───────────┘     │
      └─────────────────────────────the probe succeeds──────────────────────────────┘

While it is open, no request is sent; half-open, a single request (the probe) is. Time is an
argument, from a clock that never steps.

A new connection closes it in any phase, since the other side answered. `line` is the number of the
connection; the caller counts them.

A request that may be sent gets a pass of the current phase and returns it with the outcome. An
outcome from an earlier phase or connection changes nothing: otherwise requests that were under way
when the breaker opened would open it again long after the other side is back.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NewType

FAILURES: Final = 5
RESET_S: Final = 30.0

Pass = NewType("Pass", int)


class Phase(Enum):
    """The phases of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitBreaker:
    """One breaker, for one thing that may not answer."""

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
        """A pass for one request over this connection, or None while it should not be sent."""
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
        """Seconds until a request may try again; 0 if now, or if one is already trying."""
        if self.phase is not Phase.OPEN:
            return 0.0
        return max(self._since_s + self.reset_s - now_s, 0.0)

    def succeeded(self, given: Pass) -> None:
        """The request was answered, whatever the answer."""
        if given != self._number:
            return
        self._failed = 0
        if self.phase is not Phase.CLOSED:
            self._turn(Phase.CLOSED)

    def failed(self, given: Pass, now_s: float) -> None:
        """The request was not answered."""
        if given != self._number:
            return
        self._failed += 1  # a probe's failure is one more in the row that opened it
        if self._failed >= self.failures:
            self._since_s = now_s
            self._turn(Phase.OPEN)

    def abandoned(self, given: Pass) -> None:
        """The request ended without a result; if it was the probe, the next one is the probe."""
        if given == self._number and self.phase is Phase.HALF_OPEN:
            self._turn(Phase.OPEN)

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self._number += 1
