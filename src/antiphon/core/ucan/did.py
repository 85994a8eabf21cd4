"""did:key for Ed25519: the only principals that this package supports.

A DID has one encoding here: other key types, other multibases and other encodings of the same key
are refused, so that two DIDs can be compared as strings. Weak keys are refused too: points of small
order, under which some libraries verify messages that nobody signed, points with a component of
small order, encodings that are not reduced, and points that are not on the curve.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import libipld
from nacl import bindings

from antiphon.core.ucan.dag_cbor import malformed

KEY_BYTES: Final = 32
_PREFIX: Final = "did:key:"
_MULTICODEC: Final = b"\xed\x01"
_MAX_LETTERS: Final = 64  # ours have 56
_KEYS_REMEMBERED: Final = 65_536


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
    if not bindings.crypto_core_ed25519_is_valid_point(key):
        raise malformed(f"{did!r} is a weak key")
    return key
