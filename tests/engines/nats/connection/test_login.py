"""What is never said in the clear, and what people are told when a server and they do not match."""

import asyncio
import datetime as dt
import json
from contextlib import asynccontextmanager

import pytest

from antiphon.engines.nats import LocalServer, NatsEngine, UserKey
from antiphon.engines.nats.connection import server_errors as clients_view
from antiphon.engines.nats.connection.connection import Connection, Login
from antiphon.engines.nats.connection.server_errors import is_login_refusal, is_loopback
from antiphon.engines.nats.server.accounts import AccountKeys, Accounts
from antiphon.engines.nats.server.certificate_authority import Authority
from antiphon.engines.nats.server.certificates import client_context, open_authority, server_files
from antiphon.errors import EngineDenied, Malformed, Misconfigured, Unavailable
from antiphon.testing.engine_suite.harness import new_mesh
from tests.engines.nats.harness import sever, stalled, until
from tests.engines.nats.operated import RENDER, now_s, operated
from tests.patience import NEVER_S

pytestmark = pytest.mark.nats


@asynccontextmanager
async def eavesdropper(*, answer=b"", **info):
    """Greets like a NATS server, and keeps what it is told."""
    heard = bytearray()

    async def listen(reader, writer):
        greeting = {"version": "2.15.1", "max_payload": 1024, "nonce": "n", **info}
        writer.write(b"INFO " + json.dumps(greeting).encode() + b"\r\n")
        while line := await reader.read(4096):
            heard.extend(line)
            writer.write(answer)
            if b"PING" in line:
                writer.write(b"PONG\r\n")
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", heard


def a_login() -> dict:
    key = UserKey.new()
    accounts = Accounts(AccountKeys.new(), "m")
    jwt = accounts.user_jwt(key.public, None, expires_s=None, name="x", issued_s=now_s())
    return {"jwt": jwt, "user_seed": key.seed}


# --- in the clear -----------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["nats://192.0.2.1", "mesh.example:4222", "nats://[2001:db8::1]"])
@pytest.mark.parametrize("how", ["password", "token", "jwt", "in the address"])
async def test_no_login_leaves_this_machine_unencrypted(url, how, monkeypatch):
    reached: list[str] = []

    async def unreachable(host, port, **_):
        reached.append(f"{host}:{port}")  # a broken check must not reach out of a test, either
        raise OSError("no network in this test")

    monkeypatch.setattr(asyncio, "open_connection", unreachable)
    secrets = {
        "password": {"user": "me", "password": "hunter2"},
        "token": {"token": "hunter2"},
        "jwt": a_login(),
        "in the address": {},
    }[how]
    if how == "in the address":
        url = f"nats://me:hunter2@{url.removeprefix('nats://')}"
    with pytest.raises(Misconfigured) as caught:
        await NatsEngine.connect(f"nats://127.0.0.1:1,{url}", new_mesh(), login=Login(**secrets))
    assert reached == []
    assert "nothing was sent" in caught.value.message
    assert "tls://" in caught.value.hint
    text = f"{caught.value!r} {caught.value.hint}"
    for secret in ("hunter2", *secrets.values()):
        assert secret == "me" or secret not in text


@pytest.mark.parametrize(
    "host, local",
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("localhost.example", False),
        ("", False),
        (None, False),
    ],
)
def test_what_counts_as_this_machine(host, local):
    assert is_loopback(host) is local


@pytest.mark.parametrize("offers", [{}, {"tls_available": True}, {"tls_required": False}])
@pytest.mark.parametrize("by", ["scheme", "certificate"])
async def test_whoever_asked_for_tls_gets_tls_or_nothing(offers, by):
    async with eavesdropper(auth_required=True, **offers) as (address, heard):
        tls = client_context(Authority.new().certificate_pem) if by == "certificate" else None
        scheme = "nats" if by == "certificate" else "tls"
        with pytest.raises(Misconfigured) as caught:
            await NatsEngine.connect(
                f"{scheme}://{address}", new_mesh(), tls=tls, login=Login(**a_login())
            )
        assert "offers no TLS: nothing was sent" in caught.value.message
        assert not heard


async def test_a_server_elsewhere_that_is_heard_of_later_gets_no_login(monkeypatch):
    monkeypatch.setattr(clients_view, "is_loopback", lambda _: False)
    async with eavesdropper(auth_required=True) as (address, heard):
        with pytest.raises(Misconfigured):
            await Connection.open(f"nats://{address}", login=Login(user="me", password="hunter2"))
        assert not heard


# --- certificates -----------------------------------------------------------------------------


