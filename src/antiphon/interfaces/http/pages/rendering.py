"""How pages are made: Jinja templates, with everything that a person supplies escaped."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

MINUTE_S: Final = 60
HOUR_S: Final = 3600
HERE: Final = Path(__file__).parent
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
BADGES: Final = {
    "succeeded": "ok",
    "running": "run",
    "claimed": "claim",
    "pending": "pend",
    "waiting": "wait",
    "failed": "fail",
    "aborted": "abort",
}
"""The class of a state's badge."""
CONTENT_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_POLICY,
    # With `no-referrer` browsers say `Origin: null` for our own forms, and those would be refused.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def moment(at_ms: int) -> str:
    """A point in time, for a reader anywhere."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03} UTC"


def clock(at_ms: int) -> str:
    """A time of day."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}.{at_ms % 1000:03}"


def span(length_ms: int) -> str:
    """How long something took."""
    seconds = length_ms / 1000
    if seconds < MINUTE_S:
        return f"{seconds:.3f} s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.1f} h"


def about(length_ms: int) -> str:
    """How long something takes, roughly."""
    seconds = max(length_ms // 1000, 0)
    for unit, length_s in (("day", 24 * HOUR_S), ("hour", HOUR_S), ("minute", MINUTE_S)):
        if seconds >= length_s:
            number = round(seconds / length_s)
            return f"{number} {unit}{'s' * (number != 1)}"
    return f"{seconds} s"


def ago(at_ms: int) -> str:
    """How long ago something was."""
    past_s = max(time.time() - at_ms / 1000, 0)
    return f"{past_s:.0f} s ago" if past_s < MINUTE_S else f"{span(int(past_s * 1000))} ago"


def day(at_ms: int) -> str:
    """A point in time to the minute."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%d %b %Y, %H:%M} UTC"


def left(end_s: int, now_s: int) -> str:
    """How long something still lasts."""
    return f"in {about((end_s - now_s) * 1000)}"


def size(count: int) -> str:
    """Bytes, for a reader."""
    for unit, bytes_ in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_:
            return f"{count / bytes_:.1f} {unit}"
    return f"{count} B"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["BADGES"] = BADGES
    filters = (about, ago, clock, day, left, moment, size, span)
    templates.filters |= {one.__name__: one for one in filters}
    return templates


def page(template: str, *, status: int = 200, root: str = "/", **given: Any) -> Response:
    """A page from one of the templates; `root` is where its files are."""
    text = _templates().get_template(template).render(root=root, **given)
    return HTMLResponse(text, status, headers=HEADERS)


def parts(template: str, *, root: str = "/", only: str = "", **given: Any) -> str:
    """The parts of a page that are kept current: its blocks whose names begin with `live_`.

    With `only`, the one of that name.
    """
    found = _templates().get_template(template)
    context = found.new_context({"root": root, **given})
    blocks = (block for name, block in found.blocks.items() if name.startswith(only or "live_"))
    return "".join(piece for block in blocks for piece in block(context))


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (HERE / "static").iterdir()}


def static(name: str) -> Response:
    """A style sheet or the script; nothing else is there."""
    data = _files().get(name)
    if data is None:
        return Response(status_code=404, headers=HEADERS)
    return Response(data, headers={**HEADERS, "Content-Type": TYPES[Path(name).suffix]})
