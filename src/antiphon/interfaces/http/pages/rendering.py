"""How pages are made: Jinja templates, with everything that a person supplies escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

HERE: Final = Path(__file__).parent
TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
CONTENT_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def moment(at_ms: int) -> str:
    """A point in time, for a reader anywhere."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03} UTC"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["moment"] = moment
    return templates


def page(template: str, *, status: int = 200, **given: Any) -> Response:
    """A page from one of the templates."""
    text = _templates().get_template(template).render(**given)
    return HTMLResponse(text, status, headers=HEADERS)


def static(name: str) -> Response:
    """A style sheet or the script; nothing else is there."""
    path = HERE / "static" / name
    if path.parent != HERE / "static" or not path.is_file():
        return Response(status_code=404, headers=HEADERS)
    return Response(path.read_bytes(), headers={**HEADERS, "Content-Type": TYPES[path.suffix]})
