"""Draws sampled call stacks as a flame graph: an SVG without scripts, fonts or links.

A box is a function, as wide as its share of the samples; what it called stands on it. Narrow boxes
are left out, so the file stays small. File names begin at their package: no path of a machine.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from html import escape
from typing import Final

from msgspec import Struct, field

WIDTH: Final = 1200
ROW: Final = 16
LEAST_SHARE: Final = 0.002
LETTER: Final = 6.6
_FRAME: Final = re.compile(r"(?P<name>.*) \((?P<file>[^()]*?)(?::\d+)?\)\Z")
_BEFORE_PACKAGE: Final = re.compile(r".*(?:site-packages|python3\.\d+|/src|/bin)/|^/.*/")


class Node(Struct):
    """A function as called by those below it."""

    samples: int = 0
    calls: dict[str, Node] = field(default_factory=dict)


def frame_name(frame: str) -> str:
    """`function (package/module.py)`, without line and machine."""
    found = _FRAME.match(frame.strip())
    if found is None:
        return frame.strip().rpartition("/")[2]
    file = _BEFORE_PACKAGE.sub("", found["file"])
    return f"{found['name']} ({file})"


def tree(lines: Iterable[str]) -> Node:
    """From collapsed stacks: frames joined by `;`, a space, the number of samples."""
    root = Node()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if not stack:
            continue
        root.samples += int(count)
        node = root
        for frame in map(frame_name, stack.split(";")):
            node = node.calls.setdefault(frame, Node())
            node.samples += int(count)
    return root


def svg(root: Node, title: str) -> str:
    """The picture."""
    boxes: list[str] = []
    deepest = _draw(root, root.samples, 0.0, 0, boxes)
    height = (deepest + 3) * ROW
    flipped = "".join(boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="monospace" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fffdf8"/>\n'
        f'<text x="6" y="16" font-size="13">{escape(title)}</text>\n'
        f'<g transform="translate(0 {2 * ROW})">\n{flipped}</g>\n</svg>\n'
    )


def _draw(node: Node, total: int, left: float, depth: int, boxes: list[str]) -> int:
    """Draw what a node calls; the number of rows that this took, from the top."""
    deepest = depth
    for name, called in sorted(node.calls.items()):
        share = called.samples / total
        width = share * WIDTH
        if share >= LEAST_SHARE:
            boxes.append(_box(name, share, left, depth))
            deepest = max(deepest, _draw(called, total, left, depth + 1, boxes))
        left += width
    return deepest


def _box(name: str, share: float, left: float, depth: int) -> str:
    width = share * WIDTH
    hue = zlib.crc32(name.partition("(")[2].encode()) % 360
    room = int(width / LETTER) - 1
    label = name if len(name) <= room else name.partition(" (")[0][: max(room, 0)]
    shown = (
        f'<text x="{left + 2:.1f}" y="{depth * ROW + 12}">{escape(label)}</text>'
        if room > 3
        else ""
    )
    return (
        f"<g><title>{escape(name)}: {share:.1%}</title>"
        f'<rect x="{left:.1f}" y="{depth * ROW}" width="{max(width - 0.5, 0.3):.1f}"'
        f' height="{ROW - 1}" fill="hsl({hue} 55% 78%)"/>{shown}</g>\n'
    )
