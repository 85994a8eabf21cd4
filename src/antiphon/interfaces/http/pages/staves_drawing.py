"""The Staves as a picture from the server: five lines a worker, or one each if they are many."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.interfaces.http.pages.job_drawing import LINE, STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.sdk.dashboard.staves import Hold, StavesView

LEFT: Final = 176
WIDTH: Final = 1224
TOP: Final = 44
PITCH: Final = 73
MANY: Final = 16
"""More workers than these have one line each."""
THIN: Final = 6
GROUPED: Final = 8
"""A machine with so many of them has a group of its own; the others share one."""
GROUP_GAP: Final = 16
GROUP_HEIGHT: Final = 52
"""Of its name and what is to be said of it."""
REMARK_HEIGHT: Final = 12
WRONG: Final = 25
AHEAD_S: Final = 16
"""Leases are drawn this far beyond now."""
BEAT_S: Final = 4
BAR_BEATS: Final = 8
PLACES: Final = 9
"""Of a staff: its lines and the spaces between them."""


class Note(Struct, frozen=True, kw_only=True):
    """A hold."""

    x: float
    y: float
    width: float
    due: float
    """Of one that lasts: where its lease ends."""
    state: str
    job: str
    words: str


class Mark(Struct, frozen=True, kw_only=True):
    """A refused record."""

    x: float
    y: float
    job: str
    verdict: str
    words: str


class Staff(Struct, frozen=True, kw_only=True):
    """A worker."""

    name: str
    about: str
    is_bad: bool
    y: float


class Group(Struct, frozen=True, kw_only=True):
    """Of many workers, those of one machine."""

    name: str
    about: str
    wrong: str
    """What needs a look, by number."""
    y: float
    workers: list[str]


class Score(Struct, frozen=True, kw_only=True):
    """The picture."""

    width: int
    height: int
    left: int
    top: int
    is_thin: bool
    now_x: float
    beats: list[tuple[float, bool, str]]
    """Where each is, whether a bar begins there, and how long ago that was."""
    staves: list[Staff]
    groups: list[Group]
    """If they have a line each."""
    remarks: list[tuple[float, float, str]]
    """Beside lines that need a look."""
    notes: list[Note]
    marks: list[Mark]
    slurs: list[tuple[float, float, float, float]]
    wrong: list[Note]
    """What needs a look, the newest first."""


def score(view: StavesView) -> Score:
    """The last minutes as notes."""
    is_thin = len(view.workers) > MANY
    span_ms = view.now_ms - view.since_ms + AHEAD_S * 1000
    groups = _groups(view) if is_thin else []
    row = {did: TOP + 16.0 + number * PITCH for number, did in enumerate(view.workers)}
    for group in groups:
        row |= {did: group.y + number * THIN for number, did in enumerate(group.workers)}
    below = max(row.values(), default=TOP) + (THIN if is_thin else PITCH - 16)
    if groups:
        below = max(below, groups[-1].y + GROUP_HEIGHT)

    def x(at_ms: int) -> float:
        inside = min(max(at_ms - view.since_ms, 0), span_ms)
        return round(LEFT + inside / span_ms * WIDTH, 1)

    def y(worker: str, slot: int = 0) -> float:
        top = row[worker]
        return top if is_thin else top + 4 * LINE - (slot % PLACES) * LINE / 2

    def note(one: Hold) -> Note:
        end_ms = min(one.until_ms, view.now_ms)
        name = view.names[one.worker]
        held_s = max(end_ms - one.since_ms, 0) / 1000
        return Note(
            x=x(one.since_ms),
            y=y(one.worker, one.slot),
            width=max(round(x(end_ms) - x(one.since_ms), 1), 1.5),
            due=x(one.until_ms) if not one.end else 0.0,
            state=STATES[one.end],
            job=one.job,
            words=f"{one.kind} {one.job[:8]}: {name} held it for {held_s:.1f} s"
            f" and {one.end or 'still holds it'}",
        )

    notes = [note(one) for one in view.holds]
    slurs = [
        (notes[one.follows].x + notes[one.follows].width, notes[one.follows].y, mine.x, mine.y)
        for one, mine in zip(view.holds, notes, strict=True)
        if one.follows >= 0
    ]
    marks = [
        Mark(
            x=x(one.at_ms),
            y=y(one.worker),
            job=one.job,
            verdict=one.verdict,
            words=f"{one.kind} {one.job[:8]}: a record of {view.names[one.worker]} was refused,"
            f" {one.verdict}",
        )
        for one in view.refused
        if one.worker in row
    ]
    return Score(
        width=LEFT + WIDTH + 4,
        height=round(below + 16),
        left=LEFT,
        top=TOP,
        is_thin=is_thin,
        now_x=x(view.now_ms),
        beats=_beats(view, x),
        staves=_staves(view, y),
        groups=groups,
        remarks=_remarks(view, y, x(view.now_ms)) if is_thin else [],
        notes=notes,
        marks=marks,
        slurs=slurs,
        wrong=[one for one in reversed(notes) if one.state in {"lost", "fail"}][:WRONG],
    )


def _staves(view: StavesView, y: Callable[[str], float]) -> list[Staff]:
    busy = Counter(one.worker for one in view.holds if not one.end)
    found = list[Staff]()
    for did in view.workers:
        level = view.levels.get(did, "offline")
        about = f"{busy[did]} of {view.slots[did]} slots" if did in view.slots else ""
        is_bad = level != "alive"
        name = view.names[did]
        found.append(Staff(name=name, about=level if is_bad else about, is_bad=is_bad, y=y(did)))
    return found


def _groups(view: StavesView) -> list[Group]:
    """Many workers by their machines, as their names say; small ones come last and together."""
    by_machine: dict[str, list[str]] = {}
    for did in view.workers:
        by_machine.setdefault(view.names[did].partition("/")[0], []).append(did)
    small = {name: found for name, found in by_machine.items() if len(found) < GROUPED}
    wanted = [(name, found) for name, found in by_machine.items() if name not in small]
    if len(small) == 1:
        wanted += small.items()
    elif small:
        name = f"{len(small)} {'other ' if wanted else ''}machines"
        wanted.append((name, [did for found in small.values() for did in found]))
    busy = {one.worker for one in view.holds if not one.end}
    lost = Counter(one.worker for one in view.holds if one.end == "lost its lease")
    failed = Counter(one.worker for one in view.holds if one.end == "failed")
    groups, y = list[Group](), TOP + 16.0
    for name, found in wanted:
        silent = sum(view.levels.get(did, "offline") != "alive" for did in found)
        leases, failures = sum(lost[did] for did in found), sum(failed[did] for did in found)
        wrong = [
            f"{silent} silent" * bool(silent),
            f"{leases} lease{'s'[: leases != 1]} lost" * bool(leases),
            f"{failures} failed" * bool(failures),
        ]
        about = f"{len(found)} workers, {len(busy.intersection(found))} busy"
        told = ", ".join(filter(None, wrong))
        groups.append(Group(name=name, about=about, wrong=told, y=y, workers=found))
        y += max(len(found) * THIN, GROUP_HEIGHT) + GROUP_GAP
    return groups


def _remarks(
    view: StavesView, y: Callable[[str], float], now_x: float
) -> list[tuple[float, float, str]]:
    """Who is silent, lost leases, failed, in this order; as many as do not overlap."""
    told = {
        did: f"is {level}"
        for did in view.workers
        if (level := view.levels.get(did, "offline")) != "alive"
    }
    for end in ("lost its lease", "failed"):
        told = {one.worker: end for one in view.holds if one.end == end} | told
    placed = list[tuple[float, float, str]]()
    for did, what in sorted(told.items(), key=lambda one: not one[1].startswith("is ")):
        at = y(did) + 4
        if all(abs(at - other) >= REMARK_HEIGHT for _, other, _ in placed):
            placed.append((now_x + 6, at, f"{view.names[did].rpartition('/')[2]} {what}"))
    return placed


def _beats(view: StavesView, x: Callable[[int], float]) -> list[tuple[float, bool, str]]:
    found = []
    first = -(-view.since_ms // (BEAT_S * 1000))
    last = (view.now_ms + AHEAD_S * 1000) // (BEAT_S * 1000)
    for beat in range(first, last + 1):
        at_ms, is_bar = beat * BEAT_S * 1000, beat % BAR_BEATS == 0
        ago_s = (view.now_ms - at_ms) / 1000
        words = f"{ago_s:.0f} s ago" if is_bar and ago_s > BEAT_S else ""
        found.append((x(at_ms), is_bar, words))
    return found
