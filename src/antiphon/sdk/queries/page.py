"""A page of a list, and the cursor of the next one.

A cursor is opaque: a text that names a place and the query that it belongs to. It permits nothing.
Whoever uses it asks its own query with its own rights, and goes on at that place; with another
query it is refused, because the place would mean nothing there.

Where parties share each page, the place is one for each party of which there is more. So nothing is
left out or shown twice, whatever comes and goes meanwhile (decision 0093).
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from blake3 import blake3

from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

MOST_CHARACTERS: Final = 2_048
KEY_BYTES: Final = 12
"""Of a key by which a list is sorted whose pages parties share."""
OPEN: Final = 64
"""Parties of which a cursor says how far they were shown; others begin when one is through."""
_QUERY_BYTES: Final = 8
_PARTY_BYTES: Final = 8

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, int | str | list[bytes]]).decode


class Page(list[T], Generic[T]):
    """A list, and how to go on: `await mesh.jobs(…, after=page.next)`.

    It may be shorter than asked for, and even empty, and still be followed by another one.
    """

    def __init__(self, items: Iterable[T] = (), *, next: str = "") -> None:  # noqa: A002 - what it is
        super().__init__(items)
        self.next = next
        """The cursor of the next page; empty if there is none."""

    def mapped(self, change: Callable[[T], Any]) -> Page[Any]:
        """The same page of something else."""
        return Page(map(change, self), next=self.next)


class Query:
    """What a cursor belongs to: the sort of list and everything that it was asked for with."""

    def __init__(self, what: str, *asked: object) -> None:
        said = msgspec.msgpack.encode((what, asked), enc_hook=str)
        self._digest = blake3(said).digest()[:_QUERY_BYTES]

    def cursor(self, place: int | str | list[bytes]) -> str:
        """The cursor for a place."""
        return base64.urlsafe_b64encode(_encode((self._digest, place))).rstrip(b"=").decode()

    def place(self, cursor: str) -> int | str | list[bytes]:
        """The place of a cursor; `Malformed` if it is none of this query."""
        padded = cursor[:MOST_CHARACTERS] + "=" * (-len(cursor) % 4)
        try:
            found, place = _decode(base64.b64decode(padded, altchars=b"-_", validate=True))
        except (*UNREADABLE, ValueError, binascii.Error):
            raise Malformed("this is not a cursor", reason="cursor", hint=_AGAIN) from None
        if found != self._digest:
            raise Malformed("this cursor belongs to another query", reason="cursor", hint=_AGAIN)
        return place

    def number(self, cursor: str) -> int:
        """The place of a cursor where places are numbers; 0 without a cursor."""
        place = self.place(cursor) if cursor else 0
        if not isinstance(place, int) or not 0 <= place < 2**63:
            raise Malformed("this is not a cursor", reason="cursor", hint=_AGAIN)
        return place

    def text(self, cursor: str) -> str:
        """The place of a cursor where places are texts; empty without a cursor."""
        place = self.place(cursor) if cursor else ""
        if not isinstance(place, str):
            raise Malformed("this is not a cursor", reason="cursor", hint=_AGAIN)
        return place

    def named(self, cursor: str) -> tuple[str, str]:
        """The place of a cursor where places are a kind and a name; empty without a cursor."""
        kind, _, name = self.text(cursor).partition(" ")
        return kind, name

    def cut(
        self, items: Iterable[T], key: Callable[[T], str], *, after: str, limit: int
    ) -> Page[T]:
        """A page of a list that is short enough to be made whole, in the order of its keys."""
        begin = self.text(after)
        rest = sorted((one for one in items if not after or key(one) > begin), key=key)
        shown = rest[:limit]
        return Page(shown, next=self.cursor(key(shown[-1])) if len(rest) > limit else "")

    def in_turns(
        self,
        items: Iterable[T],
        key: Callable[[T], bytes],
        party: Callable[[T], str],
        *,
        after: str,
        limit: int,
    ) -> Page[T]:
        """A page of such a list in which parties take turns, in the order of its keys.

        Keys are of one length, `KEY_BYTES`. New parties come before further rows of those that
        have begun, as long as no more than `OPEN` of these have more.
        """
        begun, shown = self._turns(after)
        left: dict[bytes, deque[T]] = {}
        for one in sorted(items, key=key):
            whose = blake3(party(one).encode()).digest()[:_PARTY_BYTES]
            if key(one) > shown[whose] if whose in shown else whose > begun:
                left.setdefault(whose, deque()).append(one)
        ahead = deque(whose for whose in shown if whose in left)
        fresh = deque(sorted(whose for whose in left if whose not in shown))
        found = list[T]()
        while len(found) < limit and (ahead or fresh):
            if fresh and len(ahead) < OPEN:
                whose = begun = fresh.popleft()
            else:
                whose = ahead.popleft()
            found.append(left[whose].popleft())
            shown[whose] = key(found[-1])
            if left[whose]:
                ahead.append(whose)
        place = [begun, *(whose + shown[whose] for whose in ahead)]
        return Page(sorted(found, key=key), next=self.cursor(place) if ahead or fresh else "")

    def _turns(self, cursor: str) -> tuple[bytes, dict[bytes, bytes]]:
        """The last party that has begun, and how far each was shown of which there is more."""
        place = self.place(cursor) if cursor else [b""]
        if not isinstance(place, list) or not place:
            raise Malformed("this is not a cursor", reason="cursor", hint=_AGAIN)
        begun, *each = place
        return begun, {one[:_PARTY_BYTES]: one[_PARTY_BYTES:] for one in each}


def digest_key(text: str, start: bytes = b"") -> bytes:
    """A key for `Query.in_turns` that tells apart what begins the same."""
    return start + blake3(text.encode()).digest()[: KEY_BYTES - len(start)]


_AGAIN: Final = "begin with the first page: leave the cursor out"
