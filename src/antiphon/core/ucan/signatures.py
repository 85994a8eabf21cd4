"""Whether the issuer signed a delegation: verified by libsodium, cached by CID.

The CID covers the whole envelope, signature included, so an answer never changes. libsodium refuses
keys of small order and signatures that are not reduced.
"""

from __future__ import annotations

from typing import Final

from nacl import bindings
from nacl.exceptions import BadSignatureError

from antiphon.core.ucan.did import public_key_of
from antiphon.core.ucan.envelope import Delegation

REMEMBERED: Final = 16_384


def is_signed(delegation: Delegation) -> bool:
    """Whether the delegation's issuer signed it."""
    key = public_key_of(delegation.payload.iss)
    try:
        bindings.crypto_sign_open(delegation.signature + delegation.signed, key)
    except BadSignatureError:
        return False
    return True


class SignatureCache:
    """`is_signed`, once per delegation; drops the oldest answers when full."""

    __slots__ = ("_answers", "_size")

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._answers: dict[str, bool] = {}

    def __call__(self, delegation: Delegation) -> bool:
        """Whether the delegation's issuer signed it."""
        answer = self._answers.get(delegation.cid)
        if answer is None:
            answer = is_signed(delegation)
            if len(self._answers) >= self._size:
                del self._answers[next(iter(self._answers))]
            self._answers[delegation.cid] = answer
        return answer
