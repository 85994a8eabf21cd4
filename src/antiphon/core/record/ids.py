"""Ids that are derived, not chosen: digests, node ids and mesh ids (spec §4).

A node's id is its Ed25519 public key, written as `did:key`. A mesh's id is the digest of its
genesis op. Digests are BLAKE3-256 and always have their prefix.
"""

from __future__ import annotations

import base64
from typing import Final

from blake3 import blake3

from antiphon.core.ucan import did as did_key
from antiphon.errors import Malformed

DIGEST_PREFIX: Final = "blake3:"
_MESH_ID_BYTES: Final = 10
_SHORT: Final = 8


def digest(data: bytes) -> str:
    """`blake3:<hex>` of some bytes."""
    return DIGEST_PREFIX + blake3(data).hexdigest()


def message_id(record: bytes, attempt: int = 0) -> str:
    """The engine's message id for a record; the engine stores one record per id.

    The digest of the whole record, signature included: an op's id can be predicted, and a node
    that used it first would keep the op off the log. `attempt` gives another id if one is taken.
    """
    return digest(record if not attempt else b"%b\n%d" % (record, attempt))


def mesh_id(genesis: bytes) -> str:
    """The id of the mesh that these genesis bytes create."""
    head = blake3(genesis).digest()[:_MESH_ID_BYTES]
    return base64.b32encode(head).decode().lower()


did_of = did_key.did_of


def public_key_of(did: str) -> bytes:
    """The public key inside an author's did:key, or `Malformed`."""
    try:
        return did_key.public_key_of(did)
    except Malformed as problem:
        raise Malformed(str(problem), reason="author") from problem


def short_node(did: str) -> str:
    """The short form for people: the last characters of a node's id, where keys differ."""
    return did[-_SHORT:]


def key_of(did: str) -> str:
    """A node's id as one subject token."""
    return did.removeprefix("did:key:")
