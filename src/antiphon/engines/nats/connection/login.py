"""A client's login to a NATS server, which is never sent unencrypted over a network."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.engines.nats.connection.relogin import Renew
from antiphon.engines.nats.connection.server_errors import is_loopback, without_secrets
from antiphon.engines.nats.credentials.jwts import claims_of
from antiphon.engines.nats.credentials.keypairs import UserKey
from antiphon.errors import AntiphonError, Misconfigured

_ENCRYPTED = frozenset({"tls", "wss"})


class Login(Struct, frozen=True):
    """A name and a password, a token, or a signed login with the key that it names.

    A signed login may be a function, which is called again at every reconnect: so a member
    continues with a newer one. `renew` gets a new one after the server refused the last.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    jwt: str | Callable[[], str] | None = None
    user_seed: str | None = None
    renew: Renew | None = None

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, …)"

    @property
    def is_signed(self) -> bool:
        """Whether it is a login that an account signed."""
        return self.jwt is not None

    def current_jwt(self) -> str:
        """The signed login to use now."""
        return self.jwt() if callable(self.jwt) else self.jwt or ""

    def identity(self) -> Identity:
        """Who logs in, if the login says so; `Misconfigured` if key and login do not match."""
        if not self.is_signed:
            return Identity()
        if self.user_seed is None:
            raise Misconfigured("a signed login needs the seed of its user key")
        key = UserKey.from_seed(self.user_seed)
        claims = claims_of(self.current_jwt())
        if claims.get("sub") != key.public:
            raise Misconfigured(
                "the login and the key do not belong together",
                hint="run 'antiphon join TICKET' to make both again",
            )
        nats = claims.get("nats")
        return Identity(user=key.public, is_restricted=isinstance(nats, dict) and ("pub" in nats))

    def expires_s(self) -> int | None:
        """When the present login ends, where there is one and it says so."""
        try:
            end = claims_of(self.current_jwt()).get("exp")
        except AntiphonError:
            return None
        return end if isinstance(end, int) else None

    def signer(self) -> Callable[[str], bytes] | None:
        """Signs the number that a server chose, as nats-py wants it."""
        if self.user_seed is None:
            return None
        key = UserKey.from_seed(self.user_seed)
        return lambda nonce: base64.b64encode(key.sign(nonce.encode()))


class Identity(Struct, frozen=True):
    """Who a connection is to its server."""

    user: str = ""
    """The user's public key; empty without a signed login."""
    is_restricted: bool = False
    """Whether the login has limited permissions: no streams, no consumers."""


def must_encrypt(url: str, tls: ssl.SSLContext | None) -> bool:
    """Whether nothing may be sent to these servers unencrypted."""
    return tls is not None or any(one.scheme in _ENCRYPTED for one in _addresses(url))


def has_secret(url: str, login: Login) -> bool:
    """Whether something is sent that others must not read."""
    held = login.is_signed or login.password or login.token
    return bool(held) or any(one.username for one in _addresses(url))


def check_route(url: str, login: Login, tls: ssl.SSLContext | None) -> None:
    """`Misconfigured` where a secret would cross a network unencrypted; nothing was sent yet."""
    if must_encrypt(url, tls):
        return
    for address in _addresses(url):
        if has_secret(url, login) and not is_loopback(address.hostname):
            raise Misconfigured(
                f"{without_secrets(url)} is not this machine, and without TLS everyone on the "
                "network could read the login: nothing was sent",
                hint="use tls:// and the mesh's certificate; a ticket carries both",
            )


def _addresses(url: str) -> list[Any]:
    parts = [part.strip() for part in url.split(",") if part.strip()]
    return [urlsplit(part if "://" in part else f"nats://{part}") for part in parts]
