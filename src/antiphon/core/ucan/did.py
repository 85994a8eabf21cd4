"""did:key for Ed25519: the only principals that this package knows.

A DID has one spelling here: other key types, other multibases and second spellings of the same
key are refused, so that comparing two DIDs is comparing two strings. So are the weak keys: the
eight points of small order, under which some libraries verify messages that nobody signed, and
encodings that are not reduced. Whether the rest is a point of the curve is libsodium's check when
a signature is verified.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import libipld

from antiphon.core.ucan.dag_cbor import malformed

KEY_BYTES: Final = 32
_PREFIX: Final = "did:key:"
_MULTICODEC: Final = b"\xed\x01"
_MAX_LETTERS: Final = 64  # ours have 56
_KEYS_REMEMBERED: Final = 4096
_FIELD: Final = 2**255 - 19
# The y of the points whose order divides 8; a test doubles each of them three times.
_ORDER_8_Y: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_WEAK_Y: Final = frozenset({0, 1, _FIELD - 1, _ORDER_8_Y, _FIELD - _ORDER_8_Y})


def did_of(public_key: bytes) -> str:
    """The did:key of an Ed25519 public key."""
    if len(public_key) != KEY_BYTES:
        raise malformed(f"an Ed25519 public key has {KEY_BYTES} bytes, not {len(public_key)}")
    return _PREFIX + libipld.encode_multibase("z", _MULTICODEC + public_key)


@lru_cache(maxsize=_KEYS_REMEMBERED)
def public_key_of(did: str) -> bytes:
    """The public key inside a did:key, or `Malformed`."""
    if not did.startswith(_PREFIX + "z") or len(did) > _MAX_LETTERS:
        raise malformed(f"{did[:_MAX_LETTERS]!r} is not a did:key in base58")
    try:
        _, raw = libipld.decode_multibase(did[len(_PREFIX) :])
    except ValueError as problem:
        raise malformed(f"{did!r} is not base58") from problem
    key = raw[len(_MULTICODEC) :]
    if raw[: len(_MULTICODEC)] != _MULTICODEC or len(key) != KEY_BYTES or did_of(key) != did:
        raise malformed(f"{did!r} is not the did:key of an Ed25519 key")
    y = int.from_bytes(key, "little") & ~(1 << 255)
    if y >= _FIELD or y in _WEAK_Y:
        raise malformed(f"{did!r} is a weak key")
    return key
