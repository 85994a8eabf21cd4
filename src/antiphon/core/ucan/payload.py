"""The claims of a delegation: who gives whom which command over what, under which conditions.

The fields hold exactly what was written, so that encoding a decoded payload gives its bytes back.
Two of them may be left out or be null, and both mean the same: `sub` (a powerline; the
specification wants null, the Go implementation leaves it out) and `nbf` (from any time on; the Rust
implementation writes null). `exp` must be there, as a time or as null. Other fields are refused.
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
# In the order of DAG-CBOR: shorter keys first, then by their letters.
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
        """Whom the chain is about; None for a powerline, which passes on any subject's."""
        return None if self.sub is UNSET else self.sub

    @property
    def not_before(self) -> int | None:
        """The first second in which the delegation holds, or None."""
        return None if self.nbf is UNSET else self.nbf

    def check(self) -> None:
        """Raise `Malformed` unless every field is of its type and within its bounds."""
        public_key_of(_typed("iss", self.iss, str))
        public_key_of(_typed("aud", self.aud, str))
        if self.subject is not None:
            public_key_of(_typed("sub", self.subject, str))
        parse_command(_typed("cmd", self.cmd, str))
        _typed("pol", self.pol, Policy)
        if not 0 < len(_typed("nonce", self.nonce, bytes)) <= MAX_NONCE_BYTES:
            raise malformed(f"a nonce of {len(self.nonce)} bytes; 1 to {MAX_NONCE_BYTES}")
        for name, time in (("exp", self.exp), ("nbf", self.not_before)):
            if time is not None and abs(_typed(name, time, int)) > MAX_TIME:
                raise malformed(f"{name} lies outside 53 bits")
        if self.meta is not UNSET:
            _typed("meta", self.meta, dict)


def _typed(name: str, value: Any, wanted: type) -> Any:
    if type(value) is not wanted:  # exactly: True is an int to Python
        raise malformed(f"{name} is of type {type(value).__name__}, not {wanted.__name__}")
    return value


def encode_payload(payload: Payload) -> bytes:
    """The canonical bytes of a payload, or `Malformed` if it holds what cannot be written."""
    payload.check()
    written: list[bytes] = []
    for name in _FIELDS:
        value = getattr(payload, name)
        if value is UNSET:
            continue
        written.append(dag_cbor.encode(name))
        if name == "nonce":  # by hand: to libipld some random nonces look like links
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
        raise malformed(f"fields that are missing or unknown: {', '.join(odd)[:80]}")
    comes_back = dag_cbor.write(fields) == data
    pol = fields.pop("pol")
    if not isinstance(pol, list):
        raise malformed("pol is not a list")
    sub = fields.pop("sub", UNSET)
    payload = Payload(pol=Policy(pol), sub=sub, **fields)
    payload.check()
    # A nonce that looks like a link does not come back the quick way; the exact way decides.
    if not comes_back and encode_payload(payload) != data:
        raise malformed("the payload is not canonical")
    return payload
