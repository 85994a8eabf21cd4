"""Lines over one axis as SVG: panels below each other, each with a scale of its own from zero."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final

from msgspec import Struct

WIDE: Final = 760
LEFT: Final = 64
RIGHT: Final = 150
HEAD: Final = 40
PANEL: Final = 150
GAP: Final = 36
FOOT: Final = 44
COLOURS: Final = 7
STYLE: Final = """\
text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600;font-size:16px}.q{fill:#656d76}\
.g{stroke:#d0d7de;stroke-width:1}polyline{fill:none;stroke-width:2}\
.c0{stroke:#1a7f64}.c1{stroke:#b2182b}.c2{stroke:#2166ac}.c3{stroke:#9a6700}.c4{stroke:#762a83}\
.c5{stroke:#57606a}.c6{stroke:#c2528b}.d{stroke-dasharray:2 3}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.q{fill:#8b949e}.g{stroke:#30363d}\
.c0{stroke:#3fb68b}.c1{stroke:#ff7b72}.c2{stroke:#79c0ff}.c3{stroke:#e3b341}.c4{stroke:#d2a8ff}\
.c5{stroke:#8b949e}.c6{stroke:#f778ba}}"""


class Line(Struct, frozen=True):
    """Values with the places at which they were found."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]


class Panel(Struct, frozen=True):
    """Lines on one scale."""

    title: str
    lines: Sequence[Line]
    marks: Sequence[tuple[float, str]] = ()
    """Places at which something begins, and what."""


def svg(title: str, panels: Sequence[Panel], along: str, below: str) -> str:
    """The panels; `along` says what their common axis counts, `below` how it was measured."""
    most_x = max(max(line.xs) for panel in panels for line in panel.lines) or 1.0
    high = HEAD + (PANEL + GAP) * len(panels) + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="t" x="0" y="20">{escape(title)}</text>',
    ]
    for at, panel in enumerate(panels):
        parts += _panel(panel, HEAD + (PANEL + GAP) * at, most_x)
    foot = high - FOOT
    end = WIDE - RIGHT
    parts += [
        f'<text class="q" x="{LEFT}" y="{foot}" text-anchor="middle">0</text>',
        f'<text class="q" x="{(LEFT + end) / 2:.0f}" y="{foot}" text-anchor="middle">'
        f"{escape(along)}</text>",
        f'<text class="q" x="{end}" y="{foot}" text-anchor="middle">{short(most_x)}</text>',
        f'<text class="q" x="0" y="{high - 10}">{escape(below)}</text></svg>',
    ]
    return "\n".join(parts) + "\n"


def short(value: float) -> str:
    """A number with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _panel(panel: Panel, top: int, most_x: float) -> list[str]:
    most = max(max(line.ys) for line in panel.lines) or 1.0
    first, last, end = top + 18, top + PANEL, WIDE - RIGHT

    def x_of(value: float) -> float:
        return LEFT + (end - LEFT) * value / most_x

    def y_of(value: float) -> float:
        return last - (last - first) * max(value, 0.0) / most

    parts = [f'<text x="{LEFT}" y="{top + 8}">{escape(panel.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = y_of(share * most)
        parts.append(f'<line class="g" x1="{LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>')
        words = short(share * most)
        parts.append(
            f'<text class="q" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'
        )
    for place, words in panel.marks:
        x = x_of(place)
        parts.append(f'<line class="g d" x1="{x:.1f}" x2="{x:.1f}" y1="{first}" y2="{last}"/>')
        parts.append(f'<text class="q" x="{x + 3:.1f}" y="{first + 10}">{escape(words)}</text>')
    names = _apart([y_of(line.ys[-1]) for line in panel.lines], lowest=last)
    for at, (line, name_y) in enumerate(zip(panel.lines, names, strict=True)):
        points = " ".join(
            f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in zip(line.xs, line.ys, strict=True)
        )
        colour = f"c{at % COLOURS}"
        parts.append(f'<polyline class="{colour}" points="{points}"/>')
        parts.append(
            f'<line class="{colour}" stroke-width="3" x1="{end + 6}" x2="{end + 16}"'
            f' y1="{name_y:.1f}" y2="{name_y:.1f}"/>'
        )
        parts.append(f'<text x="{end + 20}" y="{name_y + 4:.1f}">{escape(line.label)}</text>')
    return parts


def _apart(wanted: list[float], *, lowest: float, least: float = 15.0) -> list[float]:
    """The same places in the same order, none closer than that to the next or below the lowest."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    placed = list(wanted)
    for before, at in pairwise(order):
        placed[at] = max(placed[at], placed[before] + least)
    limit = lowest
    for at in reversed(order):
        placed[at] = min(placed[at], limit)
        limit = placed[at] - least
    return placed
