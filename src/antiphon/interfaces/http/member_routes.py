"""The paths for members that sign each request with their own key (docs/reference/wire.md).

    GET  /v1/offers?kind=KIND&wait=SECONDS   jobs that the asker could claim; waits for one
    GET  /v1/lanes/KIND/JOB?after=SEQUENCE   a job and the records about it
    POST /v1/records                         stores a record that the asker signed
    POST /v1/log                             reads of the log, for `Mesh.connect`

There is no token: `Authorization: Antiphon …` is a signature over method, target and body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from antiphon.errors import (
    Conflict,
    IdTaken,
    NotPermitted,
    OutcomeUnknown,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.interfaces.http.answers import Refused, json_of, too_many
from antiphon.interfaces.http.askers import Signed
from antiphon.interfaces.http.route import REQUESTS, WAITS, Known, Route
from antiphon.sdk.http.node_api import Place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from antiphon.interfaces.http.route import Answer
    from antiphon.sdk.http.node_api import LogService, Member, MemberDoor

MAX_RECORD_BYTES: Final = 320 * 1024
"""An op has at most 256 KiB; its signature block is small."""
DIGITS: Final = 15
OFFERS: Final = structs.replace(WAITS, room="http offers", of_party=8)
LOG: Final = structs.replace(
    WAITS, room="http log", of_party=16, request_bytes=MAX_RECORD_BYTES, work_s=2.0
)
RECORDS: Final = structs.replace(REQUESTS, room="http records", request_bytes=MAX_RECORD_BYTES)
_STATUS: Final = {
    "replay": 401,
    **dict.fromkeys(("author", "command", "no_chain", "policy", "quarantined", "revoked"), 403),
    "no_job": 404,
    "erased": 410,
}


class MemberRoutes:
    """The answers."""

    def __init__(self, door: MemberDoor, log: LogService) -> None:
        self._door = door
        self._log = log

    def routes(self) -> list[Route]:
        """The paths."""
        signed = Signed(self._door)
        return [
            Route(path="/v1/offers", answer=self._once(self.offers), asker=signed, limits=OFFERS),
            Route(
                path="/v1/lanes/{kind}/{job}",
                answer=self._once(self.lane),
                asker=signed,
                limits=REQUESTS,
            ),
            Route(
                path="/v1/records",
                answer=self._once(self.record),
                asker=signed,
                limits=RECORDS,
                methods=("POST",),
            ),
            Route(
                path="/v1/log",
                answer=self._once(self.log),
                asker=signed,
                limits=LOG,
                methods=("POST",),
            ),
        ]

    def _once(self, answer: Callable[[Request, Member], Awaitable[Any]]) -> Answer:
        """The same signed request is answered once."""

        async def answering(request: Request, known: Known) -> Response:
            member = known.member
            try:
                self._door.take(member)
                return json_of(await answer(request, member))
            except RateLimited as limited:
                raise too_many(limited.retry_s, limited.message, limited.hint) from None
            except IdTaken as taken:
                raise Refused(409, taken.message, "id", "send it with another id") from None
            except Conflict as lost:
                raise Refused(409, lost.message, "prev", "read the lane, and sign again") from None
            except NotPermitted as outside:
                raise Refused(403, outside.message, outside.reason, outside.hint) from None
            except Unavailable as away:
                reason = "unknown" if isinstance(away, OutcomeUnknown) else "unavailable"
                raise Refused(503, away.message, reason, away.hint) from None
            except Rejected as refused:
                status = _STATUS.get(refused.reason, 422)
                raise Refused(status, refused.message, refused.reason, refused.hint) from None

        return answering

    async def offers(self, request: Request, member: Member) -> Any:
        """Jobs to claim."""
        kind = request.query_params.get("kind", "")
        if not kind:
            raise Refused(400, "say of which kind", "malformed", "/v1/offers?kind=KIND")
        wait_s = _number(request, "wait")
        return {"items": await self._door.offers(member, kind, wait_s)}

    async def lane(self, request: Request, member: Member) -> Any:
        """A job and its records."""
        where = request.path_params
        return await self._door.lane(member, where["kind"], where["job"], _number(request, "after"))

    async def record(self, request: Request, member: Member) -> Any:
        """Store a record; where it belongs, the record says, and the query may say."""
        asked = request.query_params
        place = None
        if asked:
            place = Place(asked.get("subject", ""), asked.get("id", ""), _number(request, "prev"))
        return await self._door.store(member, await request.body(), place)

    async def log(self, request: Request, member: Member) -> Any:
        """A read of the log."""
        return await self._log.answer(member.party, member.scope, await request.body())


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        raise Refused(400, f"{name} is a whole number", "malformed")
    return int(text)
