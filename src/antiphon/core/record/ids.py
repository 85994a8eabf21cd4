"""Ids that are derived, not chosen: digests, node ids and mesh ids (spec §4).

A node's id is its Ed25519 public key, written as `did:key`. A mesh's id is the digest of its
genesis op. Digests are BLAKE3-256 and always have their prefix.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from blake3 import blake3

from antiphon.core.ucan import did as did_key
from antiphon.errors import Malformed

DIGEST_PREFIX: Final = "blake3:"
_MESH_ID_BYTES: Final = 10
_MESSAGE_ID_BYTES: Final = 16
_SHORT: Final = 8
_NAME_BYTES: Final = 15

AGENT_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z"
"""The name of an agent on its node: one token of a subject."""
DEFAULT_AGENT: Final = "main"
"""The agent of a process that names none."""
_AGENT: Final = re.compile(AGENT_PATTERN)


def digest(data: bytes) -> str:
    """`blake3:<hex>` of some bytes."""
    return DIGEST_PREFIX + blake3(data).hexdigest()


def message_id(record: bytes, attempt: int = 0) -> str:
    """The engine's message id for a record; the engine stores one record per id.

    128 bits of the digest of the whole record, signature included: an op's id can be predicted,
    and a node that used it first would keep the op off the log. `attempt` gives another id if one
    is taken. The engine stores the id beside the record, so it is short.
    """
    named = blake3(record if not attempt else b"%b\n%d" % (record, attempt))
    return base64.urlsafe_b64encode(named.digest(_MESSAGE_ID_BYTES))[:-2].decode()


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


def name_of_key(key: str) -> str:
    """Any text, such as the key of a lock, as one subject token of fixed length."""
    head = blake3(key.encode()).digest()[:_NAME_BYTES]
    return base64.b32encode(head).decode().lower()


def check_agent(name: str) -> str:
    """The name of an agent, or `Malformed`."""
    if _AGENT.match(name) is None:
        raise Malformed(
            f"{name[:80]!r} is not the name of an agent: letters, digits, '_' and '-', at most 64,"
            " beginning with a letter or digit",
            reason="agent",
        )
    return name


def agent_address(did: str, agent: str) -> str:
    """Where an agent can be reached: `did:key:…/name`."""
    return f"{did}/{agent}"


def split_address(address: str) -> tuple[str, str]:
    """The node and the agent of an address, or `Malformed`; without a name, the default agent."""
    did, slash, agent = address.partition("/")
    public_key_of(did)
    return did, check_agent(agent) if slash else DEFAULT_AGENT
