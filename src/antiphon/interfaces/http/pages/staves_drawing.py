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
NAMED: Final = 3
"""Lines of such a one that a name takes."""
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
    is_named: bool
    """Among many lines, some have their names."""


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
    notes: list[Note]
    marks: list[Mark]
    slurs: list[tuple[float, float, float, float]]
    wrong: list[Note]
    """What needs a look, the newest first."""


def score(view: StavesView) -> Score:
    """The last minutes as notes."""
    is_thin = len(view.workers) > MANY
    pitch = THIN if is_thin else PITCH
    span_ms = view.now_ms - view.since_ms + AHEAD_S * 1000
    row = {did: number for number, did in enumerate(view.workers)}

    def x(at_ms: int) -> float:
        inside = min(max(at_ms - view.since_ms, 0), span_ms)
        return round(LEFT + inside / span_ms * WIDTH, 1)

    def y(worker: str, slot: int = 0) -> float:
        top = TOP + 16 + row[worker] * pitch
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
        height=TOP + 24 + max(len(view.workers), 1) * pitch,
        left=LEFT,
        top=TOP,
        is_thin=is_thin,
        now_x=x(view.now_ms),
        beats=_beats(view, x),
        staves=_staves(view, [y(did) for did in view.workers], is_thin=is_thin),
        notes=notes,
        marks=marks,
        slurs=slurs,
        wrong=[one for one in reversed(notes) if one.state in {"lost", "fail"}][:WRONG],
    )


def _staves(view: StavesView, places: list[float], *, is_thin: bool) -> list[Staff]:
    """The workers; of many, those that need a look are named, and others where there is room."""
    bad = {did for did in view.workers if view.levels.get(did, "offline") != "alive"}
    busy = Counter(one.worker for one in view.holds if not one.end)
    found, free = list[Staff](), 0
    for number, (did, place) in enumerate(zip(view.workers, places, strict=True)):
        is_near = any(one in bad for one in view.workers[number + 1 : number + NAMED])
        is_named = not is_thin or did in bad or (number >= free and not is_near)
        free = number + NAMED if is_named else free
        level = view.levels.get(did, "offline")
        about = f"{busy[did]} of {view.slots[did]} slots" if did in view.slots else ""
        found.append(
            Staff(
                name=view.names[did],
                about=level if did in bad else about,
                is_bad=did in bad,
                y=place,
                is_named=is_named,
            )
        )
    return found


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
