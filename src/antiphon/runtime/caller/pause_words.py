"""A pause in words: which jobs nobody may begin, since when, why, and what ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.mesh.ops import paused_words
from antiphon.core.tempo.time_text import time_text

if TYPE_CHECKING:
    from antiphon.core.authority.control import Pause
    from antiphon.runtime.caller.holdings import Holdings


def described(pause: Pause, held: Holdings) -> str:
    """Which jobs are paused since when, by whom, and why."""
    what = paused_words(pause.kind, pause.label, pause.plan)
    since = f"since {time_text(pause.since_ms)}, by {held.called(pause.by)}"
    return f"{what} are paused {since}" + (f": {pause.reason}" if pause.reason else "")


def resumed_by(pause: Pause) -> str:
    """The command that ends a pause."""
    words = [pause.kind] if pause.kind else []
    words += [f"--label {pause.label}"] if pause.label else []
    words += [f"--plan {pause.plan}"] if pause.plan else []
    return f"antiphon resume {' '.join(words) or '--all'}"
