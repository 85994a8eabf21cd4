"""The timeline of a job as a picture: a staff for each worker, a note for each hold."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from antiphon.sdk.dashboard.tenures import Timeline

LEFT: Final = 180
WIDTH: Final = 1180
TOP: Final = 34
PITCH: Final = 74
LINE: Final = 9
"""Between the five lines of a staff."""
STATES: Final = {
    "": "run",
    "succeeded": "ok",
    "failed": "fail",
    "gave it back": "abort",
    "lost its lease": "lost",
}


class Note(Struct, frozen=True, kw_only=True):
    """One tenure."""

    x: float
    width: float
    y: float
    state: str
    words: str
    stems: list[float]
    """Where it was renewed."""


class Mark(Struct, frozen=True, kw_only=True):
    """A refused record."""

    x: float
    y: float
    words: str


class Staff(Struct, frozen=True):
    """A worker's lines."""

    name: str
    y: float


class Drawing(Struct, frozen=True, kw_only=True):
    """The picture."""

    width: int
    height: int
    staves: list[Staff]
    notes: list[Note]
    marks: list[Mark]
    slurs: list[tuple[float, float, float, float]]
    """From a lost lease to the next hold."""
    grid: list[tuple[float, str]]
    end_x: float
    """0: it has not ended."""
    caption: str


def drawn(life: Timeline, names: dict[str, str]) -> Drawing | None:
    """The picture of a job's life; None while nobody has claimed it."""
    if not life.tenures:
        return None
    workers = list(dict.fromkeys(one.worker for one in life.tenures))
    last_ms = max(
        [one.until_ms for one in life.tenures] + [one.at_ms for one in life.refused] + [0]
    )
    span_ms = max(last_ms - life.begun_ms, 1)

    def x(at_ms: int) -> float:
        return round(LEFT + (at_ms - life.begun_ms) / span_ms * WIDTH, 1)

    def y(worker: str) -> float:
        return TOP + workers.index(worker) * PITCH + 2 * LINE

    notes = [
        Note(
            x=x(one.since_ms),
            width=max(x(one.until_ms) - x(one.since_ms), 2.0),
            y=y(one.worker),
            state=STATES[one.end],
            words=f"{names.get(one.worker, one.worker[-8:])} held it for"
            f" {(one.until_ms - one.since_ms) / 1000:.3f} s and {one.end or 'still holds it'}",
            stems=[x(at_ms) for at_ms in one.renewed_ms],
        )
        for one in life.tenures
    ]
    slurs = [
        (before.x + before.width, before.y, after.x, after.y)
        for before, after in pairwise(notes)
        if before.state == "lost"
    ]
    marks = [
        Mark(x=x(one.at_ms), y=y(one.by) if one.by in workers else TOP - 8, words=one.verdict)
        for one in life.refused
    ]
    return Drawing(
        width=LEFT + WIDTH + 20,
        height=TOP + len(workers) * PITCH,
        staves=[Staff(names.get(one, one[-8:]), y(one) - 2 * LINE) for one in workers],
        notes=notes,
        marks=marks,
        slurs=slurs,
        grid=[
            (round(LEFT + WIDTH * part / 6, 1), f"+{span_ms * part / 6 / 1000:.3g} s")
            for part in range(7)
        ],
        end_x=x(life.ended_ms) if life.ended_ms else 0,
        caption=_caption(life, len(workers)),
    )


def _caption(life: Timeline, workers: int) -> str:
    holds, lost = len(life.tenures), sum(one.end == "lost its lease" for one in life.tenures)
    words = f"{holds} hold{'s' * (holds != 1)} by {workers} worker{'s' * (workers != 1)}"
    if lost:
        words += f", {lost} lease{'s' * (lost != 1)} lost"
    return (
        f"{words}. Each staff is a worker; a note begins at its claim and is as long as its hold."
        " Stems are renewals, a slur is a takeover, the double line is the end of the job."
    )
