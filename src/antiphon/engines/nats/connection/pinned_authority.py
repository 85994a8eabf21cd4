"""A server's certificate authority, known by its digest: for a machine that joins.

The server shows the authority's certificate behind its own. Nothing is sent to it here, and nothing
that it says is believed, except the one certificate that has the digest. Whether the server is
trusted is decided afterwards, in a connection of its own that trusts this authority alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from antiphon.engines.nats.connection.server_errors import explain
from antiphon.errors import Misconfigured, Unavailable

WITHIN_S = 5.0
_MAX_INFO_BYTES = 64 * 1024


async def pinned_authority(url: str, pin: str) -> str:
    """The certificate with this SHA-256 digest that the server at `url` shows, as PEM.

    `Unavailable` if no server answers, `Misconfigured` if it shows no such certificate.
    """
    try:
        async with asyncio.timeout(WITHIN_S):
            chain = await _chain(url)
    except (OSError, TimeoutError) as error:
        raise explain(url, error, is_signed=True, expires_s=None, has_tls=True) from error
    for certificate in chain:
        if hashlib.sha256(certificate).hexdigest() == pin:
            return ssl.DER_cert_to_PEM_cert(certificate)
    raise Misconfigured(
        f"the server at {url} is not the one that this ticket is for: nothing was sent to it",
        hint="is that address the mesh's? ask its owner for a new ticket",
    )


async def _chain(url: str) -> list[bytes]:
    """The certificates that a server shows, unchecked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        where.hostname, where.port, limit=_MAX_INFO_BYTES
    )
    try:
        await _info(reader)
        await writer.start_tls(context, server_hostname=where.hostname)
        return shown_chain(writer.get_extra_info("ssl_object"))
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _info(reader: asyncio.StreamReader) -> None:
    """Read a server's first line, after which it expects TLS."""
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("the connection was closed") from error
    except asyncio.LimitOverrunError as error:
        raise Unavailable("what answers there is no NATS server") from error
    if not line.startswith(b"INFO "):
        raise Unavailable("what answers there is no NATS server")


def shown_chain(secured: Any) -> list[bytes]:
    """The certificates that the other side of a TLS connection showed, as DER, unchecked."""
    if hasattr(secured, "get_unverified_chain"):  # from Python 3.13 on
        return list(secured.get_unverified_chain() or ())
    chain = secured._sslobj.get_unverified_chain() or ()  # noqa: SLF001 - no public way before that
    return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in chain]
