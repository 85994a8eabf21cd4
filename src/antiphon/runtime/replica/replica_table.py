"""The replica's tables of lanes: one for each family, with the columns that it declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from zlib import crc32

import msgspec

from antiphon.core.family import Evicted, Family, Index, Lane

_SHARED: Final = ("kind", "name")
_encode: Final = msgspec.msgpack.Encoder().encode


class LaneTable:
    """The table of one family's lanes: its schema, and the statements that use it.

    Every name in them is declared by a family, and checked when the table is made.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.name = f"lanes_{family.name}"
        own = [column.name for column in family.columns]
        if not all(name.isidentifier() for name in (self.name, *own)):
            raise ValueError(f"the family {family.name} has a column with an invalid name: {own}")
        names = [*_SHARED, "first_seq", "body", *own]
        self.insert = (
            f"insert into {self.name} (id, {', '.join(names)})"  # noqa: S608 - see above
            f" values ({', '.join('?' * (len(names) + 1))})"
        )
        # SQLite writes every index again whose columns an update names, changed or not.
        moving = [column.name for column in family.columns if not column.is_fixed]
        self.update = self._update(["body", *moving])
        self.update_all = self._update(names[len(_SHARED) :])
        self.find = (
            f"select id, body, first_seq from {self.name}"  # noqa: S608 - see above
            " where name = ? and kind = ?"
        )
        self.decode: Callable[[bytes], Lane] = msgspec.msgpack.Decoder(family.lane).decode
        self._values = [column.value for column in family.columns]
        self._moving = [column.value for column in family.columns if not column.is_fixed]
        self._fixed = [column.value for column in family.columns if column.is_fixed]
        self._tallied = next((one.value for one in family.columns if one.name == "state"), None)

    def _update(self, names: Iterable[str]) -> str:
        changed = ", ".join(f"{name} = ?" for name in names)
        return f"update {self.name} set {changed} where id = ?"  # noqa: S608 - a family's own names

    @property
    def schema(self) -> str:
        """The statements that create it."""
        columns = "".join(f", {one.name} {one.type}" for one in self.family.columns)
        made = [
            f"create table if not exists {self.name} (id integer primary key, kind text not null,"
            " name text not null, first_seq integer not null"
            # The body last: it may be long, and what is before it is read without it.
            f"{columns}, body blob not null, unique (name, kind))",
            *(
                f"create index if not exists {index_name(self.family.name, one)}"
                f" on {self.name} ({', '.join(one.columns)}) where {one.of} is not null"
                for one in self.family.indexes
            ),
        ]
        return "".join(f"{statement};\n" for statement in made)

    def values(self, lane: Lane, *, is_moving: bool = False) -> list[object]:
        """The values of a lane's row: its body, and the family's columns, or those that move."""
        body, state, values = _encode(lane), lane.state, self._values
        if is_moving:
            values = self._moving
        if state is None:
            return [body, *(None for _ in values)]
        return [body, *[value(state) for value in values]]

    def fixed(self, lane: Lane) -> list[object]:
        """The values of the columns that stay the same."""
        state = lane.state
        return [] if state is None else [value(state) for value in self._fixed]

    def state_of(self, lane: Lane) -> str | None:
        """The state under which a lane is counted, if its family has one."""
        if self._tallied is None or lane.state is None:
            return None
        return str(self._tallied(lane.state))

    def blobs(self, lane: Lane) -> tuple[tuple[str, ...], tuple[Evicted, ...]]:
        """Digests that a lane still needs, and those that it evicted."""
        if self.family.blobs is None or lane.state is None:
            return (), ()
        return self.family.blobs(lane.state)

    def follows(self, lane: Lane) -> tuple[tuple[str, str], ...]:
        """The lanes that it waits or waited for; the same tuple while nothing changes."""
        if self.family.follows is None or lane.state is None:
            return ()
        return self.family.follows(lane.state)

    def is_over(self, lane: Lane) -> bool:
        """Whether a lane is unlikely to continue."""
        return lane.state is not None and not self.family.unfinished(lane.state)


def index_name(family: str, index: Index) -> str:
    """What an index is called: two of the same columns may be of other lanes."""
    return f"lanes_{family}_{index.of}_by_{'_'.join(index.columns)}"


def link(key: tuple[str, str]) -> int:
    """The number under which a lane is found that others wait for; others may have the same.

    A job may wait for a thousand others: numbers take less room than names, and less time.
    """
    return crc32(key[1].encode(), crc32(key[0].encode()))


Row = tuple[Any, ...]
