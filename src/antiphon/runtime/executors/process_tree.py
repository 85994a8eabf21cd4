"""Kills a process together with everything that it started.

A process group is not enough: a process that starts its own session leaves it. So the tree is read
from `/proc`, stopped from the top so that it cannot grow meanwhile, and killed. A root that is a
subreaper (`process_child` is one) also keeps orphans in its tree.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

ROUNDS: Final = 16
"""How often the tree is read again, since a process may have been started meanwhile."""


def end_tree(root: int) -> None:
    """Kill `root`, a child of ours that leads its own group, and everything below it."""
    _send(root, signal.SIGSTOP)
    for _ in range(ROUNDS):
        below = descendants(root)
        if not below:
            break
        for pid in below:
            _send(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)
    _send(root, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Every living process below `root`; none where there is no `/proc` to read."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text(errors="replace")
        except OSError:
            continue
        # The name in parentheses may contain anything; after the last one there are only numbers.
        state, parent = text.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found, front = list[int](), [root]
    while front:
        front = [child for pid in front for child in children.get(pid, ())]
        found += front
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
