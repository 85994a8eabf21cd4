"""Delegations on the wire: `[signature, {"h": header, "ucan/dlg@1.0.0-rc.1": payload}]`.

With one algorithm (Ed25519 over DAG-CBOR) and one version, everything in the envelope except the
signature and the payload is constant. So reading compares the constants and takes the rest, and
what was signed is a slice of the received bytes, never encoded again.

The varsig header reads: varsig, version 1, EdDSA, on edwards25519, with SHA-512, over DAG-CBOR.

A delegation's id is the CID of its bytes: CIDv1, DAG-CBOR, SHA-256. It is always written in base32
(`bafyrei…`), like the working group's fixtures and libipld do, so that ids can be compared as
strings. The specification's text asks for base58btc (`zdpu…`).

Opening an envelope does not verify its signature: see `signatures`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import libipld

from antiphon.core.ucan.dag_cbor import MAX_BYTES, encode_bytes, encode_map_head, malformed
from antiphon.core.ucan.payload import Payload, decode_payload, encode_payload

TAG: Final = "ucan/dlg@1.0.0-rc.1"
VARSIG_HEADER: Final = bytes.fromhex("3401ed01ed011371")
SIGNATURE_BYTES: Final = 64
MIN_NONCE_BYTES: Final = 12  # for issuing; shorter ones are accepted

_PAIR: Final = b"\x82"  # a list of two
_SIGNATURE: Final = _PAIR + encode_bytes(bytes(SIGNATURE_BYTES))[:-SIGNATURE_BYTES]
_SIGNED_AT: Final = len(_SIGNATURE) + SIGNATURE_BYTES
_TAG_ITEM: Final = bytes((0x60 | len(TAG),)) + TAG.encode()
_SIGNED_HEAD: Final = encode_map_head(2) + b"\x61h" + encode_bytes(VARSIG_HEADER) + _TAG_ITEM
_PAYLOAD_AT: Final = _SIGNED_AT + len(_SIGNED_HEAD)
_CID_HEAD: Final = b"\x01\x71\x12\x20"  # CIDv1, DAG-CBOR, SHA-256, 32 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """A signed delegation. Two are equal if their bytes are."""

    raw: bytes
    cid: str = field(compare=False)
    payload: Payload = field(compare=False, repr=False)

    @property
    def signature(self) -> bytes:
        """The issuer's signature, verified or not."""
        return self.raw[len(_SIGNATURE) : _SIGNED_AT]

    @property
    def signed(self) -> bytes:
        """The bytes that were signed."""
        return self.raw[_SIGNED_AT:]


def cid_of(raw: bytes) -> str:
    """The CID of an envelope's bytes."""
    return libipld.encode_cid(_CID_HEAD + hashlib.sha256(raw).digest())


def open_envelope(raw: bytes) -> Delegation:
    """The delegation in an envelope's bytes, or `Malformed`. Does not check the signature."""
    if len(raw) > MAX_BYTES:
        raise malformed(f"a delegation of {len(raw)} bytes is too large; the limit is {MAX_BYTES}")
    if not raw.startswith(_SIGNATURE):
        raise malformed("not an envelope: a pair that begins with a 64-byte signature")
    if not raw.startswith(_SIGNED_HEAD, _SIGNED_AT):
        raise malformed(f"not an Ed25519 varsig over DAG-CBOR and a {TAG} payload")
    return Delegation(raw=raw, cid=cid_of(raw), payload=decode_payload(raw[_PAYLOAD_AT:]))


def seal_envelope(payload: Payload, signature: bytes) -> Delegation:
    """The envelope of a payload and its signature."""
    if len(signature) != SIGNATURE_BYTES:
        raise malformed(f"an Ed25519 signature has {SIGNATURE_BYTES} bytes")
    return open_envelope(_SIGNATURE + signature + to_be_signed(payload))


def to_be_signed(payload: Payload) -> bytes:
    """The bytes that an issuer signs."""
    return _SIGNED_HEAD + encode_payload(payload)


def issue(payload: Payload, sign: Callable[[bytes], bytes]) -> Delegation:
    """Sign a payload; `sign` uses the issuer's key, which this code never sees."""
    if len(payload.nonce) < MIN_NONCE_BYTES:
        raise malformed(
            f"a nonce of {len(payload.nonce)} bytes; it must have at least {MIN_NONCE_BYTES}"
        )
    return seal_envelope(payload, sign(to_be_signed(payload)))
