"""Storage quotas: what each party has stored, and how much it may; kept by the gate.

The indexes themselves say who stored what, so nothing else is kept on disk. They are counted when
the first member stores something, and again when one seems to have stored too much: others may
have removed some of it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from antiphon.engines.nats.blobs import BLOB_WEIGHT, NatsBlobs

GIB: Final = 1024**3
RECOUNT_S: Final = 60.0
"""Counted again at most this often."""


class BlobLimits(Struct, frozen=True, kw_only=True):
    """What members may ask of the blob service.

    Each transfer holds at most two windows of chunks in memory: 2 MiB.
    """

    blob_bytes: int = 2 * GIB
    member_bytes: int = 20 * GIB
    puts_per_member: int = 2
    transfers_per_member: int = 8
    transfers: int = 32


class BlobQuota:
    """Bytes by party, each blob with a fixed part on top."""

    def __init__(self, blobs: NatsBlobs, party_of: Callable[[str], str]) -> None:
        """`party_of` has the party of a user: one machine may have several logins."""
        self._blobs = blobs
        self._party_of = party_of
        self._stored: dict[str, int] | None = None
        self._counting = asyncio.Lock()
        self._counted_s = 0.0

    def add(self, party: str, size: int) -> None:
        """Note a blob that stays."""
        if self._stored is not None:
            self._stored[party] = self._stored.get(party, 0) + size + BLOB_WEIGHT

    async def exceeds(self, party: str, under_way: int, limit: int) -> bool:
        """Whether a party has more than this, with what is under way."""
        if await self._stored_by(party) + under_way <= limit:
            return False
        return await self._stored_by(party, anew=True) + under_way > limit

    async def _stored_by(self, party: str, *, anew: bool = False) -> int:
        async with self._counting:
            now_s = asyncio.get_running_loop().time()
            is_stale = anew and now_s - self._counted_s > RECOUNT_S
            if self._stored is None or is_stale:
                weights: Counter[str] = Counter()
                for user, weight in (await self._blobs.weights()).items():
                    weights[self._party_of(user)] += weight
                self._stored = weights
                self._counted_s = now_s
            return self._stored.get(party, 0)
