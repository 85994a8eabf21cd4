"""Messages from a node outside the engine, over HTTP (docs/reference/http.md).

    async with HttpSender("https://mesh.example:7464", mesh=MESH, home=".outside") as sender:
        await sender.send("did:key:…/reviewer", {"branch": "fix-7"})

A message is on this machine's disk before it is delivered: one POST, then three more after half a
second, one and two. After that it stays on disk, and is tried again while the block runs, at least
once a minute, and by the next process that opens the same directory. The receiver stores a message
once, however often it is delivered.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from antiphon.core.messages import envelope as envelopes
from antiphon.core.record.ids import DEFAULT_AGENT, agent_address, check_agent, split_address
from antiphon.core.record.subjects import check_kind
from antiphon.decoding import UNREADABLE
from antiphon.engines.http.node_url import check_url
from antiphon.errors import InboxFull, Misconfigured, Rejected, Unavailable
from antiphon.files import replace_file
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.retries import retrying
from antiphon.sdk.messages.message_body import checked_body, encoded_payload

if TYPE_CHECKING:
    from typing import Self

    from httpx2 import AsyncClient, Response

    from antiphon.runtime.identity.key_files import HeldKey, SeedKeyring

PATH: Final = "/v1/a2a/deliver"
KEY: Final = "outside"
"""The name of the key in the state directory."""
MAX_WAITING: Final = 10_000
"""Messages on disk; then `send` fails until some are delivered."""
AGAIN_S: Final = 30.0
"""How often what is left on disk is tried again, with jitter of as much."""
ANSWER_S: Final = 10.0
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_OK: Final = 200


class Delivery(Struct, frozen=True):
    """A message that is on disk at least."""

    id: str
    is_delivered: bool
    problem: str = ""
    """Why it is not delivered yet."""


class HttpSender:
    """The messages of one agent, delivered to one node's HTTP interface."""

    def __init__(
        self, url: str, *, mesh: str, home: Path | str, agent: str = DEFAULT_AGENT
    ) -> None:
        """Nothing is opened or sent yet. `home` keeps the key and what is not delivered."""
        self._url = check_url(url) + PATH
        self._mesh = mesh
        self._agent = check_agent(agent)
        self._home = StateDirectory(Path(home))
        self._entropy = SystemEntropy()
        self._held: HeldKey | None = None
        self._client: AsyncClient | None = None
        self._again: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        client = _client()
        self._home.make()
        self._held = self._home.key(KEY, self._entropy)
        self._client = client  # it has opened nothing yet
        self._spool.mkdir(exist_ok=True, mode=0o700)
        self._again = asyncio.create_task(self._keep_trying())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._again is not None:
            self._again.cancel()
            with suppress(asyncio.CancelledError):
                await self._again
        if self._client is not None:
            await self._client.aclose()
        if self._held is not None:
            self._held.release()
        self._client = self._held = None

    @property
    def _keyring(self) -> SeedKeyring:
        if self._held is None:
            raise Misconfigured("this sender is not open", hint="use it inside 'async with'")
        return self._held.keyring

    @property
    def did(self) -> str:
        """The key that signs: the owner grants it `message` with `antiphon delegate`."""
        return self._keyring.did

    @property
    def address(self) -> str:
        """Who the messages are from."""
        return agent_address(self.did, self._agent)

    @property
    def waiting(self) -> int:
        """Messages on disk that are not delivered yet."""
        return len(self._files())

    async def send(
        self,
        to: str,
        payload: object = None,
        *,
        kind: str = envelopes.DEFAULT_KIND,
        thread: str = "",
        key: str = "",
    ) -> Delivery:
        """Store a message on disk and deliver it; `Rejected` if the mesh does not take it."""
        if self.waiting >= MAX_WAITING:
            raise InboxFull(
                f"{MAX_WAITING:,} messages wait for their delivery in {self._spool}",
                hint=f"check that {self._url} answers",
            )
        node, agent = split_address(to)
        body = checked_body(
            node=node,
            agent=agent,
            sender=self._agent,
            kind=check_kind(kind),
            key=key or self._entropy.token(12).hex(),
            thread=thread,
            payload=Raw(encoded_payload(payload)),
        )
        id_ = envelopes.message_id(self.address, body.to, body.key)
        file = self._spool / f"{time.time_ns():020d}-{id_}.json"
        replace_file(file, msgspec.json.encode(body))
        try:
            await retrying(lambda: self._post(body), self._entropy)
        except Unavailable as problem:
            return Delivery(id_, is_delivered=False, problem=problem.message)
        except Rejected:
            file.unlink(missing_ok=True)
            raise
        file.unlink(missing_ok=True)
        return Delivery(id_, is_delivered=True)

    async def flush(self) -> int:
        """Deliver what is on disk, oldest first, until there is no answer; how many were.

        What is refused is moved to the folder `refused`, for people to look at.
        """
        delivered = 0
        for file in self._files():
            try:
                body = msgspec.json.decode(file.read_bytes(), type=envelopes.MessageBody)
                await self._post(body)
            except FileNotFoundError:
                continue  # delivered meanwhile
            except Unavailable:
                break
            except (*UNREADABLE, Rejected):
                refused = self._spool / "refused"
                refused.mkdir(exist_ok=True, mode=0o700)
                with suppress(FileNotFoundError):  # `send` was told the same
                    file.replace(refused / file.name)
                continue
            file.unlink(missing_ok=True)
            delivered += 1
        return delivered

    async def _keep_trying(self) -> None:
        while True:
            await self.flush()
            await asyncio.sleep(AGAIN_S * (1 + self._entropy.random()))

    async def _post(self, body: envelopes.MessageBody) -> None:
        """One try. Signed anew each time: what was signed long ago is not accepted."""
        from httpx2 import RequestError

        keyring, client = self._keyring, self._client
        if client is None:
            raise Unavailable("this sender is closed")
        signer = (keyring.did, keyring.sign)
        signed = envelopes.sign(body, signer, mesh=self._mesh, at_ms=time.time_ns() // 1_000_000)
        try:
            answer = await client.post(self._url, content=signed)
        except RequestError as problem:
            reason = str(problem) or type(problem).__name__
            raise Unavailable(f"{self._url} does not answer: {reason}") from problem
        if answer.status_code != _OK:
            raise _refusal(answer)

    @property
    def _spool(self) -> Path:
        return self._home.path / "undelivered"

    def _files(self) -> list[Path]:
        return sorted(self._spool.glob("*.json"))


class _Problem(msgspec.Struct, frozen=True):
    """What an answer without success says that matters here (RFC 9457)."""

    detail: str = ""
    reason: str = ""
    hint: str = ""


def _refusal(answer: Response) -> Unavailable | Rejected:
    """What an answer says that is no success; whether it may be different later."""
    try:
        told = msgspec.json.decode(answer.content, type=_Problem)
    except UNREADABLE:
        told = _Problem()
    message, hint = told.detail or f"the answer has status {answer.status_code}", told.hint
    if answer.status_code == _TOO_MANY or answer.status_code >= _SERVER_ERROR:
        return Unavailable(message, hint=hint)
    return Rejected(message, reason=told.reason or "http", hint=hint)


def _client() -> AsyncClient:
    try:
        from httpx2 import AsyncClient
    except ModuleNotFoundError:
        raise Misconfigured(
            "the packages of the HTTP interface are not installed",
            hint="pip install 'antiphon[http]'",
        ) from None
    return AsyncClient(timeout=ANSWER_S, headers={"Content-Type": "application/json"})


__all__ = ["Delivery", "HttpSender"]
