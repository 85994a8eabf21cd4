"""What a server says about itself over its system account.

Owns one short-lived connection with system credentials. Only the system account tells whether
JetStream syncs before it acknowledges, which is the difference between a log that survives a
power cut and one that may lose two minutes (spec §3).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Literal

import msgspec
from msgspec import Struct

from antiphon.decoding import UNREADABLE
from antiphon.engines.nats.connection.connection import Connection, Login
from antiphon.errors import AntiphonError

COLLECT_S = 1.0
_QUIET_S = 0.2
_log = logging.getLogger(__name__)


class _Config(Struct, frozen=True):
    sync_always: bool = False


class _Data(Struct, frozen=True):
    config: _Config | None = None
    disabled: bool = False


class _Answer(Struct, frozen=True):
    data: _Data | None = None


_decode = msgspec.json.Decoder(_Answer).decode


async def ask_durability(
    url: str, login: Login, *, tls: ssl.SSLContext | None = None
) -> Literal["always", "interval", "unknown"]:
    """`always` only if every server with JetStream that answers syncs before acknowledging."""
    try:
        connection = await Connection.open(url, login=login, name="antiphon-doctor", tls=tls)
    except AntiphonError as error:
        _log.debug("cannot ask the system account: %s", error)
        return "unknown"
    seen: list[bool] = []
    news = asyncio.Event()

    def on_answer(_subject: bytes, _reply: bytes, payload: bytes, _header: bytes) -> None:
        try:
            data = _decode(payload).data
        except UNREADABLE:
            return
        if data is not None and not data.disabled and data.config is not None:
            seen.append(data.config.sync_always)
            news.set()

    try:
        inbox = f"{connection.inbox}.info"
        connection.listen(inbox, on_answer)
        connection.send(b"PUB $SYS.REQ.SERVER.PING.JSZ %b 0\r\n\r\n" % inbox.encode())
        bound_s = COLLECT_S
        while True:
            news.clear()
            try:
                async with asyncio.timeout(bound_s):
                    await news.wait()
            except TimeoutError:
                break
            bound_s = _QUIET_S
    finally:
        await connection.close()
    if not seen:
        return "unknown"
    return "always" if all(seen) else "interval"
