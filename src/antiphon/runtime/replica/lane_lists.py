"""Lists of lanes: filtered by right, shared among parties, and only then cut (decision 0093).

A list is all lanes of a family that have a value in one column, such as the locks that are held.
Whoever asks sees those of the kinds for which it holds a command that the family's branch is read
by. There are three ways to read a list, and none looks at kinds that may not be seen:

- `shared`: as many as there is room for. Parties take turns, so that ten thousand rows of one
  leave a single row of another in the list. Read by (whose, first_seq), or for some kinds by
  (whose, kind, first_seq): a step for each party, and one for each row that is used.
- `named`: page by page in the order of kind and name, read by that index: a step for each row.
- `in_order`: page by page in the order of the log. At most `EXAMINED` rows are looked at, so a page
  may be short, or empty, and be followed by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from antiphon.core.authority.parties import party_behind
from antiphon.core.authority.scope import EVERY_KIND, EVERYTHING, meet
from antiphon.core.family import Index
from antiphon.core.party_turns import in_turns
from antiphon.runtime.replica.job_pages import kinds_clause
from antiphon.runtime.replica.replica import Queries
from antiphon.runtime.replica.replica_table import index_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.authority.control import Control
    from antiphon.core.authority.scope import Scope
    from antiphon.core.family import Lane
    from antiphon.core.record.branches import Branch
    from antiphon.runtime.replica.replica import Replica

MOST_PARTIES: Final = 1_024
"""First delegations, and keys without one, whose rows one list has."""
MOST_KINDS: Final = 256
"""Kinds of one of them whose rows are in it, where the asker sees some kinds only."""
NO_END: Final = 2**62
EXAMINED: Final = 10_000
"""Rows that are looked at for one page in the order of the log."""
_BEFORE_ALL, _AFTER_ALL = "", "\U0010ffff"

S = TypeVar("S")
_Row = tuple[int, str, str, str, bytes]


class LaneList(Generic[S]):
    """The lanes of a family with a value in one column; with this one, if it is given."""

    def __init__(  # noqa: PLR0913 - what a list is
        self,
        family: str,
        lane: type[Lane],
        branch: Branch,
        of: str,
        *,
        value: str = "",
        name: str = "name",
        order: str = "first_seq",
        is_newest_first: bool = False,
    ) -> None:
        """The family declares the indexes that it is read by: `by_party` for `shared`."""
        self.branch = branch
        self.table = f"lanes_{family}"
        self.name = name
        self.order = order
        self.columns = f"{order}, kind, {name}, coalesce(whose, ''), body"
        self.is_newest_first = is_newest_first
        self.where = f"{of} = '{value}'" if value else f"{of} is not null"
        self.decode: Callable[[bytes], Lane] = msgspec.msgpack.Decoder(lane).decode
        self._family, self._of = family, of
        self._first = (of,) if value else ()

    def by(self, *columns: str) -> str:
        """The table, read by its index over these columns."""
        index = Index((*self._first, *columns), of=self._of)
        return f"{self.table} indexed by {index_name(self._family, index)}"

    def kinds(self, scope: Scope, among: Sequence[str] = (EVERY_KIND,)) -> tuple[str, ...]:
        """The kinds among these whose lanes whoever has this scope may see, as kind filters."""
        return meet((scope.of(*self.branch.read_by), tuple(among)))


class Listed(NamedTuple, Generic[S]):
    """A row of a list."""

    at: int
    """Its place in the list: the record with which its lane began, or a time."""
    kind: str
    name: str
    whose: str
    """The first delegation, or the key, that it is counted for."""
    state: S


class Part(NamedTuple, Generic[S]):
    """Rows in the order of their list."""

    rows: list[Listed[S]]
    is_cut: bool
    """Whether there are more."""


class Lists:
    """The lists of a replica, as one party may see them."""

    def __init__(self, replica: Replica, control: Control, scope: Scope = EVERYTHING) -> None:
        """`scope` is what whoever asks may do; parties are those of the control state."""
        self._rows = replica.ask(_Rows)
        self._control = control
        self.scope = scope

    def shared(
        self,
        of: LaneList[S],
        *,
        limit: int,
        among: Sequence[str] = (EVERY_KIND,),
        only: Callable[[S], bool] | None = None,
        until: int = NO_END,
    ) -> Part[S]:
        """The first rows of each party, as many as there is room for when parties take turns.

        With `only`, the first for which it is true, among the first `EXAMINED` of each; with
        `until`, up to this place.
        """
        kinds, parties = of.kinds(self.scope, among), dict[str, list[Iterator[_Row]]]()
        for whose in self._rows.holders(of) if kinds else ():
            cells = [
                self._rows.of_one(of, whose, kind, until)
                for kind in self._rows.kinds(of, whose, kinds)
            ]
            parties.setdefault(party_behind(self._control, whose), []).extend(cells)
        heads = list[tuple[int, Iterator[_Row]]]()
        for each in parties.values():
            rows: Iterator[_Row] = merge(*each, key=itemgetter(0), reverse=of.is_newest_first)
            if only is not None:
                rows = filter(partial(_is_met, of, only), islice(rows, EXAMINED))
            heads += [(row[0], chain((row,), rows)) for row in islice(rows, 1)]
        # Whose first row comes first is first, also where there is no turn for everybody.
        heads.sort(key=itemgetter(0), reverse=of.is_newest_first)
        found = in_turns([rows for _, rows in heads], limit + 1)
        shown = sorted(found[:limit], key=itemgetter(0), reverse=of.is_newest_first)
        return Part(list(_listed(of, shown)), len(found) > limit)

    def named(
        self,
        of: LaneList[S],
        *,
        after: tuple[str, str] = ("", ""),
        limit: int,
        among: Sequence[str] = (EVERY_KIND,),
        prefix: str = "",
    ) -> list[Listed[S]]:
        """Rows by kind and name, behind one kind and name; of names that begin so."""
        found: list[Listed[S]] = []
        for low, high in sorted(map(_span, of.kinds(self.scope, among))):
            if len(found) < limit and after[0] < high:
                start, names = max(after, (low, "")), (prefix, prefix + _AFTER_ALL)
                rows = self._rows.between(of, start, high, names, limit - len(found))
                found += _listed(of, rows)
        return found

    def in_order(
        self,
        of: LaneList[S],
        *,
        after: int = 0,
        limit: int,
        among: Sequence[str] = (EVERY_KIND,),
    ) -> tuple[list[Listed[S]], int]:
        """Rows behind a record, the oldest first; and where to go on, 0 if there are no more."""
        kinds = of.kinds(self.scope, among)
        if not kinds:
            return [], 0
        rows = self._rows.behind(of, kinds, after, limit)
        found = list(_listed(of, rows))
        return found, rows[-1][0] if len(rows) == limit else self._rows.examined_to(of, after)


class _Rows(Queries):
    """The statements; what is put together for them is our own words."""

    def between(
        self,
        of: LaneList[Any],
        start: tuple[str, str],
        end: str,
        names: tuple[str, str],
        limit: int,
    ) -> list[_Row]:
        """Rows behind a kind and a name, up to a kind, with names between two."""
        table, name = of.by("kind", of.name), of.name
        sql = (
            f"select {of.columns} from {table} where {of.where} and (kind, {name}) > (?, ?)"  # noqa: S608
            f" and kind < ? and {name} >= ? and {name} < ? order by kind, {name} limit ?"
        )
        return self._db.execute(sql, (*start, end, *names, limit)).fetchall()

    def behind(self, of: LaneList[Any], kinds: Sequence[str], after: int, limit: int) -> list[_Row]:
        """Rows behind a record, of some kinds, among those that are looked at."""
        where, args = kinds_clause("", kinds)
        sql = (
            f"select {of.columns} from {of.table} where id in (select id from (select id, kind from"  # noqa: S608
            f" {of.by('first_seq', 'kind')} where {of.where} and first_seq > ? order by first_seq"
            f" limit {EXAMINED}) where {where} limit ?) order by first_seq"
        )
        return self._db.execute(sql, (after, *args, limit)).fetchall()

    def examined_to(self, of: LaneList[Any], after: int) -> int:
        """The last record that was looked at behind this one; 0 if there were no more."""
        sql = (
            f"select first_seq from {of.by('first_seq', 'kind')} where {of.where}"  # noqa: S608
            f" and first_seq > ? order by first_seq limit 1 offset {EXAMINED - 1}"
        )
        row = self._db.execute(sql, (after,)).fetchone()
        return int(row[0]) if row else 0

    def of_one(self, of: LaneList[Any], whose: str, kind: str, until: int) -> Iterator[_Row]:
        """Somebody's rows in their order, of one kind or of all; more are read as they are used."""
        table, and_kind = of.by("whose", "kind", of.order), " and kind = ?"
        which: tuple[str, ...] = (whose, kind)
        if kind == EVERY_KIND:
            table, and_kind, which = of.by("whose", of.order), "", (whose,)
        direction = "desc" if of.is_newest_first else "asc"
        sql = (
            f"select {of.columns} from {table} where {of.where} and whose = ?{and_kind}"  # noqa: S608
            f" and {of.order} <= ? order by {of.order} {direction} limit ? offset ?"
        )
        read, more = 0, 1
        while True:
            rows = self._db.execute(sql, (*which, until, more, read)).fetchall()
            yield from rows
            if len(rows) < more:
                return
            read, more = read + more, read + more

    def holders(self, of: LaneList[Any]) -> Iterator[str]:
        """Everybody who has a row."""
        table = of.by("whose", of.order)
        return self._each(f"whose from {table} where {of.where}", (), most=MOST_PARTIES)

    def kinds(self, of: LaneList[Any], whose: str, kinds: Sequence[str]) -> Iterator[str]:
        """The kinds of somebody's rows that may be seen; one word for all if all may be."""
        if EVERY_KIND in kinds:
            return iter((EVERY_KIND,))
        table = of.by("whose", "kind", of.order)
        sql = f"kind from {table} where {of.where} and whose = ?"
        found = (
            self._each(sql, (whose,), span=_span(one), most=MOST_KINDS)
            if one.endswith(EVERY_KIND)
            else (one,)
            for one in kinds
        )
        return islice(chain.from_iterable(found), MOST_KINDS)

    def _each(
        self,
        what: str,
        args: tuple[str, ...],
        *,
        span: tuple[str, str] = (_BEFORE_ALL, _AFTER_ALL),
        most: int,
    ) -> Iterator[str]:
        """Different values of a column, in order: however many rows there are, a step for each."""
        column = what.split(" ", 1)[0]
        last, end = span
        for _ in range(most):
            row = self._db.execute(
                f"select {what} and {column} > ? and {column} < ? order by {column} limit 1",
                (*args, last, end),
            ).fetchone()
            if row is None:
                return
            (last,) = row
            yield last


def _is_met(of: LaneList[S], only: Callable[[S], bool], row: _Row) -> bool:
    return only(of.decode(row[-1]).state)


def _span(kind_filter: str) -> tuple[str, str]:
    """Between which two texts the kinds of a filter are."""
    if kind_filter == EVERY_KIND:
        return _BEFORE_ALL, _AFTER_ALL
    if kind_filter.endswith(".>"):
        return kind_filter[:-1], f"{kind_filter[:-2]}/"
    return kind_filter, f"{kind_filter}\0"


def _listed(of: LaneList[S], rows: Iterable[_Row]) -> Iterator[Listed[S]]:
    for at, kind, name, whose, body in rows:
        state = of.decode(body).state
        if state is not None:
            yield Listed(at, kind, name, whose, state)


def kind_and_below(kind: str) -> tuple[str, ...]:
    """A kind and those below it, as kind filters; all without one."""
    return (kind, f"{kind}.>") if kind else (EVERY_KIND,)
