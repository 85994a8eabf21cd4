"""What a message says, checked before it is signed."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.core.messages import envelope as envelopes
from antiphon.errors import Malformed


def checked_body(**fields: Any) -> envelopes.MessageBody:
    """A message's body, checked as its receiver checks it."""
    try:
        return msgspec.convert(
            {**fields, "payload": fields["payload"]}, type=envelopes.MessageBody, strict=True
        )
    except msgspec.ValidationError as problem:
        raise Malformed(f"this message cannot be sent: {problem}", reason="message") from problem


def encoded_payload(payload: object) -> bytes:
    """A payload as JSON, or `Malformed`."""
    try:
        return msgspec.json.encode(payload)
    except (TypeError, ValueError) as problem:
        raise Malformed(
            f"this payload is not JSON: {problem}",
            reason="payload",
            hint="send plain values, dataclasses or msgspec Structs; larger things as artifacts",
        ) from problem
