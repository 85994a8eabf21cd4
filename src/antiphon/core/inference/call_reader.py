"""An exchange becomes a snapshot: parsed if its shape is known, else kept as it was.

Whether it is a call of OpenAI's or Anthropic's shape is seen from the path and the request itself,
so that servers that speak the same protocol under another address are read too.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from antiphon.core.inference import anthropic_calls, openai_calls
from antiphon.core.inference.call_parts import CallParts, ReadsCalls
from antiphon.core.inference.event_stream import events_in
from antiphon.core.inference.exchange import Exchange
from antiphon.core.inference.snapshot import (
    Backend,
    Content,
    Model,
    Snapshot,
    Source,
    Telemetry,
    Tokens,
    with_redactions,
)
from antiphon.decoding import UNREADABLE

_BY_PATH: Final[tuple[tuple[str, str, ReadsCalls], ...]] = (
    ("/chat/completions", "messages", openai_calls.read_chat),
    ("/responses", "model", openai_calls.read_responses),
    ("/completions", "prompt", openai_calls.read_completions),
    ("/embeddings", "input", openai_calls.read_embeddings),
    ("/messages", "messages", anthropic_calls.read_messages),
)
"""How a path ends, what the request must have, and who reads it."""
EVENTS: Final = "text/event-stream"
MAX_WORD: Final = 1024
_decode = msgspec.json.Decoder().decode


def parts_of(exchange: Exchange) -> CallParts | None:
    """A call, taken apart; None if its shape is not known."""
    asked = _object(exchange.request)
    reads = None if asked is None else _reader_of(exchange, asked)
    if asked is None or reads is None:
        return None
    try:
        if is_stream(exchange):
            return reads(asked, None, events_in(exchange.response))
        return reads(asked, _object(exchange.response) or {}, [])
    except (TypeError, ValueError, LookupError, AttributeError):
        return None  # known by its name alone; whatever it is, it is kept as it was


def _reader_of(exchange: Exchange, asked: dict[str, Any]) -> ReadsCalls | None:
    path = exchange.url.rstrip("/")
    for ending, needed, reads in _BY_PATH:
        if path.endswith(ending) and needed in asked:
            return reads
    if isinstance(asked.get("messages"), list) and "model" in asked:
        is_other = "anthropic-version" in exchange.request_headers
        return anthropic_calls.read_messages if is_other else openai_calls.read_chat
    return None


def is_stream(exchange: Exchange) -> bool:
    """Whether the answer came as events."""
    return exchange.response_headers.get("content-type", "").startswith(EVENTS)


def snapshot_of(exchange: Exchange, source: Source, redact: tuple[str, ...] = ()) -> Snapshot:
    """The snapshot of an exchange, without what the policy redacts."""
    parts = parts_of(exchange)
    taken = [
        *(["secret"] if exchange.secrets else []),
        *(["size"] if exchange.request_cut or exchange.response_cut else []),
    ]
    made = _parsed(exchange, source, parts) if parts is not None else _raw(exchange, source)
    return with_redactions(replace(made, redacted=tuple(taken)), redact)


def _parsed(exchange: Exchange, source: Source, parts: CallParts) -> Snapshot:
    if parts.answers is None or exchange.response_cut is not None:
        output = _content(exchange.response, exchange.response_cut)
    else:
        output = Content(value=_decode(msgspec.json.encode(parts.answers)))
    return replace(
        _about(exchange, source),
        model=Model(
            id=parts.model[:MAX_WORD],
            version=parts.version[:MAX_WORD],
            fingerprint=parts.fingerprint[:MAX_WORD],
        ),
        backend=_backend(exchange, parts),
        prompt=Content(value=parts.prompt),
        context=tuple(Content(value=one) for one in parts.context),
        parameters=parts.parameters,
        output=output,
        tokens=Tokens(input=parts.input_tokens, output=parts.output_tokens, details=parts.usage),
    )


def _raw(exchange: Exchange, source: Source) -> Snapshot:
    """Of a shape that is not known: what was sent and what came, as it was."""
    asked = _object(exchange.request) or {}
    named = asked.get("model")
    return replace(
        _about(exchange, source),
        model=Model(id=named[:MAX_WORD] if isinstance(named, str) else ""),
    )


def _about(exchange: Exchange, source: Source) -> Snapshot:
    return Snapshot(
        source=source,
        model=Model(),
        backend=_backend(exchange, None),
        started=exchange.started,
        ended=exchange.ended,
        prompt=_content(exchange.request, exchange.request_cut),
        output=_content(exchange.response, exchange.response_cut),
        telemetry=Telemetry(
            status=exchange.status,
            is_stream=is_stream(exchange),
            events=len(events_in(exchange.response)) if is_stream(exchange) else 0,
            is_complete=exchange.is_complete,
            duration_ms=exchange.duration_ms,
            first_byte_ms=exchange.first_byte_ms,
            headers=_headers(exchange.response_headers),
            error=exchange.error[:MAX_WORD],
        ),
    )


def _backend(exchange: Exchange, parts: CallParts | None) -> Backend:
    return Backend(
        url=exchange.url[:4096],
        method=exchange.method[:MAX_WORD],
        api="raw" if parts is None else parts.api,
        library=exchange.library[:MAX_WORD],
        headers=_headers(exchange.request_headers),
    )


def _headers(found: dict[str, str]) -> dict[str, str]:
    return {name: value[:MAX_WORD] for name, value in found.items()}


def _content(raw: bytes, cut: tuple[str, int] | None) -> Content:
    if cut is not None:
        return Content(redacted="size", hash=cut[0], size=cut[1])
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Content(base64=base64.b64encode(raw).decode())
    try:
        return Content(value=_decode(text) if text[:1] in {"{", "["} else text)
    except UNREADABLE:
        return Content(value=text)


def _object(raw: bytes) -> dict[str, Any] | None:
    if raw.lstrip()[:1] != b"{":
        return None
    try:
        found = _decode(raw)
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None
