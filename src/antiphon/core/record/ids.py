"""Names that cannot be chosen: digests, node ids and mesh ids (spec §4).

A node is its Ed25519 public key, written as `did:key`. A mesh is its genesis op. Digests are
BLAKE3-256 and always carry their prefix.
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
    """Under which id a record goes to the engine, which stores no two records under one.

    The digest of the whole record, signature included: an op's own id can be foretold, and whoever
    took it first would keep the op off the log. `attempt` gives another id where one is taken.
    """
    return digest(record if not attempt else b"%b\n%d" % (record, attempt))


def mesh_id(genesis: bytes) -> str:
    """The id of the mesh that these genesis bytes found."""
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
    """What people see: the last characters of a node's id, where keys differ."""
    return did[-_SHORT:]


def key_of(did: str) -> str:
    """A node's id as one subject token."""
    return did.removeprefix("did:key:")
