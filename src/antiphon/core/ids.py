"""Names that cannot be chosen: digests, node ids and mesh ids (spec §4).

A node is its Ed25519 public key, written as `did:key`. A mesh is its genesis op. Digests are
BLAKE3-256 and always carry their prefix.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import Final

from blake3 import blake3
from nacl import bindings

from antiphon.errors import Malformed

DIGEST_PREFIX: Final = "blake3:"
KEY_BYTES: Final = 32
_ED25519_MULTICODEC: Final = b"\xed\x01"
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUE: Final = {letter: value for value, letter in enumerate(_BASE58)}
_DID_PREFIX: Final = "did:key:z"
_DIGEST: Final = re.compile(r"blake3:[0-9a-f]{64}", re.ASCII)
_MESH_ID_BYTES: Final = 10
_SHORT: Final = 8
_KEYS_REMEMBERED: Final = 65_536


def digest(data: bytes) -> str:
    """`blake3:<hex>` of some bytes."""
    return DIGEST_PREFIX + blake3(data).hexdigest()


def message_id(record: bytes, attempt: int = 0) -> str:
    """Under which id a record goes to the engine, which stores no two records under one.

    The digest of the whole record, signature included: an op's own id can be foretold, and whoever
    took it first would keep the op off the log. `attempt` gives another id where one is taken.
    """
    return digest(record if not attempt else b"%b\n%d" % (record, attempt))


def is_digest(text: str) -> bool:
    """Whether `text` is a prefixed BLAKE3 digest."""
    return _DIGEST.fullmatch(text) is not None


def mesh_id(genesis: bytes) -> str:
    """The id of the mesh that these genesis bytes found."""
    head = blake3(genesis).digest()[:_MESH_ID_BYTES]
    return base64.b32encode(head).decode().lower()


def did_of(public_key: bytes) -> str:
    """The did:key of an Ed25519 public key."""
    number = int.from_bytes(_ED25519_MULTICODEC + public_key, "big")
    letters: list[str] = []
    while number:
        number, rest = divmod(number, 58)
        letters.append(_BASE58[rest])
    return _DID_PREFIX + "".join(reversed(letters))


@lru_cache(maxsize=_KEYS_REMEMBERED)
def public_key_of(did: str) -> bytes:
    """The public key inside a did:key, refusing weak keys and second spellings.

    Small-order keys verify messages nobody signed under some libraries; they are refused before
    they can be an author at all.
    """
    if not did.startswith(_DID_PREFIX) or len(did) > 64:  # noqa: PLR2004 - ours have 56
        raise Malformed(f"{did!r} is not an Ed25519 did:key", reason="author")
    number = 0
    for letter in did[len(_DID_PREFIX) :]:
        value = _BASE58_VALUE.get(letter)
        if value is None:
            raise Malformed(f"{did!r} is not base58", reason="author")
        number = number * 58 + value
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    key = raw[2:]
    if raw[:2] != _ED25519_MULTICODEC or len(key) != KEY_BYTES or did_of(key) != did:
        raise Malformed(f"{did!r} is not an Ed25519 did:key", reason="author")
    if not bindings.crypto_core_ed25519_is_valid_point(key):
        raise Malformed(f"{did!r} is a weak key", reason="author")
    return key


def short_node(did: str) -> str:
    """What people see: the last characters of a node's id, where keys differ."""
    return did[-_SHORT:]


def short_job(job: str) -> str:
    """What people see of a job id."""
    return job[:_SHORT]
