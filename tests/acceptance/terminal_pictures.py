"""The pictures of terminals in docs: typed again and drawn anew by this module.

    python -m tests.acceptance.terminal_pictures      draws them all, in docs/

`test_failing_tasks` types the same and compares: a picture shows what the program prints.
"""

import html
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.acceptance.shell import Shell
from tests.patience import PATIENCE_S

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "pictures"
COLUMNS = 100

SHOP = """\
from antiphon import Mesh

mesh = Mesh.open()
PRICES = {"coffee": 3}


def price(item: str) -> int:
    print("looking up", item)
    return PRICES[item]


@mesh.task("shop.loop", attempts=1, keep_output=True)
async def in_loop(item: str, count: int) -> int:
    return price(item) * count


@mesh.task("shop.order", attempts=1, keep_output=True)
def order(item: str, count: int) -> int:
    return price(item) * count


@mesh.task("shop.process", attempts=1, keep_output=True, run_in="process")
def in_process(item: str, count: int) -> int:
    return price(item) * count
"""
BUY = """\
import asyncio

from shop import mesh, order


async def main():
    async with mesh:
        for item in ("coffee", "tea"):
            await (await order.submit(item, 3)).result()


asyncio.run(main())
"""


class Typed(NamedTuple):
    """What somebody types, and what the terminal shows then."""

    line: str
    seen: str


Picture = list[Typed]


class Terminal:
    """Types commands in a shell's directory, and remembers what was seen."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.picture: Picture = []

    def type(self, line: str) -> str:
        """Type a line of `antiphon`."""
        seen = self._shell.on_screen(*shlex.split(line)[1:], columns=COLUMNS)
        return self.add(line, seen)

    def add(self, line: str, seen: str) -> str:
        """Take what was seen elsewhere."""
        self.picture.append(Typed(line, seen))
        return STYLED.sub("", seen)


@contextmanager
def shop(directory: Path) -> Iterator[Shell]:
    """A mesh with the examples of `dev`, and a module of tasks of one's own."""
    (directory / "shop.py").write_text(SHOP)
    (directory / "buy.py").write_text(BUY)
    shell = Shell(directory, COLORTERM="truecolor")
    del shell.env["NO_COLOR"]
    with shell.dev():
        yield shell


def help_page(shell: Shell) -> Picture:
    """Every command, under its heading."""
    terminal = Terminal(shell)
    terminal.type("antiphon --help")
    return terminal.picture


def failure(shell: Shell) -> dict[str, Picture]:
    """A task that fails: on its worker's terminal, on its caller's, and what `show` tells."""
    worker, caller, shown = Terminal(shell), Terminal(shell), Terminal(shell)

    def buy() -> None:
        done = subprocess.run(
            [sys.executable, "buy.py"],
            cwd=shell.directory,
            env=shell.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        last = done.stderr.splitlines()[-8:]
        caller.add("python buy.py 2>&1 | tail -n 8", "\n".join(last))
        job = _id_in(caller.picture[0].seen)
        shown.type(f"antiphon show {job}")
        shown.type(f"antiphon get {job} output -o -")

    seen = shell.on_screen(
        "worker", "shop", columns=COLUMNS, seeing=" on mesh ", then=buy, ends=True
    )
    worker.add("antiphon worker shop", seen)
    return {
        "failure-worker": worker.picture,
        "failure-caller": caller.picture,
        "failure-show": shown.picture,
    }


def demonstration(shell: Shell) -> Picture:
    """What `antiphon demo` shows."""
    terminal = Terminal(shell)
    terminal.type("antiphon demo")
    return terminal.picture


def all_pictures(shell: Shell) -> dict[str, Picture]:
    """Every picture, by its file's name."""
    return {"help": help_page(shell), **failure(shell)}


def _id_in(text: str) -> str:
    found = re.search(r"job ([0-9a-f]{8})", text)
    assert found is not None, text
    return found[1]


# --- drawing and comparing --------------------------------------------------------------------

STYLED = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
ERASED = re.compile(r"^.*\r\x1b\[2K", re.MULTILINE)
THEME = TerminalTheme(
    (18, 20, 24),
    (222, 224, 228),
    [
        (18, 20, 24),
        (217, 112, 95),
        (127, 184, 148),
        (224, 177, 90),
        (143, 179, 217),
        (201, 160, 220),
        (120, 190, 200),
        (222, 224, 228),
    ],
)
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
    }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})"
       clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""  # Rich's own fetches fonts from a server.


