"""Signed requests to one node, a bounded number at a time, and its answers as errors of ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from antiphon.core.bus.http_request import Asked, sign_request
from antiphon.decoding import UNREADABLE
from antiphon.errors import (
    AntiphonError,
    IdTaken,
    LostRace,
    Misconfigured,
    NotPermitted,
    OutcomeUnknown,
    RateLimited,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from httpx2 import AsyncBaseTransport, AsyncClient

    from antiphon.ports import Entropy, Keyring, WallClock

AT_ONCE: Final = 8
"""Requests that do not wait for anything; the node answers few of one party at the same time."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of an answer. A node fills one with about a mebibyte, and the last records of a batch."""
NONCE_BYTES: Final = 18
_OK, _UNKNOWN_KEY, _FORBIDDEN, _CONFLICT, _TOO_MANY, _FAILED = 200, 401, 403, 409, 429, 500
_TIMED_OUT: Final = 408


class _Problem(Struct, frozen=True):
    """What an answer without success says that matters here (RFC 9457)."""

    detail: str = ""
    reason: str = ""
    hint: str = ""


class _Answer(NamedTuple):
    """An answer that was read to its end."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class SignedClient:
    """One key's requests to one node."""

    def __init__(  # noqa: PLR0913 - what a connection is made of
        self,
        url: str,
        mesh: str,
        keyring: Keyring,
        *,
        wall: WallClock,
        entropy: Entropy,
        trust: ssl.SSLContext | None = None,
        transport: AsyncBaseTransport | None = None,
    ) -> None:
        """Nothing is opened yet. `transport` is a test's."""
        self.url = url
        self.key = keyring.did
        self._mesh = mesh
        self._keyring = keyring
        self._wall = wall
        self._entropy = entropy
        self._client = _client(trust, transport)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._sent: set[asyncio.Future[_Answer]] = set()
        self.is_closed = False
        self.is_up = True
        self.reconnects = 0

    async def close(self) -> None:
        """End what is under way; safe twice."""
        if self.is_closed:
            return
        self.is_closed = True
        for sent in self._sent:
            sent.cancel()
        await self._client.aclose()

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        timeout_s: float,
        is_write: bool = False,
        waits: bool = False,
    ) -> bytes:
        """The answer; an error of ours if there is none, or none with success.

        One that is asked to come later is asked again, within the time.
        """
        until_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            left_s = until_s - asyncio.get_running_loop().time()
            if waits:
                answer = await self._answer(Asked(method, target, body), left_s, is_write)
            else:
                async with self._room:
                    answer = await self._answer(Asked(method, target, body), left_s, is_write)
            if answer.status_code == _OK:
                return answer.content
            refusal = _refusal(answer, is_write=is_write)
            left_s = until_s - asyncio.get_running_loop().time()
            if not isinstance(refusal, RateLimited) or refusal.retry_s > left_s:
                raise refusal
            await asyncio.sleep(refusal.retry_s)

    async def _answer(self, asked: Asked, timeout_s: float, is_write: bool) -> _Answer:  # noqa: FBT001 - passed on
        self._require_open()
        sent = asyncio.ensure_future(self._send(asked, max(timeout_s, 0.1), is_write))
        self._sent.add(sent)
        try:
            answer = await sent
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.is_closed and task is not None and not task.cancelling():
                raise Unavailable("the connection was closed") from None
            raise
        except Unavailable:
            self.is_up = False
            raise
        finally:
            self._sent.discard(sent)
        if not self.is_up:
            self.is_up = True
            self.reconnects += 1
        return answer

    def _require_open(self) -> None:
        if self.is_closed:
            raise Unavailable("the connection is closed")

    async def _send(self, asked: Asked, timeout_s: float, is_write: bool) -> _Answer:  # noqa: FBT001 - passed on
        from httpx2 import ConnectError, ConnectTimeout, PoolTimeout, RequestError

        header = sign_request(
            asked,
            (self.key, self._keyring.sign),
            mesh=self._mesh,
            at_ms=self._wall.now_ms(),
            nonce=self._entropy.token(NONCE_BYTES).hex(),
        )
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client.stream(
                    asked.method,
                    self.url + asked.target,
                    content=asked.body,
                    headers={"Authorization": header},
                ) as answer,
            ):
                content = bytearray()
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > MOST_BYTES:
                        told = f"{self.url} answered with more than {MOST_BYTES:,} bytes"
                        raise OutcomeUnknown(told) if is_write else Unavailable(told)
                return _Answer(answer.status_code, answer.headers, bytes(content))
        except (ConnectError, ConnectTimeout, PoolTimeout) as problem:
            raise Unavailable(f"{self.url} cannot be reached: {_words(problem)}") from problem
        except (RequestError, TimeoutError) as problem:
            told = f"{self.url} did not answer: {_words(problem)}"
            raise (OutcomeUnknown(told) if is_write else Unavailable(told)) from problem


def _refusal(answer: _Answer, *, is_write: bool) -> AntiphonError:
    """What an answer says that is no success."""
    try:
        told = msgspec.json.decode(answer.content, type=_Problem)
    except UNREADABLE:
        told = _Problem()
    status, reason, hint = answer.status_code, told.reason, told.hint
    message = told.detail or f"the node answers with status {status}"
    if status == _TOO_MANY:
        after = answer.headers.get("retry-after", "1")
        return RateLimited(message, retry_s=float(after) if after.isdigit() else 1.0)
    if status == _CONFLICT:
        return IdTaken(message) if reason == "id" else LostRace(message)
    if status == _UNKNOWN_KEY or (status == _FORBIDDEN and reason == NotPermitted.reason):
        return NotPermitted(message, hint=hint)
    if status == _TIMED_OUT or status >= _FAILED:
        # Whoever is told that the node is busy, or has no engine, knows that nothing was stored.
        is_certain = reason == "unavailable" or (status == 503 and not reason)  # noqa: PLR2004
        kind = OutcomeUnknown if is_write and not is_certain else Unavailable
        return kind(message, hint=hint)
    return Rejected(message, reason=reason or "http", hint=hint)


def _words(problem: Exception) -> str:
    return str(problem) or type(problem).__name__


def _client(trust: ssl.SSLContext | None, transport: AsyncBaseTransport | None) -> AsyncClient:
    try:
        from httpx2 import AsyncClient, Limits
    except ModuleNotFoundError:
        raise Misconfigured(
            "the packages of the HTTP interface are not installed",
            hint="pip install 'antiphon[http]'",
        ) from None
    how: dict[str, Any] = {"timeout": None, "limits": Limits(max_connections=None)}
    if transport is not None:
        return AsyncClient(transport=transport, **how)
    return AsyncClient(verify=trust if trust is not None else True, trust_env=False, **how)
