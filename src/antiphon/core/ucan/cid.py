"""Content ids of delegations: CIDv1, DAG-CBOR, SHA-256.

One spelling inside: base32 (`bafyrei…`), which is what the working group's fixtures and libipld
write. The specification's text asks for base58btc (`zdpu…`); `parse_cid` reads both and gives the
first, so that comparing ids is comparing strings.
"""

from __future__ import annotations

import hashlib
from typing import Final

import libipld

from antiphon.core.ucan.dag_cbor import malformed

_HEAD: Final = b"\x01\x71\x12\x20"  # CIDv1, DAG-CBOR, SHA-256, 32 bytes
_BYTES: Final = len(_HEAD) + 32
_MAX_LETTERS: Final = 64


def cid_of(data: bytes) -> str:
    """The CID of an envelope's bytes."""
    return libipld.encode_cid(_HEAD + hashlib.sha256(data).digest())


def parse_cid(text: str) -> str:
    """The canonical spelling of a delegation's CID, or `Malformed`."""
    if not text.startswith(("b", "z")) or len(text) > _MAX_LETTERS:
        raise malformed(f"{text[:_MAX_LETTERS]!r} is not the CID of a delegation")
    try:
        base, raw = libipld.decode_multibase(text)
        again = libipld.encode_multibase(base, raw)
    except ValueError as problem:
        raise malformed(f"{text!r} is not a CID") from problem
    if again != text or len(raw) != _BYTES or not raw.startswith(_HEAD):
        raise malformed(f"{text!r} is not a CIDv1 of DAG-CBOR under SHA-256")
    return libipld.encode_cid(raw)
