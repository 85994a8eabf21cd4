"""A ticket's login: it can only ask the gate to join.

A server reads a login as a text that an account signed. A ticket holds the signature, but not the
text: all of it follows from the ticket, and its holder writes it again (`antiphon join`).
"""

from __future__ import annotations

from antiphon.engines.nats.connection.login import Login
from antiphon.engines.nats.credentials.jwts import signature_of, unsigned, with_signature
from antiphon.engines.nats.credentials.keypairs import UserKey, account_of, is_signed_with
from antiphon.engines.nats.server import permissions
from antiphon.engines.nats.server.accounts import Accounts, member_claims
from antiphon.errors import Malformed

_NAME = "ticket"


def sign_ticket_login(
    accounts: Accounts, mesh: str, user: str, *, issued_s: int, expires_s: int
) -> tuple[bytes, bytes]:
    """The account whose login this is, as the bytes of its public key, and its signature."""
    granted = permissions.of_ticket(mesh, user)
    jwt = accounts.user_jwt(user, granted, expires_s=expires_s, name=_NAME, issued_s=issued_s)
    return accounts.keys.members.raw_public, signature_of(jwt)


def ticket_login(
    mesh: str,
    key: UserKey,
    account: bytes,
    signature: bytes,
    *,
    issued_s: int,
    expires_s: int,
) -> Login:
    """The login that was signed; `Malformed` if it was for something else."""
    claims = member_claims(permissions.of_ticket(mesh, key.public))
    issuer = account_of(account)
    text = unsigned(issuer, key.public, _NAME, claims, issued_s=issued_s, expires_s=expires_s)
    if not is_signed_with(account, text.encode(), signature):
        raise Malformed(
            "this ticket was changed, or another version of Antiphon made it",
            reason="ticket",
            hint="install the version that runs where 'antiphon invite' was typed",
        )
    return Login(jwt=with_signature(text, signature), user_seed=key.seed)
