"""How a webhook is signed, and who may have sent one.

    Antiphon-Signature: t=1790000000,v1=<hex of HMAC-SHA256 over "1790000000." and the body>
    X-Hub-Signature-256: sha256=<hex of HMAC-SHA256 over the body>         as GitHub sends it
    Authorization: Bearer <the secret>, or X-Gitlab-Token: <the secret>    if the hook permits it

The first has a time, and is refused five minutes later. The second has none, so what it makes
follows from the body alone: sent again, it is the same.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from antiphon.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN: Final = "antiphon-signature"
GITHUB: Final = "x-hub-signature-256"
PLAIN: Final = ("authorization", "x-gitlab-token")
TOLERANCE_S: Final = 300
_OWN: Final = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})", re.ASCII)
_GITHUB: Final = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)


def signed_header(secret: bytes, body: bytes, now_s: int) -> str:
    """The value of `Antiphon-Signature`."""
    return f"t={now_s},v1={_mac(secret, b'%d.' % now_s + body)}"


def check_sender(
    secret: bytes, headers: Mapping[str, str], body: bytes, *, now_s: int, plain: bool
) -> str:
    """What tells this request from others; `Rejected` if nobody with the secret sent it.

    Empty for a request that only shows the secret: two of those are two.
    """
    if (given := headers.get(OWN)) is not None:
        found = _OWN.fullmatch(given.strip())
        if found is None:
            raise wrong_sender()
        at_s, mac = int(found[1]), found[2]
        if not hmac.compare_digest(mac, _mac(secret, b"%d." % at_s + body)):
            raise wrong_sender()
        if abs(now_s - at_s) > TOLERANCE_S:
            raise Rejected(
                f"this request was signed {abs(now_s - at_s):,} s from now",
                reason="late",
                hint="sign each request when you send it, and compare the clocks",
            )
        return mac
    if (given := headers.get(GITHUB)) is not None:
        found = _GITHUB.fullmatch(given.strip())
        mac = _mac(secret, body)
        if found is None or not hmac.compare_digest(found[1], mac):
            raise wrong_sender()
        return mac
    if plain:
        for name in PLAIN:
            text = headers.get(name, "").removeprefix("Bearer ").strip()
            if text and hmac.compare_digest(_digest(text.encode()), _digest(secret)):
                return ""
    raise wrong_sender()


def wrong_sender() -> Rejected:
    """What is said to strangers: the same whether there is such a webhook or not."""
    return Rejected(
        "there is no such webhook, or the request is not signed with its secret",
        reason="signature",
        hint="Antiphon-Signature: t=SECONDS,v1=HMAC-SHA256 of SECONDS, a dot and the body",
    )


def _digest(value: bytes) -> bytes:
    return sha256(value).digest()


def _mac(secret: bytes, value: bytes) -> str:
    return hmac.new(secret, value, sha256).hexdigest()
