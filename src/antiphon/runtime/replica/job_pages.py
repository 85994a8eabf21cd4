"""Pages of jobs by any filter, newest first (spec §16).

A page costs about the same however many jobs there are. The filter that finds the fewest jobs
chooses the index, the others are checked row by row, and at most `EXAMINED` rows are looked at. So
a page may have fewer jobs than asked for, or none, and still be followed by another: `next` says
so. Nothing is counted.

Jobs are in the order of the log, and a page ends at a sequence: where it goes on means the same
after new jobs have come, and on a replica that was built again.

Who asks may be allowed to see some kinds only (`visible`, kind filters). That is applied to every
query here, and no argument of a query widens it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct

from antiphon.core.authority.scope import EVERY_KIND, admits
from antiphon.core.families.jobs.columns import follows, node_number
from antiphon.core.families.jobs.state import Job, JobLane, State
from antiphon.core.record import subjects
from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.replica import replica_texts
from antiphon.runtime.replica.replica import Queries
from antiphon.runtime.replica.replica_table import link

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYTHING: Final = (EVERY_KIND,)
PAGE_MOST: Final = 500
"""Jobs of one page."""
EXAMINED: Final = 5_000
"""Rows that are looked at for one page."""
PROBED: Final = 1_000
"""How far the rows of a filter are counted to see which one finds the fewest."""
MERGED: Final = 128
"""Kinds and states whose indexes are read beside each other; for more, all jobs are read."""
CELLS: Final = 4_096
"""Tallies of kinds and states that are looked at to find out which there are."""
GRAPH_MOST: Final = 1_000
"""Jobs of one graph."""
NO_END: Final = 2**62

_decode: Final = msgspec.msgpack.Decoder(JobLane).decode


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs are wanted; what is empty does not matter."""

    states: tuple[State, ...] = ()
    kind: str = ""
    """This kind and the kinds below it."""
    since_ms: int = 0
    """Submitted at this time or later."""
    until_ms: int = 0
    """Submitted before this time."""
    submitter: str = ""
    worker: str = ""
    """Who holds it, or ran it last."""
    label: str = ""
    plans: tuple[str, ...] | None = None
    """The op ids of a plan's versions."""
    text: str = ""
    """Words of its newest error."""
    graph: tuple[str, str] | None = None
    """A job: those that are connected with it."""

    def is_met_by(self, job: Job) -> bool:
        """Whether a job is wanted, as far as the job itself can tell: not by text and graph."""
        return (
            (not self.states or job.state in self.states)
            and is_below(job.kind, self.kind)
            and job.scheduled_ms >= self.since_ms
            and (not self.until_ms or job.scheduled_ms < self.until_ms)
            and self.label in ("", job.concurrency)
            and (self.plans is None or job.plan in self.plans)
            and _is_by(job, self)
        )


class JobPage(NamedTuple):
    """Jobs, newest first."""

    jobs: list[Job]
    next: int
    """Go on before this sequence; 0: there are no more."""


class _Source(NamedTuple):
    """Rows in the order of the log, newest first: `at` (a lane's first_seq) and `lane`."""

    select: str
    args: Sequence[object]
    size: int
    """How many there are, at most; enough to compare."""


