"""Sums up what was said between two downbeats, in whatever order it arrives (spec §11).

A fact belongs to the bar of its own time: a claim to that of its HLC, a promise to the one in which
it is due, a change of a job to that of its commit. What is kept of facts is a maximum, a minimum or
a sum per key, so order and repetition do not matter: after a partition a report becomes what it
would have been (B9). Claims in the name of another node count nothing.

Everything has a bound. A node has its own share of a bar, so nobody can crowd out others; of what
is too much the smallest keys are kept, which is the same choice in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.clock.hlc import ZERO
from antiphon.core.tempo.bars.bar_facts import (
    MAX_ENDS,
    MAX_NODES,
    MAX_ROWS,
    AnswerFact,
    Bar,
    ClaimFact,
    Fact,
    JobEnd,
    Noted,
    Overran,
    PromiseFact,
    QueueFact,
    Row,
    admit,
    share_of,
    take_claim,
    take_end,
)
from antiphon.core.tempo.bars.kpis import Tally, kpis
from antiphon.core.tempo.messages import BarReport, StatusClaim
from antiphon.core.tempo.phases import PHASES
from antiphon.core.tempo.time_text import parse_hlc, time_text
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.core.clock.hlc import Hlc
    from antiphon.core.tempo.messages import HelpPromise, Suggestion, TaskState
    from antiphon.core.tempo.meter import Meter

BARS_RECONCILED: Final = 8
"""How many bars may change after their end."""
BARS_BEFORE: Final = 4
"""Bars kept before those, in which a task of theirs may have begun."""
MAX_ROLES: Final = 32
"""Roles that a report names; the others are summed up as `*`."""
MAX_PROMISES: Final = 256
"""Threads of one node."""
MAX_AHEAD: Final = 4096
"""Facts that are newer than the newest bar, kept until it begins."""


class BarWindows:
    """The bars of one mesh that may still change."""

    def __init__(
        self, mesh: str, *, reconciled: int = BARS_RECONCILED, before: int = BARS_BEFORE
    ) -> None:
        """Nothing is counted before the first bar was begun."""
        self.mesh = mesh
        self.kept = reconciled + before
        """How many bars are remembered at most."""
        self._before = before
        self._bars: list[Bar] = []
        self._floor: dict[str, int] = {}
        """The queues before the oldest bar."""
        self._promises: dict[str, dict[str, tuple[int, int]]] = {}
        """By node and thread: when it is due, and when it was made."""
        self._answers: dict[str, dict[str, int]] = {}
        """By node and thread: when it was answered."""
        self._ahead: list[tuple[str, Fact]] = []
        self._sums: dict[int, tuple[Tally, Counter[str]]] = {}
        self.changed: set[int] = set()
        """Starts of ended bars that have changed since this was emptied."""

    # --- bars -------------------------------------------------------------------------------------

    def begin(self, meter: Meter, start_ms: int) -> None:
        """A bar begins here, and the one before it ends here, even if it expected another end.

        The newest may be begun again: the tempo that begins with it may be known a little later.
        """
        if self._bars and start_ms <= self._bars[-1].start_ms:
            if start_ms == self._bars[-1].start_ms and self._bars[-1].meter != meter:
                self._bars[-1].follow(meter)
                self._sums.clear()
            return
        self._sums.clear()
        if self._bars:
            last = self._bars[-1]
            last.is_closed = True
            if start_ms < last.end_ms + last.meter.bar_ms:
                last.end_ms = start_ms
        self._bars.append(Bar(meter, start_ms))
        while len(self._bars) > self.kept:
            self._drop(self._bars.pop(0))
        waiting, self._ahead = self._ahead, []
        for author, fact in waiting:
            self._note(author, fact)

    @property
    def starts(self) -> tuple[int, ...]:
        """The bars whose reports can be made, oldest first; the last one is not over."""
        return tuple(bar.start_ms for bar in self._bars[self._skipped :])

    @property
    def _skipped(self) -> int:
        """Bars that take no more facts, since what began before them is no longer known."""
        return self._before if len(self._bars) == self.kept else 0

    def _drop(self, bar: Bar) -> None:
        for role, change in bar.queue.items():
            self._floor[role] = self._floor.get(role, 0) + change
        self._floor = {role: jobs for role, jobs in self._floor.items() if jobs}
        self.changed.discard(bar.start_ms)
        oldest_ms = self._bars[0].start_ms
        live: set[str] = set()
        for threads in self._promises.values():
            for thread in [one for one, (due_ms, _) in threads.items() if due_ms < oldest_ms]:
                del threads[thread]
            live.update(threads)
        for answers in self._answers.values():
            for thread in [
                one for one, at_ms in answers.items() if at_ms < oldest_ms and one not in live
            ]:
                del answers[thread]
        self._promises = {node: threads for node, threads in self._promises.items() if threads}
        self._answers = {node: threads for node, threads in self._answers.items() if threads}

    def _bar_at(self, at_ms: int) -> Bar | Noted:
        if self._bars and at_ms >= self._bars[-1].end_ms:
            return Noted.AHEAD
        for bar in reversed(self._bars[self._skipped :]):
            if bar.start_ms <= at_ms:
                return bar if at_ms < bar.end_ms else Noted.TOO_OLD
        return Noted.TOO_OLD

    # --- facts ------------------------------------------------------------------------------------

    def claim(self, claim: StatusClaim, author: str) -> Noted:
        """What an agent says about its task; `author` signed it."""
        if claim.agent_id != author and not claim.agent_id.startswith(f"{author}/"):
            return Noted.FORGED
        try:
            at = parse_hlc(claim.hlc)
        except Malformed:
            return Noted.MALFORMED
        return self._note(author, ClaimFact(claim, at))

    def promise(self, promise: HelpPromise, author: str, at_ms: int) -> Noted:
        """A promise of help; it is due `promise_beats` after `at_ms`."""
        return self._note(author, PromiseFact(promise.thread_id, promise.promise_beats, at_ms))

    def answer(self, thread: str, author: str, at_ms: int) -> Noted:
        """Help that was given; a promise in this thread is kept if it was due later."""
        return self._note(author, AnswerFact(thread, at_ms))

    def queued(self, role: str, change: int, at_ms: int) -> Noted:
        """More or fewer jobs wait for a worker. Each change once: the log has each record once."""
        return self._note("", QueueFact(role, change, at_ms))

    def overran(self, task_id: str, at_ms: int) -> Noted:
        """A job's run was cut."""
        return self._note("", Overran(task_id, at_ms))

    def ended(self, end: JobEnd) -> Noted:
        """A job ended."""
        return self._note("", end)

    def _note(self, author: str, fact: Fact) -> Noted:
        bar = self._bar_at(fact.at_ms)
        if bar is Noted.AHEAD:
            if self._keep_ahead(author, fact):
                return Noted.AHEAD
            if author:
                return Noted.TOO_MANY
            bar = self._bars[-1]  # the log's own facts are never lost
        if isinstance(bar, Noted):
            return self._note_old(author, fact)
        noted = self._take(bar, author, fact)
        if bar is self._bars[-1] and not isinstance(fact, PromiseFact | AnswerFact):
            self._sums.pop(bar.start_ms, None)
        else:
            self._sums.clear()
        if noted is not Noted.COUNTED or not bar.is_closed:
            return noted
        if isinstance(fact, ClaimFact):
            bar.late += 1
        self._mark_from(bar.start_ms)
        return Noted.LATE

    def _take(self, bar: Bar, author: str, fact: Fact) -> Noted:
        match fact:
            case ClaimFact():
                return take_claim(bar, author, fact)
            case PromiseFact():
                return self._take_promise(bar, author, fact)
            case AnswerFact():
                return self._take_answer(author, fact)
            case QueueFact():
                bar.queue[fact.role] = bar.queue.get(fact.role, 0) + fact.change
                return Noted.COUNTED
            case JobEnd():
                return take_end(bar, fact)
            case Overran():
                if len(bar.overran) >= MAX_ENDS:
                    return Noted.TOO_MANY
                bar.overran.add(fact.task_id)
                return Noted.COUNTED

    def _note_old(self, author: str, fact: Fact) -> Noted:
        """A fact of a bar that changes no more: a queue and a long promise last until today."""
        self._sums.clear()
        if isinstance(fact, QueueFact):
            self._floor[fact.role] = self._floor.get(fact.role, 0) + fact.change
        elif not isinstance(fact, AnswerFact):
            return Noted.TOO_OLD
        else:
            noted = self._take_answer(author, fact)
            if noted is not Noted.COUNTED:
                return noted
        self._mark_from(0)
        return Noted.LATE

    def _mark_from(self, start_ms: int) -> None:
        """Bars from here on have changed: a queue, a promise and an overrun outlast their bar."""
        self.changed.update(
            bar.start_ms
            for bar in self._bars[self._skipped :]
            if bar.is_closed and bar.start_ms >= start_ms
        )

    def _keep_ahead(self, author: str, fact: Fact) -> bool:
        newest = self._bars[-1]
        if fact.at_ms >= newest.end_ms + newest.meter.bar_ms or len(self._ahead) >= MAX_AHEAD:
            return False
        if author and sum(who == author for who, _ in self._ahead) >= MAX_ROWS:
            return False
        self._ahead.append((author, fact))
        return True

    def _take_promise(self, bar: Bar, author: str, fact: PromiseFact) -> Noted:
        due_ms = fact.at_ms + fact.beats * bar.meter.beat_ms
        threads = share_of(self._promises, author, MAX_NODES)
        if threads is None:
            return Noted.TOO_MANY
        made = (fact.at_ms, due_ms)
        known = threads.get(fact.thread)
        if known is None and not admit(threads, fact.thread, MAX_PROMISES):
            return Noted.TOO_MANY
        first = made if known is None else min(made, (known[1], known[0]))
        threads[fact.thread] = (first[1], first[0])
        return Noted.COUNTED

    def _take_answer(self, author: str, fact: AnswerFact) -> Noted:
        threads = share_of(self._answers, author, MAX_NODES)
        if threads is None:
            return Noted.TOO_MANY
        if fact.thread not in threads and not admit(threads, fact.thread, MAX_PROMISES):
            return Noted.TOO_MANY
        threads[fact.thread] = min(fact.at_ms, threads.get(fact.thread, fact.at_ms))
        return Noted.COUNTED

    # --- reports ----------------------------------------------------------------------------------

    def tally(self, start_ms: int) -> Tally:
        """What the figures of a bar are made of."""
        return self._sum(self._index(start_ms))[0]

    def _sum(self, at: int) -> tuple[Tally, Counter[str]]:
        """The tally of a bar and its tasks by state; summed up once until something changes."""
        start_ms = self._bars[at].start_ms
        if start_ms not in self._sums:
            self._sums[start_ms] = self._sum_up(at)
        return self._sums[start_ms]

    def _sum_up(self, at: int) -> tuple[Tally, Counter[str]]:
        bar, earlier = self._bars[at], self._bars[max(0, at - self._before) : at]
        states = _states(bar)
        counts = Counter[str](states.values())
        counts.update({"failed": bar.unnamed[0], "done": bar.unnamed[1]})
        good = _succeeded(bar, states)
        used = waited = useful = 0
        for _, _, row in bar.each_row():
            beats = len(row.cells)
            waits = sum(state == "waiting" for _, state in row.cells.values())
            used += beats
            waited += waits
            useful += beats - waits if row.key in good else 0
        due = [
            (thread, due_ms)
            for threads in self._promises.values()
            for thread, (due_ms, _) in threads.items()
            if bar.start_ms <= due_ms < bar.end_ms
        ]
        tally = Tally(
            beats=bar.beats,
            tasks=counts.total(),
            succeeded=len(good) + bar.unnamed[1],
            beats_used=used,
            beats_waited=waited,
            beats_useful=useful,
            promises_due=len(due),
            promises_broken=sum(not self._is_answered(*one) for one in due),
            cost=None if bar.cost_nano is None else bar.cost_nano / 1_000_000_000,
            firsts=tuple(sorted(_firsts(bar, earlier))),
            overruns_in=_overruns(bar, earlier),
        )
        return tally, counts

    def report(self, start_ms: int, *, suggested: Suggestion | None = None) -> BarReport:
        """The report of a bar."""
        at = self._index(start_ms)
        bar, (tally, counts) = self._bars[at], self._sum(at)
        return BarReport(
            cluster_id=self.mesh,
            window_start=time_text(bar.start_ms),
            window_end=time_text(bar.end_ms),
            tempo_bpm=bar.meter.bpm,
            counts={state: tasks for state, tasks in sorted(counts.items()) if tasks},
            overruns=sum(tally.overruns_in),
            promises_due=tally.promises_due,
            promises_broken=tally.promises_broken,
            queue_depth=self._queues(at),
            utilisation=_utilisation(bar),
            tempo_changes=int(at > 0 and self._bars[at - 1].meter.bpm != bar.meter.bpm),
            suggested=suggested,
            kpis=kpis(tally),
            claims_late=bar.late,
        )

    def span(self, start_ms: int) -> tuple[int, int]:
        """When a bar began, and when it ends or ended."""
        bar = self._bars[self._index(start_ms)]
        return bar.start_ms, bar.end_ms

    def heard(self, start_ms: int) -> frozenset[str]:
        """The tasks of which somebody said anything in a bar."""
        return frozenset(task for _, task, _ in self._bars[self._index(start_ms)].each_row())

    def _index(self, start_ms: int) -> int:
        for at, bar in enumerate(self._bars):
            if bar.start_ms == start_ms:
                return at
        raise KeyError(start_ms)

    def _is_answered(self, thread: str, due_ms: int) -> bool:
        return any(threads.get(thread, due_ms + 1) <= due_ms for threads in self._answers.values())

    def _queues(self, at: int) -> dict[str, int]:
        depth = dict(self._floor)
        for bar in self._bars[: at + 1]:
            for role, change in bar.queue.items():
                depth[role] = depth.get(role, 0) + change
        deep = sorted(
            ((role, jobs) for role, jobs in depth.items() if jobs > 0),
            key=lambda one: (-one[1], one[0]),
        )
        rest = sum(jobs for _, jobs in deep[MAX_ROLES:])
        named = dict(sorted(deep[:MAX_ROLES]))
        return named | {"*": rest} if rest else named


