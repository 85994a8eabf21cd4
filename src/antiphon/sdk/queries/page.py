"""A page of a list, and the cursor of the next one.

A cursor is opaque: a text that names a place and the query that it belongs to. It permits nothing.
Whoever uses it asks its own query with its own rights, and goes on at that place; with another
query it is refused, because the place would mean nothing there.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from blake3 import blake3

from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

MOST_CHARACTERS: Final = 1_024
_QUERY_BYTES: Final = 8

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, int | str]).decode


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

    def cursor(self, place: int | str) -> str:
        """The cursor for a place."""
        return base64.urlsafe_b64encode(_encode((self._digest, place))).rstrip(b"=").decode()

    def place(self, cursor: str) -> int | str:
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

    def cut(
        self, items: Iterable[T], key: Callable[[T], str], *, after: str, limit: int
    ) -> Page[T]:
        """A page of a list that is short enough to be made whole, in the order of its keys."""
        begin = self.text(after)
        rest = sorted((one for one in items if not after or key(one) > begin), key=key)
        shown = rest[:limit]
        return Page(shown, next=self.cursor(key(shown[-1])) if len(rest) > limit else "")


_AGAIN: Final = "begin with the first page: leave the cursor out"
