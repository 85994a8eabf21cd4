"""Answers: JSON, one word, and what is wrong as `application/problem+json` (RFC 9457).

The type of a problem is a path that ends with its reason, such as `/v1/problems/late`. Reasons that
the log gives are its verdicts.
"""

from __future__ import annotations

import math
import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from antiphon.decoding import UNREADABLE
from antiphon.errors import (
    AntiphonError,
    Conflict,
    InboxFull,
    Misconfigured,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.sdk.http.models import Problem
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from starlette.requests import Request

    from antiphon.guard import Who

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PROBLEM: Final = "application/problem+json"
_BY_REASON: Final = {
    "not_owner": 403,
    "role": 403,
    "project": 403,
    "own_content": 403,
    "not_readable": 403,
    "command": 403,
    "policy": 403,
    "no_chain": 403,
    "revoked": 403,
    "chain_expired": 403,
    "quarantined": 403,
    "no_job": 404,
    "no_node": 404,
    "question": 404,
    "self": 403,
    "own_key": 403,
    "finished": 409,
    "already": 409,
    "no_output": 404,
    "no_proof": 404,
    "erased": 410,
    "not_ended": 409,
    "not_sealed": 409,
    "ambiguous": 409,
    "cursor": 400,
    "malformed": 400,
    "text": 400,
    "time": 400,
}
_BY_KIND: Final = (
    (Misconfigured, 400),
    (Rejected, 422),
    (Conflict, 409),
    (InboxFull, 507),
    (RateLimited, 429),
    (Unavailable, 503),
)

_log = LazyLogger(__name__)


class Refused(HTTPException):
    """An answer without success: what is wrong, in a word for programs and a sentence."""

    def __init__(
        self, status: int, error: str, reason: str, hint: str = "", who: Who | None = None
    ) -> None:
        """`who` asked, if something showed it."""
        challenge = {"WWW-Authenticate": "Bearer"} if status == 401 else None  # noqa: PLR2004
        super().__init__(status, error, challenge)
        self.reason = reason
        self.hint = hint
        self.who = who


def too_many(retry_s: float, error: str, hint: str = "", who: Who | None = None) -> Refused:
    """Somebody asks too often; when to ask again."""
    refusal = Refused(429, error, "rate", hint, who)
    refusal.headers = {"Retry-After": str(math.ceil(retry_s))}
    return refusal


def word(text: str, status: int = 200) -> Response:
    """One line of text."""
    return PlainTextResponse(f"{text}\n", status, headers=HEADERS)


def json_of(value: Any, status: int = 200) -> Response:
    """Anything that msgspec can encode."""
    text = msgspec.json.encode(value) + b"\n"
    return Response(text, status, headers=HEADERS, media_type="application/json")


def problem(status: int, *, detail: str = "", reason: str = "", hint: str = "") -> Response:
    """What is wrong."""
    phrase = HTTPStatus(status).phrase
    said = Problem(
        type=f"/v1/problems/{reason}" if reason else "about:blank",
        title=phrase,
        status=status,
        detail=detail,
        reason=reason,
        hint=hint,
    )
    text = msgspec.json.encode(said) + b"\n"
    return Response(text, status, headers=HEADERS, media_type=PROBLEM)


def fields_of(body: bytes) -> dict[str, Any]:
    """A body that is a JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE:
        raise Refused(400, "the body is not a JSON object", "malformed") from None


def tell_refused(_: Request, refused: Exception) -> Response:
    """A refusal of ours, or of Starlette: no such path, no such method."""
    if not isinstance(refused, HTTPException):
        return problem(500)
    said = {}
    if isinstance(refused, Refused):
        said = {"detail": refused.detail, "reason": refused.reason, "hint": refused.hint}
    answer = problem(refused.status_code, **said)
    answer.headers.update(refused.headers or {})
    return answer


def tell_failed(_: Request, failed: Exception) -> Response:
    """An error of ours: the engine does not answer, somebody else was first, it is not allowed."""
    if not isinstance(failed, AntiphonError):
        raise failed
    status = next((code for kind, code in _BY_KIND if isinstance(failed, kind)), 500)
    reason = failed.reason if isinstance(failed, Rejected) else ""
    status = _BY_REASON.get(reason, status)
    return problem(status, detail=failed.message, reason=reason, hint=failed.hint)


def tell_bug(request: Request, bug: Exception) -> Response:
    """Say that it is no fault of the client's."""
    log_bug(request, bug)
    return problem(500, detail="internal error")


def log_bug(request: Request, bug: Exception) -> None:
    """Log where it happened, and nothing that the client sent."""
    frames = traceback.extract_tb(bug.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    _log.error(
        "http_request_failed",
        path=request.scope["path"],
        error=type(bug).__name__,
        where=where,
    )
