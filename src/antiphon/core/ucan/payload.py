"""The claims of a delegation: issuer, audience, subject, command, policy and times.

The fields keep exactly what was written, so that encoding a decoded payload gives the same bytes.
Two of them may be absent or null, with the same meaning: `sub` (a powerline; the specification
wants null, the Go implementation leaves it out) and `nbf` (no start time; the Rust implementation
writes null). `exp` is required, as a time or null. Unknown fields are refused.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from antiphon.core.ucan import dag_cbor
from antiphon.core.ucan.command import parse_command
from antiphon.core.ucan.dag_cbor import malformed
from antiphon.core.ucan.did import public_key_of
from antiphon.core.ucan.policy import Policy

MAX_TIME: Final = 2**53 - 1
MAX_NONCE_BYTES: Final = 256
# In the order of DAG-CBOR: shorter keys first, then alphabetically.
_FIELDS: Final = ("aud", "cmd", "exp", "iss", "nbf", "pol", "sub", "meta", "nonce")
_REQUIRED: Final = frozenset({"aud", "cmd", "exp", "iss", "pol", "nonce"})
_ALL: Final = frozenset(_FIELDS)


class Payload(Struct, frozen=True, kw_only=True, eq=False):
    """A delegation before it is signed. Times are whole seconds since 1970, both inclusive."""

    iss: str
    aud: str
    sub: str | UnsetType | None
    cmd: str
    pol: Policy
    nonce: bytes
    exp: int | None
    nbf: int | UnsetType | None = UNSET
    meta: dict[str, Any] | UnsetType = UNSET

    @property
    def subject(self) -> str | None:
        """Whom the chain is about; None for a powerline, which is for any subject."""
        return None if self.sub is UNSET else self.sub

    @property
    def not_before(self) -> int | None:
        """The first second in which the delegation is valid, or None."""
        return None if self.nbf is UNSET else self.nbf

    def check(self) -> None:
        """Raise `Malformed` unless every field has its type and is within its bounds."""
        public_key_of(_typed("iss", self.iss, str))
        public_key_of(_typed("aud", self.aud, str))
        if self.subject is not None:
            public_key_of(_typed("sub", self.subject, str))
        parse_command(_typed("cmd", self.cmd, str))
        _typed("pol", self.pol, Policy)
        if not 0 < len(_typed("nonce", self.nonce, bytes)) <= MAX_NONCE_BYTES:
            raise malformed(
                f"a nonce of {len(self.nonce)} bytes; it must have 1 to {MAX_NONCE_BYTES}"
            )
        for name, time in (("exp", self.exp), ("nbf", self.not_before)):
            if time is not None and abs(_typed(name, time, int)) > MAX_TIME:
                raise malformed(f"{name} does not fit into 53 bits")
        if self.meta is not UNSET:
            _typed("meta", self.meta, dict)


def _typed(name: str, value: Any, wanted: type) -> Any:
    if type(value) is not wanted:  # exact type: True is an int in Python
        raise malformed(f"{name} is of type {type(value).__name__}, not {wanted.__name__}")
    return value


def encode_payload(payload: Payload) -> bytes:
    """The canonical bytes of a payload, or `Malformed` if a value cannot be encoded."""
    payload.check()
    written: list[bytes] = []
    for name in _FIELDS:
        value = getattr(payload, name)
        if value is UNSET:
            continue
        written.append(dag_cbor.encode(name))
        if name == "nonce":  # by hand: libipld would write some random nonces as links
            written.append(dag_cbor.encode_bytes(value))
        else:
            written.append(dag_cbor.encode(value.source if name == "pol" else value))
    return dag_cbor.encode_map_head(len(written) // 2) + b"".join(written)


def decode_payload(data: bytes) -> Payload:
    """The payload that these canonical bytes hold, or `Malformed`."""
    fields = dag_cbor.decode(data)
    if not isinstance(fields, dict):
        raise malformed("the payload is not a map")
    keys = fields.keys()
    if not _REQUIRED <= keys <= _ALL:
        odd = sorted((_REQUIRED - keys) | (keys - _ALL))
        raise malformed(f"missing or unknown fields: {', '.join(odd)[:80]}")
    comes_back = dag_cbor.write(fields) == data
    pol = fields.pop("pol")
    if not isinstance(pol, list):
        raise malformed("pol is not a list")
    sub = fields.pop("sub", UNSET)
    payload = Payload(pol=Policy(pol), sub=sub, **fields)
    payload.check()
    # A nonce that looks like a link fails the fast comparison; the exact one decides.
    if not comes_back and encode_payload(payload) != data:
        raise malformed("the payload is not canonical")
    return payload