async def test_a_server_that_is_not_the_meshs_is_told_apart(tmp_path):
    async with operated(tmp_path) as place:
        key = UserKey.new()
        jwt = place.issuer.admit(key.public, RENDER, [], name="m", now_s=now_s())
        plain = place.server.url.replace("tls://", "nats://")
        for url, tls, words in (
            (place.server.url, Authority.new().certificate_pem, "from another authority"),
            (plain, Authority.new().certificate_pem, "from another authority"),
            (plain, None, "wants TLS, and this machine has no certificate"),
            (place.server.url, None, "wants TLS, and this machine has no certificate"),
        ):
            with pytest.raises(Misconfigured) as caught:
                await NatsEngine.connect(
                    url,
                    place.mesh,
                    login=Login(jwt=jwt, user_seed=key.seed),
                    tls=None if tls is None else client_context(tls),
                )
            assert words in caught.value.message
            assert "ticket" in caught.value.hint
            assert key.seed not in f"{caught.value!r}"


@pytest.mark.parametrize(
    "hosts, life, words",
    [
        (["mesh.example"], dt.timedelta(days=1), "a certificate for another host"),
        (["127.0.0.1"], dt.timedelta(minutes=-1), "is out of date"),
    ],
)
async def test_a_certificate_that_does_not_hold_here_is_explained(hosts, life, words, tmp_path):
    files = server_files(tmp_path, ["127.0.0.1"])
    certificate, key = open_authority(tmp_path).issue(hosts, life=life)
    files.certificate.write_text(certificate)
    files.key.write_text(key)
    accounts = Accounts.open(tmp_path, "m")
    async with LocalServer(tmp_path / "server", accounts=accounts, tls=files) as server:
        with pytest.raises(Misconfigured) as caught:
            await Connection.open(
                server.url,
                login=Login(**a_login()),
                tls=client_context(files.authority.read_text()),
            )
    assert words in caught.value.message


async def test_a_handshake_that_is_none_is_explained():
    async with eavesdropper(answer=b"What do you mean?\r\n", tls_required=True) as (address, _):
        with pytest.raises(Misconfigured) as caught:
            await Connection.open(
                f"tls://{address}",
                login=Login(**a_login()),
                tls=client_context(Authority.new().certificate_pem),
            )
    assert "no common TLS" in caught.value.message


# --- logins -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, is_about_us",
    [
        ("nats: 'Authorization Violation'", True),
        ("User Authentication Expired", True),
        ("User Authentication Revoked", True),
        ("Account Authentication Expired", True),
        ("Authentication Timeout", False),
        ("nats: unexpected EOF", False),
        ("Stale Connection", False),
    ],
)
def test_only_words_about_the_login_end_it(words, is_about_us):
    assert is_login_refusal(words) is is_about_us


async def test_a_login_and_a_key_that_do_not_match_are_noticed_at_home():
    url = "nats://127.0.0.1:1"  # nobody is there to be asked
    mine = a_login()
    for settings, kind in (
        ({**mine, "user_seed": UserKey.new().seed}, Misconfigured),
        ({**mine, "user_seed": None}, Misconfigured),
        ({**mine, "user_seed": "nonsense"}, Malformed),
        ({**mine, "jwt": "nonsense"}, Misconfigured),
    ):
        with pytest.raises(kind) as caught:
            await NatsEngine.connect(url, new_mesh(), login=Login(**settings))
        assert mine["user_seed"] not in f"{caught.value!r}"
    assert mine["user_seed"] not in repr(Login(**mine))
    assert mine["jwt"] not in repr(Login(**mine))


async def test_a_login_that_cannot_be_had_for_a_while_is_asked_for_again(tmp_path):
    async with operated(tmp_path) as place:
        key = UserKey.new()
        asked = 0

        def present() -> str:
            nonlocal asked
            asked += 1
            if 3 <= asked <= 5:
                raise Unavailable("the gate is away")
            return place.issuer.admit(key.public, RENDER, [], name="m", now_s=now_s())

        async with await place.enter(key, present) as member:
            sever(member)
            await until(lambda: not member.connected)
            with pytest.raises(Unavailable) as caught:
                member._connection.require_up()
            assert not isinstance(caught.value, EngineDenied)
            await until(lambda: member.connected)
            assert asked > 5


async def test_answers_arrive_where_only_their_user_listens(tmp_path):
    async with operated(tmp_path) as place, await place.admit() as member:
        user = member._connection.identity.user
        assert member._connection.inbox.startswith(f"_I.{user}.")
        assert member.bus.new_inbox().startswith(f"inbox.{user}.")
        assert not place.owner._connection.inbox.startswith("_I.")
        owner = place.owner._connection.identity
        assert place.owner.bus.new_inbox().startswith(f"inbox.{owner.user}.")
        assert (owner.is_restricted, member._connection.identity.is_restricted) == (False, True)


async def test_a_server_that_has_gone_silent_holds_up_nobody(tmp_path, monkeypatch):
    # Whoever waited for an encrypted goodbye would wait longer than any test may.
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", NEVER_S)
    async with operated(tmp_path) as place:
        leaving, staying = await place.admit(), await place.admit()
        async with stalled(place.server):
            await leaving.close()
            await staying._connection._client._process_op_err(OSError("no answer to a ping"))
        await until(lambda: staying.connected)
        await staying.close()
