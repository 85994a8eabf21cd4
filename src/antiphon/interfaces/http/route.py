"""A route: a path with everything that the door has to know before anybody is answered there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from antiphon.guard import Limits
from antiphon.interfaces.http.answers import HEADERS
from antiphon.interfaces.http.askers import Asker, Known

if TYPE_CHECKING:
    from collections.abc import Mapping

BODY_BYTES: Final = 64 * 1024
EVENTS: Final = "text/event-stream"
REQUESTS: Final = Limits(
    room="http", of_party=24, in_all=32, request_bytes=BODY_BYTES, seconds=10.0, work_s=1.0
)
"""What is answered at once, its body included."""
STREAMS: Final = Limits(
    room="http streams", of_party=8, in_all=64, request_bytes=BODY_BYTES, seconds=3_600.0
)
"""What may last: events and downloads. A client connects again and goes on where it was."""
WAITS: Final = Limits(
    room="http waits", of_party=24, in_all=64, request_bytes=BODY_BYTES, seconds=40.0
)
"""Answers that wait for something to happen."""


Answer: TypeAlias = Callable[[Request, Known], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path. Who may ask and how much it may take have no defaults: a route without starts not.

    A probe is answered also where its asker has used up its share, and whatever host it names.
    """

    path: str
    answer: Answer
    asker: Asker
    limits: Limits
    methods: tuple[str, ...] = ("GET",)
    is_probe: bool = False

    def matcher(self) -> Callable[[str], Mapping[str, Any] | None]:
        """What finds the parts of a path; None: it is another one."""
        pattern, _, convertors = compile_path(self.path)

        def matched(path: str) -> Mapping[str, Any] | None:
            found = pattern.match(path)
            if found is None:
                return None
            return {
                name: convertors[name].convert(text) for name, text in found.groupdict().items()
            }

        return matched


class Streamed(Response):
    """An answer whose pieces are made one after another, each in its asker's turn."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        status: int = 200,
        *,
        headers: Mapping[str, str] = HEADERS,
        media_type: str,
    ) -> None:
        super().__init__(b"", status, headers, media_type)
        if "content-length" not in {name.lower() for name in headers}:
            del self.headers["content-length"]
        self.pieces = pieces


__all__ = ["EVENTS", "REQUESTS", "STREAMS", "WAITS", "Known", "Limits", "Route", "Streamed"]
