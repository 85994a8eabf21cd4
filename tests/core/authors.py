"""Deterministic keys, and signed records made with them.

Nothing here goes through the runtime: what is signed is spelled out, so that a test can also sign
what no honest author would.
"""

import hashlib
from dataclasses import dataclass, field
from functools import partial

from blake3 import blake3
from msgspec.structs import replace
from nacl import bindings

from antiphon.core.families.jobs.ops import CompleteBody
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import did_of, digest
from antiphon.core.record.op import Op, subject_of
from simulator.plain_proofs import plain_proof


@dataclass(frozen=True, slots=True)
class Author:
    """A key that is the same in every run."""

    name: str
    did: str = field(init=False)
    secret: bytes = field(init=False, repr=False)

    def __post_init__(self):
        seed = hashlib.sha256(b"antiphon test key " + self.name.encode()).digest()
        public, secret = bindings.crypto_sign_seed_keypair(seed)
        object.__setattr__(self, "did", did_of(public))
        object.__setattr__(self, "secret", secret)

    def sign(self, op_bytes: bytes, payload_type: str = signing.OP_TYPE) -> signing.Block:
        """The single form of the block."""
        signature = signing.sign(self.secret, payload_type, op_bytes)
        return signing.Block(sig=signature)


OWNER = Author("owner")
RECOVERY = Author("recovery")
ALICE = Author("alice")
BOB = Author("bob")
CAROL = Author("carol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """An op with its bytes, its own subject and a valid block."""

    op: Op
    op_bytes: bytes
    subject: str
    payload: bytes

    @property
    def op_id(self) -> str:
        return digest(self.op_bytes)


def signed(by: Author, op: Op) -> Signed:
    """The record that `by` would publish."""
    op_bytes = codec.encode(op)
    return Signed(
        op=op,
        op_bytes=op_bytes,
        subject=subject_of(op, op_bytes),
        payload=signing.frame(op_bytes, by.sign(op_bytes)),
    )


def proved(by: Author, mesh: str, body: CompleteBody, **says) -> CompleteBody:
    """A completion with its author's proof of just that, but for what `says` bends."""
    sign = partial(signing.sign, by.secret)
    return replace(body, proof=plain_proof(body, mesh, by.did, sign, **says))


def sign_bytes(by: Author, op_bytes: bytes) -> bytes:
    """A record around any bytes at all, truly signed."""
    return signing.frame(op_bytes, by.sign(op_bytes))


# --- an independent Merkle builder (RFC 6962's shape, BLAKE3) --------------------------------


def leaf(op_bytes: bytes) -> bytes:
    return blake3(b"\x00" + blake3(op_bytes).digest()).digest()


def split(size: int) -> int:
    """The largest power of two below `size`."""
    power = 1
    while power * 2 < size:
        power *= 2
    return power


def merkle_root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    cut = split(len(leaves))
    return blake3(b"\x01" + merkle_root(leaves[:cut]) + merkle_root(leaves[cut:])).digest()


def merkle_path(leaves: list[bytes], at: int) -> list[bytes]:
    """The siblings from the leaf up."""
    if len(leaves) == 1:
        return []
    cut = split(len(leaves))
    if at < cut:
        return [*merkle_path(leaves[:cut], at), merkle_root(leaves[cut:])]
    return [*merkle_path(leaves[cut:], at - cut), merkle_root(leaves[:cut])]


def sign_batch(by: Author, mesh: str, many: list[bytes]) -> list[signing.Block]:
    """One signature over all of them; a block for each."""
    leaves = [leaf(op_bytes) for op_bytes in many]
    root = merkle_root(leaves).hex()
    statement = f'{{"mesh":"{mesh}","root":"{root}","size":{len(many)}}}'.encode()
    signature = signing.sign(by.secret, signing.BATCH_TYPE, statement)
    return [
        signing.Block(
            sig=signature,
            at=at,
            of=len(many),
            path=b"".join(merkle_path(leaves, at)),
        )
        for at in range(len(many))
    ]
