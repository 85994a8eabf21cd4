"""The graph around a job in the terminal: what it waits for, and what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import GLYPHS, counted, out, state_piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.sdk.graphs.neighbours import Around, Neighbour


def draw(around: Around) -> None:
    """Print both directions, each as a tree."""
    for title, neighbours, more in (
        ("after   ", around.before, around.more_before),
        ("then    ", around.after, around.more_after),
    ):
        if neighbours:
            out.say("")
            _draw(neighbours, more, first=title, rest=" " * len(title))


def _draw(neighbours: Sequence[Neighbour], more: int, *, first: str, rest: str) -> None:
    last = len(neighbours) - (0 if more else 1)
    for at, one in enumerate(neighbours):
        head = first if at == 0 else rest
        corner = "└─ " if at == last else "├─ "
        mark, style = state_piece(one.state) if one.state else ("· not known here", "quiet")
        note = "  shown above" if one.is_shown else ""
        out.pieces(
            (head + corner, "quiet"),
            (f"{mark:<{_WIDE}}", style),
            (f"{one.kind} {short(one.id)}", "strong"),
            (note, "quiet"),
        )
        below = rest + ("   " if at == last else "│  ")
        _draw(one.beyond, one.more, first=below, rest=below)
    if more:
        out.pieces(
            (f"{rest if neighbours else first}└─ ", "quiet"),
            (f"… and {counted(more, 'job')} more", "quiet"),
        )


_WIDE = max(len(state_piece(state)[0]) for state in GLYPHS) + 2


def as_objects(neighbours: Sequence[Neighbour]) -> list[dict[str, Any]]:
    """The direct neighbours as JSON."""
    return [{"kind": one.kind, "job": one.id, "state": one.state or None} for one in neighbours]