def svg_of(name: str, picture: Picture) -> str:
    """A terminal with what was typed and seen."""
    console = Console(record=True, width=COLUMNS, file=_Nowhere(), color_system="truecolor")
    for typed in picture:
        console.print(Text("$ ", style="dim").append(typed.line, style="not dim bold"))
        seen = ERASED.sub("", typed.seen.replace("\r\n", "\n")).rstrip()
        console.print(Text.from_ansi(seen))
    return console.export_svg(
        title="antiphon", theme=THEME, code_format=FORMAT, unique_id=f"antiphon-{name}"
    )


MOVING = "demo"
"""The picture whose lines appear when they were printed."""


def moving(svg: str) -> str:
    """The same, with each line at the time that it begins with, in seconds."""
    at, rules = 0.0, []
    for number, line in enumerate(_lines_of(svg)):
        if told := re.match(r"\s*(\d+\.\d)\s+s\s", line):
            at = float(told[1])
        rules.append(f'text[clip-path$="-line-{number})"] {{ animation-delay: {at}s; }}')
    still = "@media (prefers-reduced-motion: reduce) { text[clip-path] { animation: none; } }"
    appear = "@keyframes appear { from { opacity: 0; } }"
    all_lines = "text[clip-path] { animation: appear 0.2s backwards; }"
    style = "\n    ".join([appear, all_lines, *rules, still])
    return svg.replace("</style>", f"{style}\n    </style>", 1)


class _Nowhere:
    """A stream that forgets."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


CELL = 12.2
"""The width of a letter, as Rich draws it."""
TEXT = re.compile(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')


def words_of_svg(svg: str) -> str:
    """The words of a picture, without what is another in each run."""
    return timeless("\n".join(_lines_of(svg)))


def _lines_of(svg: str) -> list[str]:
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in TEXT.findall(svg):
        lines.setdefault(float(y), []).append((float(x), html.unescape(text)))
    whole = []
    for _, line in sorted(lines.items()):
        row = ""
        for x, text in sorted(line):
            row = row.ljust(round(x / CELL)) + text
        whole.append(row)
    return whole


CHANGING = (
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z| \+0000)", "TIME"),
    (r"\d\d:\d\d:\d\d(\.\d{3})?", "TIME"),
    (r"seconds=[\d.]+", "seconds=N"),
    (r"[+-]?\d[\d.,]* (ms|s|min|h)\b", "SPAN"),
    (r"\bjust now", "SPAN ago"),
    (r"TIME SPAN ✓ \S+ renewed the lease for SPAN", ""),  # on a slow machine
    (r"\b[0-9a-f]{8}\b", "JOB"),
    (r"mesh \w{16}\b", "mesh ID"),
    (r"\b(?!KeyError)(?=\w*[A-Z0-9])[1-9A-HJ-NP-Za-km-z]{8}\b", "NODE"),
    # A node that does not answer at once is shown by its id, without a name.
    (r"who( \S+ is NODE,?)+", ""),
    (r"\b(client|worker)-\d+", "NODE"),
)


def timeless(text: str) -> str:
    """Words without times, durations and ids, however the lines are broken."""
    text = " ".join(text.split())
    for pattern, word in CHANGING:
        text = " ".join(re.sub(pattern, word, text).split())
    return text


def main() -> None:
    """Draw every picture."""
    with tempfile.TemporaryDirectory() as folder, shop(Path(folder)) as shell:
        pictures = all_pictures(shell)
        pictures[MOVING] = demonstration(shell)
    for name, picture in pictures.items():
        svg = svg_of(name, picture)
        (PICTURES / f"{name}.svg").write_text(moving(svg) if name == MOVING else svg)
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
