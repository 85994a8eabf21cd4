"""Outputs of a run, by content, and the DSSE envelope of its proof."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from antiphon.core.record.op import Body, Count, Digest


class Output(Body, frozen=True):
    """One output by content; small UTF-8 ones are included as text."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    hash: Digest
    size: Count
    type: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None = None
    text: Annotated[str, Meta(max_length=128 * 1024)] | None = None


class DsseSignature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signature of a DSSE envelope."""

    keyid: Annotated[str, Meta(max_length=128)]
    sig: Annotated[str, Meta(max_length=128)]


class DsseEnvelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A DSSE envelope, as in its specification."""

    payload: Annotated[str, Meta(max_length=192 * 1024)]
    payload_type: Annotated[str, Meta(max_length=255)] = msgspec.field(name="payloadType")
    signatures: Annotated[tuple[DsseSignature, ...], Meta(min_length=1, max_length=4)]
