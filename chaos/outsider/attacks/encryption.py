"""What the outsider could learn from others' logins.

On a connection that is not encrypted, or by posing as the mesh's server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from antiphon.engines.nats import Login, NatsEngine, UserKey, client_context
from antiphon.engines.nats.server.certificate_authority import Authority
from antiphon.errors import AntiphonError
from chaos.outsider.attacks.logins import part
from chaos.outsider.attempt import Attempt, Outcome
from chaos.outsider.target import Breach, TargetMesh


async def _in_the_clear(target: TargetMesh) -> Outcome:
    """Log in without encryption, with a login that is good."""
    access = target.contractor.access()
    address = target.contractor.mesh().engine.removeprefix("nats://")
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        if not info.get("tls_required"):
            raise Breach("the server does not ask for encryption")
        key = UserKey.from_seed(access.user_seed)
        told = {
            "verbose": True,
            "jwt": access.jwt,
            "sig": part(key.sign(info.get("nonce", "").encode())),
        }
        writer.write(b"CONNECT %b\r\nPING\r\n" % json.dumps(told).encode())
        with suppress(ConnectionError):
            said = await asyncio.wait_for(reader.read(4096), 10)
            if b"PONG" in said or b"+OK" in said:
                raise Breach("the server took a login in the clear")
    finally:
        writer.close()
    return Outcome("server", "hung up")


def _posing(name: str, *, encrypts: bool) -> Attempt:
    """A server of the outsider's, at the address where the victim looks for its mesh."""

    async def act(target: TargetMesh) -> Outcome:
        said = bytearray()
        context = _foreign_context(target.directory) if encrypts else None

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told = {"server_id": "x", "version": "2.15.1", "headers": True, "nonce": "abc"}
            told |= {"max_payload": 2**20, "tls_required": encrypts}
            with suppress(OSError, ssl.SSLError):
                writer.write(b"INFO %b\r\n" % json.dumps(told).encode())
                if context is not None:
                    await writer.start_tls(context)
                while data := await reader.read(4096):
                    said.extend(data)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        access, described = target.victim.access(), target.victim.mesh()
        try:
            engine = await NatsEngine.connect(
                f"nats://127.0.0.1:{port}",
                described.mesh,
                login=Login(jwt=access.jwt, user_seed=access.user_seed),
                tls=client_context(described.ca),
                timeout_s=2.0,
            )
            await engine.close()
            raise Breach("the victim took it for the mesh's server")
        except AntiphonError as refused:
            if access.jwt.encode()[:40] in said:
                raise Breach("the victim showed its login") from refused
            return Outcome("server", f"the victim's client: {refused.message}"[:90])
        finally:
            server.close()

    return Attempt(name, act)


def _foreign_context(directory: Path) -> ssl.SSLContext:
    certificate, key = Authority.new().issue(["127.0.0.1"])
    files = directory / "evil.pem", directory / "evil-key.pem"
    for path, text in zip(files, (certificate, key), strict=True):
        path.write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


ENCRYPTION: Final = [
    Attempt("log in without encryption", _in_the_clear),
    _posing("pose as the server, with a certificate of its own", encrypts=True),
    _posing("pose as the server, without encryption", encrypts=False),
]
