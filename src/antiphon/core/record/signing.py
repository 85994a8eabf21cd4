"""Signatures: DSSE's pre-authentication encoding, Ed25519, two forms of signature block (spec §4).

A record is two lines: the op's canonical bytes, a line feed, and its signature block, which is
canonical JSON too. Canonical JSON has no raw line feed, so the split is unambiguous, the op's bytes
are exactly what was signed, and you can read a record with any tool.

The block has two forms:

    {"sig":"<64 bytes>"}                                      over this op
    {"at":3,"of":8,"path":"<32 bytes each>","sig":"<64 bytes>"}   over a Merkle root of many ops

with bytes in base64. In the second form the leaves are op ids, in RFC 6962's tree shape with
BLAKE3; each op can still be verified alone. Payload types differ, so a signature for one purpose is
not valid for another. libsodium verifies; it refuses weak keys and non-canonical signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Final

import msgspec
from blake3 import blake3
from msgspec import Meta, Struct
from nacl import bindings
from nacl.exceptions import BadSignatureError

from antiphon.core.record import codec
from antiphon.core.record.ids import public_key_of
from antiphon.errors import Malformed

OP_TYPE: Final = "application/vnd.antiphon.op+json"
BATCH_TYPE: Final = "application/vnd.antiphon.op-batch+json"
MAX_BATCH: Final = 4096
SIGNATURE_BYTES: Final = 64
ROOTS_KEPT: Final = 1024
"""Signatures over many ops whose verdict is remembered: their other ops come soon."""

NODE_BYTES: Final = 32

Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
Nodes = Annotated[bytes, Meta(max_length=12 * NODE_BYTES)]


class Block(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The signature block. `of` = 0 means: over this op alone."""

    sig: Signature
    at: Annotated[int, Meta(ge=0, lt=MAX_BATCH)] = 0
    of: Annotated[int, Meta(ge=0, le=MAX_BATCH)] = 0
    path: Nodes = b""
    """The hashes beside the way from the leaf to the root, one after the other."""


class BatchRoot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is signed when one signature covers many ops."""

    mesh: str
    root: str
    size: int


_block_decoder = msgspec.json.Decoder(Block)


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding (protocol DSSEv1)."""
    return b"DSSEv1 %d %b %d %b" % (
        len(payload_type),
        payload_type.encode(),
        len(payload),
        payload,
    )


_OP_PAE_HEAD: Final = b"DSSEv1 %d %b " % (len(OP_TYPE), OP_TYPE.encode())


def sign(secret_key: bytes, payload_type: str, payload: bytes) -> bytes:
    """An Ed25519 signature; `secret_key` is libsodium's 64-byte form."""
    return bindings.crypto_sign(pae(payload_type, payload), secret_key)[:SIGNATURE_BYTES]


def is_signed(did: str, payload_type: str, payload: bytes, signature: bytes) -> bool:
    """Whether `did` signed this payload as this type."""
    # libsodium splits signature and message by length. With a longer signature, its rest would
    # be read as the head of another message that is signed and only ends in this encoding.
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + pae(payload_type, payload), public_key_of(did))
    except BadSignatureError:
        return False
    return True


def frame(op_bytes: bytes, block: Block) -> bytes:
    """The record: an op and its signature block."""
    return op_bytes + b"\n" + codec.encode(block)


def unframe(payload: bytes) -> tuple[bytes, Block]:
    """The two halves of a record, or `Malformed`."""
    op_bytes, cut, rest = payload.partition(b"\n")
    if not cut:
        raise Malformed("a record is two lines: op and signature block", reason="frame")
    return op_bytes, codec.decode(rest, _block_decoder)


def is_block_valid(author: str, mesh: str, op_bytes: bytes, block: Block) -> bool:
    """Whether the block proves that `author` signed this op."""
    if block.of != 0:
        root = root_from_path(blake3(op_bytes).digest(), block)
        return root is not None and _is_root_signed(author, mesh, root, block.of, block.sig)
    if block.at or block.path:
        return False
    signed = b"%b%d %b" % (_OP_PAE_HEAD, len(op_bytes), op_bytes)
    try:
        bindings.crypto_sign_open(block.sig + signed, public_key_of(author))
    except BadSignatureError:
        return False
    return True


@lru_cache(ROOTS_KEPT)
def _is_root_signed(author: str, mesh: str, root: bytes, size: int, sig: bytes) -> bool:
    """Whether `author` signed a tree with this root. All arguments are part of what is checked."""
    return is_signed(author, BATCH_TYPE, _batch(mesh, root, size), sig)


def _batch(mesh: str, root: bytes, size: int) -> bytes:
    return codec.encode(BatchRoot(mesh=mesh, root=root.hex(), size=size))


def sign_together(
    sign: Callable[[str, bytes], bytes], mesh: str, op_digests: Sequence[bytes]
) -> list[Block]:
    """The signature blocks of several ops of one author, under one signature.

    `sign` takes a payload type and a payload. Each block proves its op without the others.
    """
    if not 0 < len(op_digests) <= MAX_BATCH:
        raise ValueError(f"{len(op_digests)} ops cannot have one signature")
    root, paths = _tree([leaf_hash(one) for one in op_digests])
    sig, size = sign(BATCH_TYPE, _batch(mesh, root, len(op_digests))), len(op_digests)
    return [Block(sig=sig, at=at, of=size, path=b"".join(path)) for at, path in enumerate(paths)]


def _tree(leaves: list[bytes]) -> tuple[bytes, list[list[bytes]]]:
    """The root over some leaves, and the path of each, from the leaf upwards."""
    if len(leaves) == 1:
        return leaves[0], [[]]
    # RFC 6962: the left part is the largest power of two that leaves something for the right.
    cut = 1 << (len(leaves) - 1).bit_length() - 1
    left, left_paths = _tree(leaves[:cut])
    right, right_paths = _tree(leaves[cut:])
    for path in left_paths:
        path.append(right)
    for path in right_paths:
        path.append(left)
    return node_hash(left, right), left_paths + right_paths


def leaf_hash(op_digest: bytes) -> bytes:
    """A leaf of the batch tree; the prefix distinguishes leaves from inner nodes."""
    return blake3(b"\x00" + op_digest).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """An inner node of the batch tree."""
    return blake3(b"\x01" + left + right).digest()


def root_from_path(op_digest: bytes, block: Block) -> bytes | None:
    """The root that a path leads to, or None if the path does not fit index and size.

    The algorithm of RFC 9162 §2.1.3.2: `here` and `last` are the indices of this node and of
    the level's last node; a level without a right sibling is skipped.
    """
    path = block.path
    if block.at >= block.of or len(path) % NODE_BYTES:
        return None
    here, last = block.at, block.of - 1
    result = leaf_hash(op_digest)
    for start in range(0, len(path), NODE_BYTES):
        if last == 0:
            return None
        sibling = path[start : start + NODE_BYTES]
        if here & 1 or here == last:
            result = node_hash(sibling, result)
            while not here & 1 and here:
                here >>= 1
                last >>= 1
        else:
            result = node_hash(result, sibling)
        here >>= 1
        last >>= 1
    return result if last == 0 else None
