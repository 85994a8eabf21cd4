"""Terminal output: text, tables and progress lines; colour stands for a state, never alone.

Everything printed here passes through `printable`, and Rich gets it as `Text`, never as markup:
no error message or alias from the log can move a cursor, reverse a line or open a link. Output
that is not a terminal gets no colour and no line width.
"""

from __future__ import annotations

import os
import sys
import time
from typing import IO, TYPE_CHECKING, Final

from antiphon.telemetry import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

STYLES: Final = {
    "succeeded": "#7fb894",
    "running": "#e0b15a",
    "claimed": "#c9a0dc",
    "pending": "#8fb3d9",
    "waiting": "#8fb3d9",
    "failed": "#d9705f",
    "aborted": "#7b8490",
    "quiet": "dim",
    "strong": "bold",
    "": "",
}
GLYPHS: Final = {
    "succeeded": "✓",
    "running": "▶",
    "claimed": "◆",
    "pending": "○",
    "waiting": "…",
    "failed": "✗",
    "aborted": "⊘",
}
PIPE_WIDTH: Final = 4096
"""Width of output that is not a terminal: no line is cut or wrapped in a pipe."""
GUTTER: Final = 2
"""Columns between the columns of a table."""
MIN_BENT: Final = 12
"""A flexible column shrinks to this width at most."""
ERASE_LINE: Final = "\r\x1b[2K"

Piece = tuple[str, str]
"""A text and the name of its style."""


class TextStream:
    """One output stream."""

    def __init__(self, name: str) -> None:
        """`name` is stdout or stderr; the stream is looked up when something is printed."""
        self._name = name
        self._console: Console | None = None

    @property
    def stream(self) -> IO[str]:
        """The stream itself."""
        stream: IO[str] = getattr(sys, self._name)
        return stream

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal, so that a person is reading."""
        return self.stream.isatty()

    @property
    def can_rewrite(self) -> bool:
        """Whether a line can be erased and rewritten."""
        return self.is_terminal and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def console(self) -> Console:
        """Rich's view of the stream."""
        if self._console is None or self._console.file is not self.stream:
            from rich.console import Console

            self._console = Console(
                file=self.stream,
                markup=False,
                highlight=False,
                emoji=False,
                soft_wrap=False,
                no_color=bool(os.environ.get("NO_COLOR")) or None,
                width=None if self.is_terminal else PIPE_WIDTH,
            )
        return self._console

    def say(self, *parts: str, style: str = "") -> None:
        """Print one line; the style applies to the first part, usually a mark."""
        styles = (style, *("" for _ in parts[1:]))
        self.pieces(*zip(parts, styles, strict=True))

    def pieces(self, *pieces: Piece) -> None:
        """Print one line of differently styled pieces, wrapped by words on a terminal."""
        if not self.is_terminal:
            print("".join(printable(text) for text, _ in pieces), file=self.stream, flush=True)
            return
        self.console.print(joined(pieces))

    def hanging(self, head: Sequence[Piece], body: Sequence[Piece]) -> None:
        """Print one line with a hanging indent: a long body is wrapped below itself."""
        if not self.is_terminal:
            self.pieces(*head, *body)
            return
        from rich.table import Table

        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(joined(head), joined(body))
        self._print_unpadded(grid)

    def verbatim(self, text: str) -> None:
        """Print text that people copy: without our own line breaks, which would be copied too."""
        print(printable(text), file=self.stream, flush=True)

    def fading(self, *pieces: Piece) -> None:
        """Print a progress line that the next one replaces; only where lines can be rewritten."""
        if not self.can_rewrite:
            return
        line = joined(pieces)
        # In ASCII the ellipsis is three columns wide.
        line.truncate(max(self.console.width - 3, 1), overflow="ellipsis")
        self.erase()
        self.console.print(line, end="", no_wrap=True)

    def erase(self) -> None:
        """Erase the progress line."""
        if not self.can_rewrite:
            return
        self.stream.write(ERASE_LINE)
        self.stream.flush()

    def table(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[Piece]],
        *,
        flexible: int = -1,
        wraps: bool = False,
    ) -> None:
        """Print columns without borders; the flexible one shrinks first on a narrow screen."""
        from rich.table import Table

        grid = Table(
            box=None,
            pad_edge=False,
            padding=(0, GUTTER, 0, 0),
            show_header=bool(heads),
            header_style="dim",
        )
        rows = list(rows)
        count = len(heads) or (len(rows[0]) if rows else 0)
        widths = [_widest(heads, rows, at) for at in range(count)]
        bends = flexible % max(count, 1)
        others = sum(widths) - widths[bends] + GUTTER * (count - 1) if count else 0
        for at, wanted in enumerate(widths):
            room = max(self.console.width - others, MIN_BENT) if at == bends else wanted
            grid.add_column(
                heads[at] if heads else "",
                no_wrap=not (at == bends and wraps),
                overflow="fold" if at == bends and wraps else "ellipsis",
                width=min(wanted, room),
            )
        for row in rows:
            grid.add_row(*(joined([piece]) for piece in row))
        self._print_unpadded(grid)

    def _print_unpadded(self, grid: Table) -> None:
        """Print without the blanks that Rich fills the last column with: people copy lines."""
        with self.console.capture() as captured:
            self.console.print(grid)
        lines = (line.rstrip() for line in captured.get().splitlines())
        print("\n".join(lines), file=self.stream, flush=True)


def _widest(heads: Sequence[str], rows: list[Sequence[Piece]], at: int) -> int:
    from rich.cells import cell_len

    cells = [printable(row[at][0]) for row in rows]
    return max((cell_len(cell) for cell in (*cells, *heads[at : at + 1])), default=0)


def joined(pieces: Iterable[Piece]) -> Text:
    """The pieces as one Rich text."""
    from rich.text import Text

    line = Text()
    for text, style in pieces:
        line.append(printable(text), style=STYLES[style])
    return line


def state_piece(state: str) -> Piece:
    """A state with its mark, in its colour."""
    return f"{GLYPHS.get(state, '·')} {state}", state if state in STYLES else ""


out: Final = TextStream("stdout")
err: Final = TextStream("stderr")


# --- numbers in words -------------------------------------------------------------------------

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def span(seconds: float) -> str:
    """A duration with its unit, as precise as a person needs it."""
    if seconds < 1:
        return f"{seconds:.3f} s"
    if seconds < 10:  # noqa: PLR2004 - below ten seconds the tenths still matter
        return f"{seconds:.1f} s"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"


def ago(at_ms: int) -> str:
    """How long ago a moment was, roughly."""
    seconds = time.time() - at_ms / 1000
    for unit_s, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return "just now"


def clock(at_ms: int, *, with_ms: bool = False) -> str:
    """A moment on the local clock."""
    text = time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))
    return f"{text}.{at_ms % 1000:03d}" if with_ms else text


def moment(at_ms: int) -> str:
    """A moment with its date and zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at_ms / 1000))


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 job, 2 jobs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