def settled(report: BarReport) -> BarReport:
    """A report without what depends on when things arrived: it is the same for everybody."""
    return replace(report, claims_late=0, suggested=None)


def _states(bar: Bar) -> dict[tuple[str, str], TaskState]:
    """The last state of each task; where the log has a job's end, that one."""
    last: dict[tuple[str, str], tuple[Hlc, TaskState]] = {}
    for _, _, row in bar.each_row():
        last[row.key] = max(last.get(row.key, row.last), row.last)
    states: dict[tuple[str, str], TaskState] = {key: state for key, (_, state) in last.items()}
    for task, end in bar.ends.items():
        states["", task] = "done" if end.is_success else "failed"
    return states


def _succeeded(bar: Bar, states: dict[tuple[str, str], TaskState]) -> frozenset[tuple[str, str]]:
    """What was delivered: jobs by the log alone, other tasks as their agents say."""
    return frozenset(
        (agent, task)
        for (agent, task), state in states.items()
        if state == "done" and (agent or task in bar.ends)
    )


def _firsts(bar: Bar, earlier: Iterable[Bar]) -> Iterator[float]:
    """Beats from submission to first output, of each job that succeeded in a bar."""
    shown: dict[str, int] = {}
    for one in (*earlier, bar):
        for _, task, row in one.each_row():
            if row.first_output_ms is not None:
                shown[task] = min(shown.get(task, row.first_output_ms), row.first_output_ms)
    for task, end in bar.ends.items():
        if end.is_success:
            first_ms = min(shown.get(task, end.at_ms), end.at_ms)
            yield max(0, first_ms - end.scheduled_ms) / bar.meter.beat_ms


