"""Engine keys: Ed25519 in the text form that NATS servers read and print.

A key's text is base32 of a role byte, 32 bytes and a checksum, so that its first letter tells
what it is for: `U` a user, `A` an account, `O` an operator, and `S` before one of these a seed.
The checksum is the CRC that `binascii` has. Written here because the whole encoding is shorter
than what the ready-made package leaves out: that one checks no checksum and reads no public key.

Invariant: a seed shows in nothing but `seed`.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import ClassVar, Final, Self

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from antiphon.errors import Malformed

RAW_BYTES: Final = 32
_SEED: Final = 18 << 3
_PUBLIC_BYTES: Final = 1 + RAW_BYTES + 2
_SEED_BYTES: Final = 2 + RAW_BYTES + 2
_SIGNATURE_BYTES: Final = 64


class EngineKey:
    """A key pair with a role; the subclass says which."""

    ROLE: ClassVar[int]
    CALLED: ClassVar[str]

    __slots__ = ("_signer", "public")

    public: str
    """The public half as text: who the holder is."""

    def __init__(self, raw: bytes) -> None:
        if len(raw) != RAW_BYTES:
            raise Malformed(f"an engine key is made of {RAW_BYTES} bytes", reason="key")
        self._signer = SigningKey(raw)
        self.public = _text(bytes([self.ROLE]) + self._signer.verify_key.encode())

    @classmethod
    def new(cls) -> Self:
        """A key that nobody else has."""
        return cls(secrets.token_bytes(RAW_BYTES))

    @classmethod
    def from_seed(cls, seed: str) -> Self:
        """The key behind a seed's text; the text itself is in no error."""
        data = _bytes(seed)
        if data is None or len(data) != _SEED_BYTES - 2 or data[:2] != cls._seed_head():
            raise Malformed(f"this is not the seed of {cls.CALLED} key", reason="key")
        return cls(data[2:])

    @classmethod
    def _seed_head(cls) -> bytes:
        return bytes([_SEED | cls.ROLE >> 5, (cls.ROLE & 31) << 3])

    @property
    def raw_public(self) -> bytes:
        """The bytes of the public half."""
        return self._signer.verify_key.encode()

    @property
    def seed(self) -> str:
        """The secret half as text."""
        return _text(self._seed_head() + self._signer.encode())

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of a signature."""
        return self._signer.sign(message).signature

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.public})"


class UserKey(EngineKey):
    """Logs in: the server asks for a signature on a number that it chose."""

    ROLE = 20 << 3
    CALLED = "a user"


class AccountKey(EngineKey):
    """Signs the logins of an account's users."""

    ROLE = 0
    CALLED = "an account"


class OperatorKey(EngineKey):
    """Signs the accounts; the server trusts it by its configuration."""

    ROLE = 14 << 3
    CALLED = "an operator"


def is_user(text: str) -> bool:
    """Whether this is a user's public key; it is then one subject token, too."""
    data = _bytes(text)
    return data is not None and len(data) == _PUBLIC_BYTES - 2 and data[0] == UserKey.ROLE


def check_user(text: str) -> str:
    """`text` itself, or `Malformed`."""
    if not is_user(text):
        raise Malformed(f"{text!r} is not an engine user", reason="user")
    return text


def is_signed(public: str, message: bytes, signature: bytes) -> bool:
    """Whether the holder of this user key signed the message."""
    data = _bytes(public)
    return data is not None and is_user(public) and is_signed_with(data[1:], message, signature)


def is_signed_with(raw: bytes, message: bytes, signature: bytes) -> bool:
    """The same for any engine key, given as the bytes of its public half."""
    if len(signature) != _SIGNATURE_BYTES:
        return False
    try:
        VerifyKey(raw).verify(message, signature)
    except BadSignatureError:
        return False
    return True


def account_of(raw: bytes) -> str:
    """An account by the bytes of its public key."""
    return _text(bytes([AccountKey.ROLE]) + raw)


def _text(data: bytes) -> str:
    checksum = binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(data + checksum).decode().rstrip("=")


def _bytes(text: str) -> bytes | None:
    """What `_text` was given; None for anything that it did not write."""
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except (ValueError, binascii.Error):
        return None
    return data[:-2] if len(data) > 2 and _text(data[:-2]) == text else None  # noqa: PLR2004