class JobPages(Queries):
    """Jobs by any filter, a page at a time."""

    def page(
        self,
        wanted: JobFilter,
        *,
        visible: Sequence[str] = EVERYTHING,
        before: int = 0,
        limit: int = 50,
    ) -> JobPage:
        """The newest jobs before a sequence; at most `limit`, and at most `PAGE_MOST`."""
        limit = max(1, min(limit, PAGE_MOST))
        span = self._span(wanted, before)
        source = self._source(wanted, visible, span)
        if source is None:
            return JobPage([], 0)
        where, args = _residue(wanted, visible)
        rows = self._db.execute(
            f"select at, body from ({source.select} order by at desc limit {EXAMINED})"  # noqa: S608 - our own words and placeholders
            f" cross join lanes_jobs on id = lane where {where} limit ?",
            (*source.args, *args, limit + 1),
        ).fetchall()
        # The numbers of two nodes may be the same.
        found = [job for _, body in rows[:limit] if _is_by(job := _job(body), wanted)]
        if len(rows) > limit:
            return JobPage(found, rows[limit - 1][0])
        return JobPage(found, self._examined_to(source))

    def _examined_to(self, source: _Source) -> int:
        """The last row that was looked at; 0 if there were no more."""
        row = self._db.execute(
            f"{source.select} order by at desc limit 1 offset {EXAMINED - 1}", source.args
        ).fetchone()
        return int(row[0]) if row else 0

    def every(
        self, wanted: JobFilter, *, visible: Sequence[str] = EVERYTHING, limit: int
    ) -> Iterator[Job]:
        """Jobs page after page, at most `limit`."""
        before, left = 0, limit
        while left > 0:
            page = self.page(wanted, visible=visible, before=before, limit=left)
            yield from page.jobs
            left -= len(page.jobs)
            before = page.next
            if not before:
                return

    def counts(self, *, visible: Sequence[str] = EVERYTHING, kind: str = "") -> dict[str, int]:
        """How many jobs are in each state that has any; kept with every record, not counted."""
        if EVERY_KIND in visible and not kind:
            rows: Iterable[tuple[str, int]] = self._db.execute(
                "select state, lanes from tallies where family = 'jobs' and kind = '' and lanes > 0"
            )
        else:
            where, args = kinds_clause(kind, visible)
            rows = self._db.execute(
                "select state, sum(lanes) from tallies where family = 'jobs' and kind != ''"  # noqa: S608 - our own words and placeholders
                f" and {where} group by state having sum(lanes) > 0",
                args,
            )
        found = dict(rows)
        return {state.value: found[state.value] for state in State if state.value in found}

    def counts_by_kind(
        self, *, visible: Sequence[str] = EVERYTHING, after: str = "", limit: int = 100
    ) -> list[tuple[str, dict[str, int]]]:
        """The same for each kind, in the order of their names, those after one."""
        where, args = kinds_clause("", visible)
        rows = self._db.execute(
            "select kind, state, lanes from tallies where family = 'jobs' and kind > ?"  # noqa: S608 - our own words and placeholders
            f" and lanes > 0 and {where} order by kind limit ?",
            (after, *args, (limit + 1) * len(State)),
        )
        found: dict[str, dict[str, int]] = {}
        for one, state, lanes in rows:
            found.setdefault(one, {})[state] = lanes
        return list(found.items())[:limit]

    # --- where to look --------------------------------------------------------------------------

    def _span(self, wanted: JobFilter, before: int) -> tuple[int, int]:
        """The sequences in question: below the first, not below the second."""
        upper = before or NO_END
        if wanted.until_ms:
            upper = min(upper, self._first_at(wanted.until_ms))
        return upper, self._first_at(wanted.since_ms) if wanted.since_ms else 0

    def _first_at(self, at_ms: int) -> int:
        """The first record that was committed at a time or later; beyond the last if none was."""
        wanted_ns = at_ms * NANOSECONDS_PER_MS
        low = 0
        row = self._db.execute("select max(seq) from records").fetchone()
        high = (row[0] or 0) + 1
        while low < high:
            middle = (low + high) // 2
            row = self._db.execute(
                "select seq, stamp_ns from records where seq >= ? order by seq limit 1", (middle,)
            ).fetchone()
            if row is None or row[1] >= wanted_ns:
                high = middle
            else:
                low = int(row[0]) + 1
        return high

    def _source(
        self, wanted: JobFilter, visible: Sequence[str], span: tuple[int, int]
    ) -> _Source | None:
        """Where to read; None if there cannot be any such job."""
        if wanted.text:
            return _found_by_text(wanted.text, span)
        if wanted.graph is not None:
            return _listed(self._graph(wanted.graph, visible), span)
        cells = self._cells(wanted, visible)
        if cells is not None and not cells:
            return None
        sources = [self._equal(name, values, span) for name, values in _keys(wanted)]
        if cells is not None and len(cells) <= MERGED:
            sources.append(_merged(cells, span))
        if not sources:
            return _all(span)
        return min(sources, key=lambda one: one.size)

    def _cells(
        self, wanted: JobFilter, visible: Sequence[str]
    ) -> list[tuple[str, str, int]] | None:
        """The kinds and states that jobs could be in; None if there are too many to tell."""
        where, args = kinds_clause(wanted.kind, visible)
        rows = self._db.execute(
            "select kind, state, lanes from tallies where family = 'jobs' and kind != ''"  # noqa: S608 - our own words and placeholders
            f" and {where} limit {CELLS}",
            args,
        ).fetchall()
        if len(rows) == CELLS:
            return None
        return [
            (kind, state, lanes)
            for kind, state, lanes in rows
            if lanes > 0 and (not wanted.states or state in wanted.states)
        ]

    def _equal(self, name: str, values: Sequence[object], span: tuple[int, int]) -> _Source:
        """Jobs with one of these values in a column that has an index."""
        one = (
            f"select first_seq as at, id as lane from lanes_jobs where {name} = ?"  # noqa: S608 - our own names
            " and first_seq < ? and first_seq >= ?"
        )
        select = " union all ".join([one] * len(values))
        args = [arg for value in values for arg in (value, *span)]
        row = self._db.execute(
            f"select count(*) from ({select} limit {PROBED})",  # noqa: S608 - see above
            args,
        ).fetchone()
        return _Source(select, args, int(row[0]))

    def _graph(self, root: tuple[str, str], visible: Sequence[str]) -> list[int]:
        """The rows of the jobs that are connected with a job, as far as they are visible."""
        found: dict[int, None] = {}
        ahead = deque([root])
        met = {root}
        while ahead and len(found) < GRAPH_MOST:
            key = ahead.popleft()
            row = self._db.execute(
                "select id, body from lanes_jobs where name = ? and kind = ? and state is not null",
                (key[1], key[0]),
            ).fetchone()
            if row is None or not any(admits(one, key[0]) for one in visible):
                continue
            found[row[0]] = None
            beside = [*follows(_job(row[1])), *self._followers(key, visible)]
            fresh = [one for one in dict.fromkeys(beside) if one not in met]
            met.update(fresh)
            ahead.extend(fresh)
        return list(found)

    def _followers(self, key: tuple[str, str], visible: Sequence[str]) -> list[tuple[str, str]]:
        where, args = kinds_clause("", visible)
        rows = self._db.execute(
            "select body from follows join lanes_jobs on id = lane"  # noqa: S608 - our own words and placeholders
            f" where before = ? and {where} limit ?",
            (link(key), *args, GRAPH_MOST),
        )
        jobs = (_decode(body).job for (body,) in rows)
        return [(one.kind, one.id) for one in jobs if one is not None and key in follows(one)]


