"""How much each party does of something, counted by the gates and kept in the engine.

A gate counts in memory and writes it down when that is much, and when it first refuses.
What it reads there is what all gates wrote; it takes off what it has not written yet. So a restart
gives nobody a new allowance, and several gates know of one another's counts, late by what is not
written yet. Where `is_kept_first`, everything is written before it is done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.policy.rate_limit import Tokens, read_tokens
from antiphon.core.record.ids import name_of_key
from antiphon.errors import AntiphonError, LostRace
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.policy.rate_limit import Allowance
    from antiphon.ports import MessageStore

SAVE_AT: Final = 0.32
"""What is counted and not written yet, as a part of what is allowed at once."""
KEPT_MS: Final = 3600_000
"""At least; a book may be forgotten when it is full again."""
MAX_BOOKS: Final = 4096
log = LazyLogger(__name__)


class _Book:
    __slots__ = ("is_told", "loading", "revision", "saving", "tokens", "unsaved")

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.revision = 0
        self.unsaved = 0.0
        """What was counted here and is not in the store."""
        self.is_told = False
        self.loading: asyncio.Task[None] | None = None
        self.saving: asyncio.Task[None] | None = None


class RateBooks:
    """One gate's counts of one thing."""

    def __init__(
        self,
        store: MessageStore | None,
        now_ms: Callable[[], int],
        allowance: Allowance,
        *,
        name: str,
        is_kept_first: bool = False,
    ) -> None:
        """`name` tells these books from others. Without a store they are kept here alone."""
        self._store = store
        self._now_ms = now_ms
        self._allowance = allowance
        self._name = name
        self._is_kept_first = is_kept_first
        self._save_at = allowance.burst * SAVE_AT
        self._books: dict[str, _Book] = {}

    async def take(self, who: str, cost: float = 1.0) -> float:
        """Count so much; or, if that is too much, how many seconds until it is not."""
        book = self._books.get(who) or self._open(who)
        if book.loading is not None:
            await asyncio.shield(book.loading)
        wait_s = self.wait_s(who, cost)
        if wait_s:
            return wait_s
        book.is_told = False
        self._count(who, book, cost)
        if self._is_kept_first and self._store is not None:
            for _ in range(2):  # what is being written may have begun before this
                if book.unsaved and (saving := self._save_soon(who, book)) is not None:
                    await asyncio.shield(saving)
        return 0.0

    async def give_back(self, who: str, cost: float) -> None:
        """So much of what was counted is no more."""
        book = self._books.get(who) or self._open(who)
        if book.loading is not None:
            await asyncio.shield(book.loading)
        self._count(who, book, -cost)

    def _count(self, who: str, book: _Book, cost: float) -> None:
        book.tokens = book.tokens.less(cost)
        book.unsaved += cost
        if abs(book.unsaved) >= self._save_at:
            self._save_soon(who, book)

    def wait_s(self, who: str, cost: float = 1.0) -> float:
        """How long until so much is allowed; 0 if it is, or if nothing is known."""
        book = self._books.get(who)
        if book is None:
            return 0.0
        book.tokens = book.tokens.at(self._now_ms(), self._allowance)
        wait_s = book.tokens.wait_s(cost, self._allowance)
        if wait_s and not book.is_told:
            book.is_told = True
            self._save_soon(who, book)
        return wait_s

    async def close(self) -> None:
        """Wait for what is being written."""
        tasks = [one.saving for one in self._books.values() if one.saving is not None]
        tasks += [one.loading for one in self._books.values() if one.loading is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, who: str) -> _Book:
        if len(self._books) >= MAX_BOOKS:
            oldest = next(iter(self._books))
            if self._books[oldest].saving is None:
                del self._books[oldest]
        book = self._books[who] = _Book(Tokens(self._allowance.burst, self._now_ms()))
        if self._store is not None:
            book.loading = asyncio.ensure_future(self._load(self._store, who, book))
        return book

    async def _load(self, store: MessageStore, who: str, book: _Book) -> None:
        try:
            await self._read(store, who, book)
        except AntiphonError as problem:
            log.warning("rate_not_read", rate=self._name, problem=problem.message)
        finally:
            book.loading = None

    async def _read(self, store: MessageStore, who: str, book: _Book) -> None:
        """Take over what other gates, or this one before, counted."""
        kept = await store.get(self._key(who))
        tokens = None if kept is None else read_tokens(kept.value)
        book.revision = 0 if kept is None else kept.revision
        full = Tokens(self._allowance.burst, self._now_ms())
        known = (tokens or full).at(self._now_ms(), self._allowance)
        book.tokens = known.less(book.unsaved)

    def _save_soon(self, who: str, book: _Book) -> asyncio.Task[None] | None:
        if book.saving is None and self._store is not None:
            book.saving = asyncio.ensure_future(self._save(self._store, who, book))
        return book.saving

    async def _save(self, store: MessageStore, who: str, book: _Book) -> None:
        ttl_ms = max(KEPT_MS, 2 * self._allowance.full_ms)
        try:
            for _ in range(3):
                text, saved = msgspec.json.encode(book.tokens), book.unsaved
                try:
                    book.revision = await store.write(
                        self._key(who), text, note=b"", expected=book.revision, ttl_ms=ttl_ms
                    )
                except LostRace:
                    await self._read(store, who, book)
                else:
                    book.unsaved -= saved
                    return
        except AntiphonError as problem:
            log.warning("rate_not_kept", rate=self._name, problem=problem.message)
        finally:
            book.saving = None

    def _key(self, who: str) -> str:
        return f"rate.{self._name}.{name_of_key(who)}"
