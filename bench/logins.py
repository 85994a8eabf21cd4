"""`bench logins`: whether a login can be taken back after any number of used tickets.

A server with accounts and TLS, as `antiphon up` starts it, and a member who is connected. Tickets
are used up, all within their fifteen minutes: each becomes a file of the gate, and its login is
revoked at the server, with those of the tickets that were used in the same two seconds. Then the
member's login is revoked.

    revoked_s     from the revocation until the member's connection has ended; at most 2
    token_bytes   of the account's token, which the server gets whole each time; at most 16,000
    join_ms       for the gate to look up and redeem one more ticket
    ticket_ms     for the server to be told of one used ticket, shared with the others
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
import time
from pathlib import Path

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.scope import Scope
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import digest
from antiphon.core.ucan import TOP
from antiphon.engines.nats import (
    Accounts,
    LocalServer,
    Login,
    NatsEngine,
    NatsLoginIssuer,
    UserKey,
    client_context,
    server_files,
    system_connector,
)
from antiphon.runtime.gate.tickets import Invitation, TicketRegistry
from bench.measurement.report import conclude, say

MAX_REVOKED_S = 2.0
MAX_TOKEN_BYTES = 16_000
TOGETHER = 100
TICKET_S = 15 * 60
ANYTHING = Scope(by_command={TOP: (">",)})


def use_up(registry: TicketRegistry, user: str, now_s: int) -> float:
    """A ticket is made and redeemed; how long the gate took for the second, in seconds."""
    secret, ticket = secrets.token_hex(16), secrets.token_hex(8)
    registry.add(
        Invitation(
            id=ticket,
            secret_digest=digest(secret.encode()),
            user=user,
            terms=Terms(can=("claim",)),
            expires_s=now_s + TICKET_S,
        )
    )
    keys = (f"did:key:{user}", user, user)
    began = time.perf_counter()
    registry.redeem(registry.find(ticket, secret, keys, now_s=now_s), keys, "box")
    return time.perf_counter() - began


async def hung_up(engine: NatsEngine) -> None:
    """Wait for the end of its connection, which has no event."""
    while engine.connected:
        await asyncio.sleep(0.001)


async def run(used: int, directory: Path) -> dict[str, object]:
    mesh, now_s = "bench", int(time.time())
    accounts = Accounts.open(directory, mesh)
    tls = server_files(directory, ["127.0.0.1"])
    trusted = client_context(tls.authority.read_text())
    registry = TicketRegistry(directory / "tickets")
    async with LocalServer(directory / "server", accounts=accounts, tls=tls) as server:
        owner, member = UserKey.new(), UserKey.new()
        jwt = accounts.user_jwt(owner.public, None, expires_s=None, name="", issued_s=now_s)
        login = Login(jwt=jwt, user_seed=owner.seed)
        engine = await NatsEngine.connect(server.url, mesh, login=login, tls=trusted, create=True)
        issuer = NatsLoginIssuer(
            accounts,
            engine.log,
            PROTOCOL.branches,
            connect_system=system_connector(accounts, server.url, tls=trusted),
        )
        jwt = issuer.admit(member.public, ANYTHING, (), name="", now_s=now_s)
        login = Login(jwt=jwt, user_seed=member.seed)
        working = await NatsEngine.connect(server.url, mesh, login=login, tls=trusted)
        began = time.monotonic()
        for done in range(0, used, TOGETHER):
            ended = [UserKey.new().public for _ in range(min(TOGETHER, used - done))]
            for user in ended:
                use_up(registry, user, now_s)
            await issuer.end_tickets(dict.fromkeys(ended, now_s + TICKET_S), now_s)
        took_s = time.monotonic() - began
        say(f"{used:,} tickets used up in {took_s:.1f} s")
        assert working.connected, "no ticket ends another login"
        join_s = use_up(registry, UserKey.new().public, now_s)
        began = time.monotonic()
        await issuer.expel([member.public], now_s)
        await hung_up(working)
        revoked_s = time.monotonic() - began
        await working.close()
        await engine.close()
    token_bytes = len(accounts.members_account_jwt(now_s))
    say(f"a member's login ended within {revoked_s:.3f} s; the token has {token_bytes:,} bytes")
    return {
        "used": used,
        "revoked_s": round(revoked_s, 3),
        "token_bytes": token_bytes,
        "join_ms": round(join_s * 1000, 2),
        "ticket_ms": round(took_s / used * 1000, 2),
        "holds": revoked_s <= MAX_REVOKED_S and token_bytes <= MAX_TOKEN_BYTES,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench logins")
    parser.add_argument("--used", type=int, default=20_000, help="how many tickets are used up")
    parser.add_argument("--quick", action="store_true", help="1,000 tickets")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="antiphon-logins-") as directory:
        found = asyncio.run(run(1_000 if args.quick else args.used, Path(directory)))
    conclude(**found)
    return 0 if found["holds"] else 1
