"""JWTs as NATS servers read them: three parts in base64, Ed25519 over the first two."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from antiphon.engines.nats.credentials.keypairs import EngineKey
from antiphon.errors import Misconfigured

_VERSION: Final = 2


def signed(
    key: EngineKey,
    subject: str,
    name: str,
    nats: dict[str, Any],
    *,
    issued_s: int,
    expires_s: int | None = None,
) -> str:
    """What `key` says about `subject`."""
    text = unsigned(key.public, subject, name, nats, issued_s=issued_s, expires_s=expires_s)
    return with_signature(text, key.sign(text.encode()))


def unsigned(
    issuer: str,
    subject: str,
    name: str,
    nats: dict[str, Any],
    *,
    issued_s: int,
    expires_s: int | None = None,
) -> str:
    """The text that `issuer` signs: always the same for the same claims."""
    claims: dict[str, Any] = {
        "iat": issued_s,
        "iss": issuer,
        "name": name,
        "sub": subject,
        "nats": {**nats, "version": _VERSION},
    }
    if expires_s is not None:
        claims["exp"] = expires_s
    # The server takes two texts with one id for the same text: so the id is of all of it.
    digest = hashlib.sha256(_encoded(claims)).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    head = _b64(_encoded({"typ": "JWT", "alg": "ed25519-nkey"}))
    return f"{head}.{_b64(_encoded(claims))}"


def with_signature(text: str, signature: bytes) -> str:
    """A signed text, as servers read it."""
    return f"{text}.{_b64(signature)}"


def signature_of(jwt: str) -> bytes:
    """The signature of a text that was signed here."""
    return base64.urlsafe_b64decode(jwt.rpartition(".")[2] + "==")


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def claims_of(jwt: str) -> dict[str, Any]:
    """A login's claims, unchecked: for its holder, who has no key to check it with."""
    try:
        body = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, IndexError) as error:
        raise Misconfigured(
            "this login cannot be read", hint="ask the mesh's owner for a new ticket"
        ) from error
    if not isinstance(claims, dict):
        raise Misconfigured("this login cannot be read")
    return claims
