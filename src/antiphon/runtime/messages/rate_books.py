"""How fast each sender sends, counted by the gate and kept in the engine.

A gate counts in memory and writes down what it counted every `SAVE_EVERY` messages, and when it
first refuses. So a restart gives nobody a new burst, and several gates know of one another's
counts, late by that many messages at most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.messages.send_rate import BURST, SendRate, read_rate
from antiphon.core.record.ids import name_of_key
from antiphon.errors import AntiphonError, LostRace, RateLimited
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.ports import MailStore

SAVE_EVERY: Final = 32
KEPT_MS: Final = 3600_000
MAX_BOOKS: Final = 4096
log = LazyLogger(__name__)


class _Book:
    __slots__ = ("is_told", "loading", "rate", "revision", "saving", "unsaved")

    def __init__(self, now_ms: int) -> None:
        self.rate = SendRate(BURST, now_ms)
        self.revision = 0
        self.unsaved = 0
        self.is_told = False
        self.loading: asyncio.Task[None] | None = None
        self.saving: asyncio.Task[None] | None = None


class RateBooks:
    """One gate's counts."""

    def __init__(self, store: MailStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._books: dict[str, _Book] = {}

    async def take(self, sender: str) -> None:
        """Count one message; `RateLimited` if that is too many."""
        book = self._books.get(sender)
        if book is None:
            book = self._open(sender)
        if book.loading is not None:
            await asyncio.shield(book.loading)
        limited = self.limit_on(sender)
        if limited is not None:
            raise limited
        book.is_told = False
        book.rate = book.rate.less(1)
        book.unsaved += 1
        if book.unsaved >= SAVE_EVERY:
            self._save_soon(sender, book)

    def limit_on(self, sender: str) -> RateLimited | None:
        """The error for a sender that has sent too much; None if it has not, or is not known."""
        book = self._books.get(sender)
        if book is None:
            return None
        book.rate = book.rate.at(self._now_ms())
        if book.rate.may_send:
            return None
        if not book.is_told:
            book.is_told = True
            self._save_soon(sender, book)
        return RateLimited(
            "this machine sends more messages than the mesh takes from one",
            retry_s=book.rate.wait_ms() / 1000,
        )

    async def close(self) -> None:
        """Wait for what is being written."""
        tasks = [one.saving for one in self._books.values() if one.saving is not None]
        tasks += [one.loading for one in self._books.values() if one.loading is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, sender: str) -> _Book:
        if len(self._books) >= MAX_BOOKS:
            oldest = next(iter(self._books))
            if self._books[oldest].saving is None:
                del self._books[oldest]
        book = self._books[sender] = _Book(self._now_ms())
        book.loading = asyncio.ensure_future(self._load(sender, book))
        return book

    async def _load(self, sender: str, book: _Book) -> None:
        try:
            await self._read(sender, book)
        except AntiphonError as problem:
            log.warning("send_rate_not_read", problem=problem.message)
        finally:
            book.loading = None

    async def _read(self, sender: str, book: _Book) -> None:
        """Take over what other gates, or this one before, counted."""
        kept = await self._store.get(_key(sender))
        book.revision = 0 if kept is None else kept.revision
        rate = None if kept is None else read_rate(kept.value)
        if rate is not None:
            now_ms = self._now_ms()
            known, other = book.rate.at(now_ms), rate.at(now_ms)
            book.rate = min(known, other.less(book.unsaved), key=lambda one: one.tokens)

    def _save_soon(self, sender: str, book: _Book) -> None:
        if book.saving is None:
            book.unsaved = 0
            book.saving = asyncio.ensure_future(self._save(sender, book))

    async def _save(self, sender: str, book: _Book) -> None:
        try:
            for _ in range(3):
                text = msgspec.json.encode(book.rate)
                try:
                    book.revision = await self._store.write(
                        _key(sender), text, note=b"", expected=book.revision, ttl_ms=KEPT_MS
                    )
                except LostRace:
                    await self._read(sender, book)
                else:
                    return
        except AntiphonError as problem:
            log.warning("send_rate_not_kept", problem=problem.message)
        finally:
            book.saving = None


def _key(sender: str) -> str:
    return f"rate.{name_of_key(sender)}"
