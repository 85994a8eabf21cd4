"""What a service does about an item that it cannot deal with: sets it aside, says so, and goes on.

Services work for members: they offer jobs, derive what follows from plans, expire leases. Whatever
goes wrong with one item concerns that item alone. It is logged once for each reason, kept where
`antiphon doctor` finds it, and tried again after a rest that grows (`core/policy/backoff.py`).

Three things are no item's fault and pass: an engine that cannot be reached, a login that was
refused, and a log that was replaced.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from antiphon.core.policy.backoff import SetAside, backoff_ms
from antiphon.errors import AntiphonError, Corrupt, EngineDenied, Unavailable
from antiphon.runtime.attention.attention_table import Attention, AttentionTable
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session

MOST_TOLD: Final = 10_000
"""Items and reasons that were logged; then the memory of them begins anew."""
MOST_OF_ONE: Final = 100
"""Items of one member that people are told about: its others would hide everybody else's."""
MORE: Final = "(more of this member's)"
BUG: Final = "a bug"
"""In the reason for everything that is not one of our own errors."""

K = TypeVar("K", bound=Hashable)
log = LazyLogger(__name__)


class ItemGuard(Generic[K]):
    """The items that one service of a node has set aside."""

    def __init__(self, service: str, session: Session, table: AttentionTable) -> None:
        """`service` is its name for people; what they are told is kept in the table."""
        self.service = service
        self.session = session
        self._attention = table
        self.aside = SetAside[K]()
        self._told: set[tuple[K | None, str]] = set()
        self._since_ms: dict[K | None, int] = {}
        """Since when people are told about an item, or about the service as a whole (None)."""
        self._whose: dict[K | None, str] = {}
        self._listed: Counter[str] = Counter()
        """Whose each of these items is, and how many are whose."""

    def begin(self) -> None:
        """The service begins, and knows of no item yet."""
        self.aside.clear()
        self._forget_all()
        self._attention.begin(self.service)

    @contextmanager
    def about(self, key: K, *, whose: str = "") -> Iterator[None]:
        """What goes wrong in the block concerns this item: it is set aside, and the block ends."""
        try:
            yield
        except (Corrupt, Unavailable):
            raise
        except Exception as problem:  # noqa: BLE001 - one item must not end a service
            self.put(key, reason_of(problem), whose=whose, problem=problem)

    def rests(self, key: K) -> bool:
        """Whether an item is to be left alone now."""
        return self.aside.rests(key, self._now_ms)

    def put(
        self, key: K, reason: str, *, whose: str = "", problem: Exception | None = None
    ) -> None:
        """Set an item aside, and tell people why."""
        rest = self.aside.put(key, self._now_ms)
        self._tell(key, reason, whose=whose, tries=rest.tries, problem=problem)

    def note(self, key: K, reason: str, *, whose: str = "") -> None:
        """Tell people about an item that is not tried, for a reason that others can change."""
        self._tell(key, reason, whose=whose, tries=0, problem=None)

    def rest(self, key: K) -> None:
        """Leave an item alone for a while: nothing is wrong with it."""
        self.aside.put(key, self._now_ms)

    def drop(self, key: K) -> None:
        """The item was dealt with, or is no more."""
        self.aside.drop(key)
        self._forget(key)

    def keep_only(self, keys: Container[K]) -> None:
        """All other items are no more."""
        for key in {*self.aside, *self._since_ms}:
            if key is not None and key not in keys:
                self.drop(key)

    def tell(self, reason: str, problem: Exception, tries: int) -> None:
        """Something went wrong that concerns the service as a whole."""
        self._tell(None, reason, whose="", tries=tries, problem=problem)

    def recovered(self) -> None:
        """The service as a whole goes on."""
        self._forget(None)

    def _tell(
        self, key: K | None, reason: str, *, whose: str, tries: int, problem: Exception | None
    ) -> None:
        is_listed = key in self._since_ms or not whose or self._listed[whose] < MOST_OF_ONE
        item = name_of(key) if is_listed else MORE
        self._log(None if item == MORE else key, item, reason, whose, problem)
        if not is_listed:
            return
        if len(self._since_ms) >= MOST_TOLD:
            self._forget_all()
        if key not in self._since_ms:
            self._since_ms[key], self._whose[key] = self._now_ms, whose
            self._listed[whose] += 1
        since_ms = self._since_ms[key]
        self._attention.put(Attention(self.service, item, whose, reason, since_ms, tries))

    def _log(
        self, key: K | None, item: str, reason: str, whose: str, problem: Exception | None
    ) -> None:
        """Once for each item and reason, and once for all that are not listed of a member."""
        told = (key, whose if item == MORE else reason)
        if told in self._told:
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(told)
        is_bug = problem is not None and not isinstance(problem, AntiphonError)
        log.warning(
            "set_aside",
            service=self.service,
            item=item,
            whose=whose,
            reason=reason,
            exc_info=problem if is_bug else None,
        )

    def _forget(self, key: K | None) -> None:
        if self._since_ms.pop(key, None) is not None:
            self._listed[self._whose.pop(key)] -= 1
            self._attention.drop(self.service, name_of(key))

    def _forget_all(self) -> None:
        self._since_ms.clear()
        self._whose.clear()
        self._listed.clear()

    @property
    def _now_ms(self) -> int:
        return self.session.wall.now_ms()


def name_of(key: Hashable) -> str:
    """An item as people see it: a job is its kind and its id; empty: the service as a whole."""
    if key is None:
        return ""
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def reason_of(problem: Exception) -> str:
    """What went wrong, in a line."""
    if isinstance(problem, AntiphonError):
        return problem.message
    return f"{type(problem).__name__}: {problem} ({BUG}: the node's log has its traceback)"


async def keep_running(guard: ItemGuard[str], start: Callable[[], Awaitable[None]]) -> None:
    """Run a service until it returns; after an exception it is started again, after a pause.

    A login that was refused, and a log that was replaced, end it.
    """
    tries = 0
    while True:
        try:
            return await start()
        except (Corrupt, EngineDenied):
            raise
        except Exception as problem:  # noqa: BLE001 - a service does not end its node
            tries += 1
            guard.tell(reason_of(problem), problem, tries)
        chance = guard.session.entropy.random()
        await asyncio.sleep(backoff_ms(tries, chance=chance) / 1000)