def _overruns(bar: Bar, earlier: Iterable[Bar]) -> tuple[int, int, int]:
    """Tasks that had beats for a phase, used them up, and were still in it; by phase.

    A job that the log shows to have been cut counts in the phase that was claimed last.
    """
    before = {
        (agent, task, place)
        for one in earlier
        for agent, task, row in one.each_row()
        for place, began in enumerate(row.had_beats)
        if began is not None
    }
    counts = [0] * len(PHASES)
    cut = dict.fromkeys(bar.overran, PHASES.index("work"))
    for agent, task, row in bar.each_row():
        is_late = False
        for place, (began, none) in enumerate(zip(row.had_beats, row.had_none, strict=True)):
            is_here = began is not None and none is not None and began < none
            is_from_before = none is not None and (agent, task, place) in before
            is_late |= is_here or is_from_before
            counts[place] += is_here or is_from_before
        if is_late:
            cut.pop(task, None)
        elif task in cut:
            cut[task] = _last_phase(row)
    for place in cut.values():
        counts[place] += 1
    return (counts[0], counts[1], counts[2])


def _last_phase(row: Row) -> int:
    """The phase of the newest claim that was in one."""
    claimed = zip(row.had_beats, row.had_none, strict=True)
    newest = [max(filter(None, pair), default=ZERO) for pair in claimed]
    return newest.index(max(newest)) if max(newest) > ZERO else PHASES.index("work")


def _utilisation(bar: Bar) -> dict[str, float]:
    """The mean of what nodes said last."""
    uses, found = [use for _, use in bar.use.values()], {}
    for name in ("cpu", "gpu"):
        known = sorted(value for one in uses if (value := getattr(one, name)) is not None)
        if known:
            found[name] = round(sum(known) / len(known), 4)
    return found
