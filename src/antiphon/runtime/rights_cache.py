"""What control says of other nodes, as of a moment ago: who is heard often is not judged often."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session

T = TypeVar("T")


class RightsCache(Generic[T]):
    """Answers to one question about nodes, for so long, or until control changes."""

    def __init__(
        self, session: Session, ask: Callable[[str], T], *, most: int, kept_s: float = math.inf
    ) -> None:
        """`ask` answers by what is known of control now; an answer may also end by time alone."""
        self._session = session
        self._ask = ask
        self._kept_s = kept_s
        self._most = most
        self._answers: dict[str, T] = {}
        self._control = (0, 0)
        self._until_s = 0.0

    def of(self, did: str) -> T:
        """The answer about one node."""
        control, now_s = self._session.control, self._session.wall.boot_s()
        state = (control.since, control.grants.revision)
        if state != self._control or now_s >= self._until_s or len(self._answers) >= self._most:
            self._answers.clear()
            self._control, self._until_s = state, now_s + self._kept_s
        if did not in self._answers:
            self._answers[did] = self._ask(did)
        return self._answers[did]
