"""Where a full node begins that does not read the log from its first record (spec §7.5).

A snapshot is made at the place of an archive. It says which records below still count, and holds
the Merkle hashes of all others, as few as there can be: a range that counts for nobody is one hash,
however long it is. With it a node reads what is left of the log, judges the records that count, and
comes to the root over everything. So it need not believe what a lane's state was, only that a
record which the snapshot leaves out is one that an archive took.

The newest seals carry its digest. Its bytes are one line of canonical JSON, then the hashes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core.families.seals.state import SealLane
from antiphon.core.proof.merkle import HASH_BYTES
from antiphon.core.record import codec
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_RANGES: Final = 1_000_000
TOO_LARGE: Final = "snapshot_size"
"""The reason of a refusal that fewer records would end."""
_Place = Annotated[int, Meta(ge=0, le=codec.MAX_INTEGER)]
_Some = Annotated[int, Meta(ge=1, le=codec.MAX_INTEGER)]


class Head(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything but the hashes."""

    v: Literal[1] = 1
    mesh: str
    at: _Some
    """The archive's own sequence: the last record that it is about."""
    size: _Some
    """How many records there were up to that one."""
    root: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    kept: Annotated[tuple[tuple[_Place, _Some], ...], Meta(max_length=MAX_RANGES)]
    """The leaves of the records that count: where each range begins, and how many they are."""
    gaps: tuple[tuple[_Some, _Some], ...] = ()
    """From which sequence on how many are missing, if some never were on the log."""
    seals: SealLane = SealLane()
    """How far the log was sealed there."""
    sealed: _Place = 0
    """The last accepted seal before it."""

    def leaf(self, seq: int) -> int:
        """The place in the tree of a record that is not behind it."""
        index = bisect_right(self.gaps, seq, key=lambda gap: gap[0])
        return seq - 1 - (self.gaps[index - 1][1] if index else 0)


_decoder: Final = msgspec.json.Decoder(Head)


class Snapshot(Struct, frozen=True):
    """A snapshot: what counts, and the hashes of the rest."""

    head: Head
    hashes: bytes

    def encoded(self) -> bytes:
        """Its bytes."""
        return codec.encode(self.head) + b"\n" + self.hashes

    def keeps(self, seq: int) -> bool:
        """Whether a record counts that is not behind it."""
        leaf, kept = self.head.leaf(seq), self.head.kept
        found = bisect_right(kept, leaf, key=lambda one: one[0])
        return found > 0 and leaf < sum(kept[found - 1])

    def nodes(self) -> Iterator[tuple[int, int, bytes]]:
        """The hashes with their places in the tree: level, index, hash."""
        for at, (level, place) in enumerate(left_out(self.head.size, self.head.kept)):
            yield level, place, self.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES]


def ranges(leaves: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending leaves as ranges: where each begins, and how many they are."""
    found: list[list[int]] = []
    for leaf in leaves:
        if found and sum(found[-1]) == leaf:
            found[-1][1] += 1
        else:
            found.append([leaf, 1])
    return tuple((first, count) for first, count in found)


def left_out(size: int, kept: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    """The largest full subtrees without a leaf that is kept, from left to right."""
    first = 0
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            yield from _without(level, first >> level, kept)
            first += 1 << level


def _without(
    level: int, place: int, kept: tuple[tuple[int, int], ...]
) -> Iterator[tuple[int, int]]:
    first, end = place << level, (place + 1) << level
    index = bisect_right(kept, first, key=lambda one: one[0])
    reaches = sum(kept[index - 1]) if index else 0
    if reaches >= end:
        return  # all of it is kept
    if reaches <= first and (index == len(kept) or kept[index][0] >= end):
        yield level, place
        return
    yield from _without(level - 1, 2 * place, kept)
    yield from _without(level - 1, 2 * place + 1, kept)


def made(head: Head, full: Callable[[int, int], bytes]) -> Snapshot:
    """A snapshot from its head, and what gives the hash of a full subtree."""
    found = (full(level, place) for level, place in left_out(head.size, head.kept))
    return Snapshot(head, b"".join(found))


def read(data: bytes) -> Snapshot:
    """What these bytes say, or `Malformed`. Whether they are the right ones, a seal says."""
    check_size(len(data))
    line, _, hashes = data.partition(b"\n")
    try:
        head = _decoder.decode(line)
    except UNREADABLE as problem:
        raise Malformed(f"this is not a snapshot: {problem}", reason="snapshot") from problem
    snapshot = Snapshot(head, hashes)
    check_head(head)
    wanted = sum(1 for _ in left_out(head.size, head.kept))
    if len(hashes) != wanted * HASH_BYTES or snapshot.encoded() != data:
        raise Malformed("this snapshot is not in its one form", reason="snapshot")
    return snapshot


def check_size(size: int) -> None:
    """`Malformed` if a snapshot may not have so many bytes."""
    if size > MAX_BYTES:
        raise Malformed(f"it has more than {MAX_BYTES:,} bytes", reason=TOO_LARGE)


def check_head(head: Head) -> None:
    """`Malformed` unless ranges are few enough, and ranges and gaps ascend and end in bounds."""
    if len(head.kept) > MAX_RANGES:
        raise Malformed(
            f"it has {len(head.kept):,} ranges of records that count, more than {MAX_RANGES:,}",
            reason=TOO_LARGE,
        )
    end = -1
    for first, count in head.kept:
        if first <= end:
            raise Malformed("the snapshot's ranges overlap", reason="snapshot")
        end = first + count
    missing = seq = 0
    for at, many in head.gaps:
        if at <= seq or many <= missing:
            raise Malformed("the snapshot's gaps do not ascend", reason="snapshot")
        seq, missing = at, many
    if end > head.size or seq > head.at or head.at - missing != head.size:
        raise Malformed("the snapshot does not end where it says", reason="snapshot")
