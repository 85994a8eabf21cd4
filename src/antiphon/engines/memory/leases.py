"""Leases: keys with an owner, a revision and an expiry; the server's side and a connection's.

Expiry is checked by the server's clock on each access; no timer runs. One counter gives all
revisions of a bucket, so none repeats, neither after an expiry nor after a release.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from antiphon.engines.memory.connection import Connection
from antiphon.errors import Held, Rejected
from antiphon.ports import LeaseEntry

SWEEP_AFTER = 256
"""Keys beyond twice the last count of living ones before the dead are swept."""

Rows = dict[str, tuple[LeaseEntry, int]]


class LeaseStore:
    """The bucket of one mesh."""

    def __init__(self, *, now_ms: Callable[[], int], created_ns: int) -> None:
        self._now_ms = now_ms
        self._created_ns = created_ns
        self._revision = 0
        self._rows: Rows = {}
        """Key to its entry and the millisecond at which it ends."""
        self._sweep_at = SWEEP_AFTER

    def get(self, key: str) -> LeaseEntry | None:
        """The living entry."""
        row = self._rows.get(key)
        if row is None:
            return None
        if row[1] <= self._now_ms():
            del self._rows[key]
            return None
        return row[0]

    def create(self, key: str, value: bytes, ttl_ms: int) -> LeaseEntry:
        """Take a free key."""
        if not all(key.split(".")) or any(sign in key for sign in "*> \t\r\n"):
            raise Rejected(f"{key!r} is not a key", reason="key")
        if self.get(key) is not None:
            raise Held(f"{key} is held")
        if len(self._rows) >= self._sweep_at:
            self._sweep()
        return self._put(key, value, ttl_ms)

    def renew(self, entry: LeaseEntry, value: bytes, ttl_ms: int) -> LeaseEntry:
        """Write over an entry that is still the present one."""
        present = self.get(entry.key)
        if present is None or present.revision != entry.revision:
            raise Held(f"{entry.key} is no longer at revision {entry.revision}")
        return self._put(entry.key, value, ttl_ms)

    def release(self, entry: LeaseEntry) -> None:
        """Free the key if the entry is still the present one."""
        present = self.get(entry.key)
        if present is not None and present.revision == entry.revision:
            self._revision += 1  # the marker that a release leaves in the engine
            del self._rows[entry.key]

    def image(self) -> tuple[int, Rows]:
        """A copy of everything that would be on disk."""
        return self._revision, self._rows.copy()

    def load(self, image: tuple[int, Rows]) -> None:
        """Restore an image."""
        self._revision, rows = image
        self._rows = rows.copy()

    def _put(self, key: str, value: bytes, ttl_ms: int) -> LeaseEntry:
        self._revision += 1
        entry = LeaseEntry(key, value, self._revision, self._created_ns)
        self._rows[key] = (entry, self._now_ms() + ttl_ms)
        return entry

    def _sweep(self) -> None:
        now = self._now_ms()
        self._rows = {key: row for key, row in self._rows.items() if row[1] > now}
        self._sweep_at = 2 * len(self._rows) + SWEEP_AFTER


class MemoryLeases:
    """`ports.Leases` over one connection."""

    def __init__(self, connection: Connection, store: LeaseStore) -> None:
        self._connection = connection
        self._store = store

    async def create(self, key: str, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """Take a key that is free, released or expired."""
        work = partial(self._store.create, key, value, ttl_ms)
        return await self._connection.write("lease.create", work)

    async def renew(self, entry: LeaseEntry, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """Move the end forward."""
        work = partial(self._store.renew, entry, value, ttl_ms)
        return await self._connection.write("lease.renew", work)

    async def release(self, entry: LeaseEntry) -> None:
        """Free the key at once."""
        work = partial(self._store.release, entry)
        await self._connection.write("lease.release", work)

    async def get(self, key: str) -> LeaseEntry | None:
        """The live value, or None."""
        return await self._connection.read("lease.get", partial(self._store.get, key))
