"""The page that checks a bundle in front of a person: `antiphon verify --open FILE`.

Served on this machine's loopback alone, below a path that nobody can guess. Files that are dropped
on it are checked by this process and are kept in its memory, one at a time.

    GET  /SECRET/             the page, with what was found about the file
    GET  /SECRET/?changed=1   the same after one byte of it was changed
    POST /SECRET/             another file
    GET  /SECRET/static/NAME  style sheets and the script
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from antiphon.guard import Guard, Limits, in_thread
from antiphon.interfaces.http.askers import Known, Secret
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.pages.rendering import HEADERS, page, static
from antiphon.interfaces.http.route import Route
from antiphon.sdk.proofs.bundles import MAX_BUNDLE_BYTES
from antiphon.sdk.proofs.verification import verify_in_steps

if TYPE_CHECKING:
    from starlette.requests import Request

CHECKS: Final = Limits(
    room="verify", of_party=4, in_all=8, request_bytes=64 * 1024, seconds=120.0, work_s=60.0
)
UPLOADS: Final = structs.replace(CHECKS, request_bytes=MAX_BUNDLE_BYTES + 64 * 1024)
"""A form with a bundle."""
ALONE: Final = {"root": ""}
"""The page by itself, at whatever path."""
ROW: Final = 16
"""Bytes in a row of the listing."""


class File(Struct, frozen=True):
    """A file to check."""

    name: str
    data: bytes


class Row(Struct, frozen=True):
    """Sixteen bytes of a listing, around the one that is marked."""

    at: int
    before: str
    marked: str
    after: str
    text_before: str
    text_marked: str
    text_after: str


class Change(Struct, frozen=True, kw_only=True):
    """One changed byte."""

    data: bytes
    at: int
    was: int
    now: int
    rows: list[Row]


class VerifyPage:
    """The page, and the file that it is about."""

    def __init__(self, file: File | None, *, owner: str | None) -> None:
        self._file = file
        self._owner = owner
        self._checking = asyncio.Lock()

    async def show(self, request: Request, *, frame: Mapping[str, Any] = ALONE) -> Response:
        """What was found about the file; `frame` is what the page around it needs."""
        file, given = self._file, dict(frame)
        if file is not None:
            change = changed(file.data) if "changed" in request.query_params else None
            data = file.data if change is None else change.data
            async with self._checking:
                found = await in_thread(
                    lambda turn: verify_in_steps(data, owner=self._owner, turn=turn)
                )
            given |= {"found": found, "change": change}
        return page("verify.html", file=file, owner=self._owner, **given)

    async def take(self, request: Request) -> Response:
        """Another file."""
        async with request.form(max_files=1, max_fields=1) as form:
            upload = form.get("bundle")
            if isinstance(upload, UploadFile):
                self._file = File(upload.filename or "the file", await upload.read())
        return RedirectResponse(request.url.path, 303, headers=HEADERS)


def changed(data: bytes) -> Change:
    """The file with one changed byte: a digit of its later part, where the job's end is."""
    tenth = len(data) // 10
    digits = [at for at in range(6 * tenth, 9 * tenth) if chr(data[at]).isdecimal()]
    at = digits[len(digits) // 2] if digits else len(data) // 2
    was = data[at] if data else 0
    now = ord("0") + (was - ord("0") + 1) % 10 if digits else was ^ 1
    other = data[:at] + bytes([now]) + data[at + 1 :]
    first = max(at // ROW * ROW - ROW, 0)
    rows = [_row(other, start, at) for start in range(first, min(first + 3 * ROW, len(other)), ROW)]
    return Change(data=other, at=at, was=was, now=now, rows=rows)


def _row(data: bytes, start: int, at: int) -> Row:
    part = data[start : start + ROW]
    here = at - start
    if not 0 <= here < len(part):
        here = len(part)
    pieces = (part[:here], part[here : here + 1], part[here + 1 :])
    numbers = [one.hex(" ") for one in pieces]
    texts = ["".join(_shown(byte) for byte in one) for one in pieces]
    return Row(start, *numbers, *texts)


def _shown(byte: int) -> str:
    letter = chr(byte)
    return letter if letter.isascii() and letter.isprintable() else "·"


def make_application(secret: str, file: File | None, *, owner: str | None) -> Door:
    """The page below a path that only this machine's user knows."""
    about, person = VerifyPage(file, owner=owner), Secret(secret)

    async def shown(request: Request, _: Known) -> Response:
        return await about.show(request)

    async def taken(request: Request, _: Known) -> Response:
        return await about.take(request)

    async def styled(request: Request, _: Known) -> Response:
        return static(request.path_params["name"])

    def tell(_: Request, refused: Exception) -> Response:
        status = refused.status_code if isinstance(refused, HTTPException) else 500
        words = refused.detail if isinstance(refused, HTTPException) else "it failed"
        return PlainTextResponse(f"{words}\n", status, headers=HEADERS)

    where = "/{secret}/"
    routes = (
        Route(path=where, answer=shown, asker=person, limits=CHECKS),
        Route(path=where, answer=taken, asker=person, limits=UPLOADS, methods=("POST",)),
        Route(path=f"{where}static/{{name}}", answer=styled, asker=person, limits=CHECKS),
    )
    return Door(routes, Guard(), host="127.0.0.1", tell=tell, is_for_people=True)
