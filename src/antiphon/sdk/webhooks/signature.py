"""How a webhook is signed, and who may have sent one.

    Antiphon-Signature: t=1790000000,v1=<hex of HMAC-SHA256 over "1790000000." and the body>
    Antiphon-Signature: t=1790000000,id=7f3a,v1=<the same over "1790000000,7f3a." and the body>
    X-Hub-Signature-256: sha256=<hex of HMAC-SHA256 over the body>         as GitHub sends it
    Authorization: Bearer <the secret>, or X-Gitlab-Token: <the secret>    if the hook permits it

The first two have a time, and are refused five minutes later. A sender that tries again signs
anew; the id, if it is the same, says that the request is. GitHub's has neither, so what it makes
follows from the body alone: sent again, it is the same, until the mesh's horizon.
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
_OWN: Final = re.compile(
    r"t=(?P<at>[0-9]{1,12})(?P<id>,id=[0-9A-Za-z_-]{1,64})?,v1=(?P<mac>[0-9a-f]{64})", re.ASCII
)
_GITHUB: Final = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)


def signed_header(secret: bytes, body: bytes, now_s: int, same: str = "") -> str:
    """The value of `Antiphon-Signature`; `same` is the id of a request that is sent again."""
    told = f",id={same}" if same else ""
    return f"t={now_s}{told},v1={_own_mac(secret, now_s, same, body)}"


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
        at_s, mac = int(found["at"]), found["mac"]
        same = (found["id"] or "").removeprefix(",id=")
        if not hmac.compare_digest(mac, _own_mac(secret, at_s, same, body)):
            raise wrong_sender()
        if abs(now_s - at_s) > TOLERANCE_S:
            raise Rejected(
                f"this request was signed {abs(now_s - at_s):,} s from now",
                reason="late",
                hint="sign each request when you send it, and compare the clocks",
            )
        return _mac(secret, f"{same}.".encode() + body) if same else mac
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


def _own_mac(secret: bytes, at_s: int, same: str, body: bytes) -> str:
    told = f"{at_s},{same}." if same else f"{at_s}."
    return _mac(secret, told.encode() + body)


def _mac(secret: bytes, value: bytes) -> str:
    return hmac.new(secret, value, sha256).hexdigest()
