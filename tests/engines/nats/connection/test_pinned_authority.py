"""The certificate authority that a ticket names, from a server that nobody trusts yet."""

import asyncio
import ssl
from contextlib import asynccontextmanager

import pytest

from antiphon.engines.nats import Login, NatsEngine, UserKey, client_context
from antiphon.engines.nats.connection.pinned_authority import pinned_authority
from antiphon.engines.nats.server.certificate_authority import Authority
from antiphon.errors import Misconfigured, Unavailable
from antiphon.runtime.gate.tickets import pin_of
from tests.engines.nats.operated import now_s, operated

pytestmark = pytest.mark.nats
INFO = b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"tls_required":true}\r\n'


def pin_to(certificate_pem: str) -> str:
    return pin_of(ssl.PEM_cert_to_DER_cert(certificate_pem))


@asynccontextmanager
async def an_impostor(folder, shown: str, greeting: bytes = INFO):
    """A server with an authority of its own, which shows this certificate too: where, what it got.

    Anybody can show the certificate of a mesh's authority: it is public.
    """
    certificate, key = Authority.new().issue(["127.0.0.1"])
    (folder / "c.pem").write_text(certificate + shown)
    (folder / "k.pem").write_text(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "c.pem", folder / "k.pem")
    received = bytearray()

    async def serve(reader, writer):
        writer.write(greeting)
        try:
            await writer.start_tls(context)
            received.extend(await reader.read())
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", received
    finally:
        server.close()


async def test_the_server_shows_the_certificate_that_the_pin_is_of(tmp_path):
    async with operated(tmp_path) as place:
        authority = place.tls.authority.read_text()
        found = await pinned_authority(place.server.url, pin_to(authority))
        assert pin_to(found) == pin_to(authority)
        async with await place.enter_fully(tls=client_context(found)):
            pass


async def test_a_server_of_another_mesh_is_told_nothing(tmp_path):
    pin = pin_to(Authority.new().certificate_pem)
    async with an_impostor(tmp_path, Authority.new().certificate_pem) as (url, received):
        with pytest.raises(Misconfigured, match="not the one that this ticket is for"):
            await pinned_authority(url, pin)
        assert not received


async def test_whoever_shows_the_authority_s_certificate_without_its_key_gets_no_login(tmp_path):
    """The pin finds the certificate; who connects with it sends nothing to another key."""
    authority = Authority.new().certificate_pem
    async with an_impostor(tmp_path, authority) as (url, received):
        found = await pinned_authority(url, pin_to(authority))
        key = UserKey.new()
        async with operated(tmp_path / "mesh") as place:
            jwt = place.accounts.user_jwt(
                key.public, None, expires_s=None, name="x", issued_s=now_s()
            )
        login = Login(jwt=jwt, user_seed=key.seed)
        with pytest.raises(Misconfigured, match="another authority"):
            await NatsEngine.connect(url, "mesh", login=login, tls=client_context(found))
        assert not received


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 200 OK\r\n", b"x" * 100_000, b"INFO"])
async def test_what_is_no_nats_server_does_not_answer(tmp_path, greeting):
    async with an_impostor(tmp_path, "", greeting) as (url, received):
        with pytest.raises(Unavailable):
            await pinned_authority(url, "00" * 32)
        assert not received


async def test_nobody_there():
    with pytest.raises(Unavailable, match="no NATS server answered"):
        await pinned_authority("nats://127.0.0.1:1", "00" * 32)