# --- the parts of a query -------------------------------------------------------------------------


def _found_by_text(text: str, span: tuple[int, int]) -> _Source:
    table = replica_texts.TABLE
    return _Source(
        "select at, id as lane from"  # noqa: S608 - our own names
        f" (select rowid as at from {table} where {table} match ? and rowid < ? and rowid >= ?"
        f" order by rowid desc limit {EXAMINED})"
        " cross join lanes_jobs on first_seq = at and state is not null",
        [replica_texts.match_of(text), *span],
        0,
    )


def _listed(lanes: list[int], span: tuple[int, int]) -> _Source | None:
    if not lanes:
        return None
    return _Source(
        "select first_seq as at, id as lane from lanes_jobs"  # noqa: S608 - placeholders
        f" where id in ({','.join('?' * len(lanes))}) and first_seq < ? and first_seq >= ?",
        [*lanes, *span],
        0,
    )


def _merged(cells: list[tuple[str, str, int]], span: tuple[int, int]) -> _Source:
    one = (
        "select first_seq as at, id as lane from lanes_jobs where state = ? and kind = ?"
        " and first_seq < ? and first_seq >= ?"
    )
    args = [arg for kind, state, _ in cells for arg in (state, kind, *span)]
    return _Source(" union all ".join([one] * len(cells)), args, sum(cell[2] for cell in cells))


def _all(span: tuple[int, int]) -> _Source:
    return _Source(
        "select first_seq as at, id as lane from lanes_jobs"
        " where state is not null and first_seq < ? and first_seq >= ?",
        [*span],
        NO_END,
    )


def _keys(wanted: JobFilter) -> list[tuple[str, Sequence[object]]]:
    """The columns with an index of their own that are asked for, and the values."""
    found: list[tuple[str, Sequence[object]]] = []
    if wanted.label:
        found.append(("label", [wanted.label]))
    if wanted.plans:
        found.append(("plan", wanted.plans))
    if wanted.worker:
        found.append(("worker", [node_number(wanted.worker)]))
    if wanted.submitter:
        found.append(("submitter", [node_number(wanted.submitter)]))
    return found


def _residue(wanted: JobFilter, visible: Sequence[str]) -> tuple[str, list[object]]:
    """What is checked of every row, whichever way it was found."""
    where, args = kinds_clause(wanted.kind, visible)
    clauses = [where, "state is not null"]
    for name, values in [*_keys(wanted), ("state", [one.value for one in wanted.states])]:
        if values:
            clauses.append(f"{name} in ({','.join('?' * len(values))})")
            args += values
    if wanted.plans is not None and not wanted.plans:
        clauses.append("0")
    # The log's clock may have been set back, so sequences alone do not tell.
    for compare, at_ms in ((">=", wanted.since_ms), ("<", wanted.until_ms)):
        if at_ms:
            clauses.append(f"scheduled_ms {compare} ?")
            args.append(at_ms)
    return " and ".join(clauses), args


def kinds_clause(prefix: str, visible: Sequence[str]) -> tuple[str, list[object]]:
    """That a kind is wanted, and that whoever asks may see it, as a part of a statement."""
    clauses, args = list[str](), list[object]()
    if prefix:
        clauses.append("(kind = ? or (kind > ? and kind < ?))")
        args += [prefix, prefix + ".", prefix + "/"]
    if EVERY_KIND not in visible:
        seen = []
        for one in visible:
            if one.endswith(".>"):
                seen.append("(kind > ? and kind < ?)")
                args += [one[:-1], one[:-2] + "/"]
            else:
                seen.append("kind = ?")
                args.append(one)
        clauses.append(f"({' or '.join(seen)})" if seen else "0")
    return " and ".join(clauses) or "1", args


def _is_by(job: Job, wanted: JobFilter) -> bool:
    return wanted.submitter in ("", job.scheduler) and wanted.worker in ("", job.claimer)


def _job(body: bytes) -> Job:
    job = _decode(body).job
    if job is None:
        raise LookupError("a row without a job")
    return job


def is_visible(kind: str, visible: Sequence[str]) -> bool:
    """Whether kind filters admit a kind."""
    return any(admits(one, kind) for one in visible)


def is_below(kind: str, prefix: str) -> bool:
    """Whether a kind is this one or below it; all are below the empty one."""
    return not prefix or subjects.covers(prefix, kind)
