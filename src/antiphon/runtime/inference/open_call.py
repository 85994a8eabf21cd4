"""One call of a handler, from its request to the end of its answer."""

from __future__ import annotations

import threading
import zlib
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from blake3 import blake3

from antiphon.core.inference.event_stream import has_ended
from antiphon.core.inference.exchange import Exchange
from antiphon.core.record.ids import DIGEST_PREFIX, digest
from antiphon.runtime import tracing
from antiphon.runtime.inference.credentials import (
    plain_url,
    secrets_in,
    told_headers,
    without_secrets,
)
from antiphon.runtime.inference.recorder import Recorder

MAX_BYTES: Final = 4 * 1024 * 1024
"""Of a request, and of an answer; a longer one is kept as its digest."""
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class OpenCall:
    """Collects what a call says; tells it once."""

    def __init__(self, library: ModuleType, recorder: Recorder, request: Any) -> None:
        """Before the request is sent; `GiveUp` if there may be no more calls."""
        self._library = library
        self._recorder = recorder
        self._request = request
        self._response: Any = None
        self._body: bytes | None = b""
        self._chunks: list[bytes] = []
        self._size = 0
        self._hash = blake3()
        self._first_byte_s: float | None = None
        self._began_s = recorder.now_s()
        self._started = recorder.stamp()
        self._ending = threading.Lock()
        self._is_over = False
        recorder.begin(self)
        self._span = tracing.begin_model_call()

    def asked(self, body: bytes | None) -> None:
        """What is sent; None: it is too long to be read, or cannot be read twice."""
        self._body = body

    def answered(self, response: Any) -> None:
        """The head of the answer is here."""
        self._response = response

    def took(self, chunk: bytes) -> None:
        """A piece of the answer."""
        if self._first_byte_s is None:
            self._first_byte_s = self._recorder.now_s()
        self._size += len(chunk)
        self._hash.update(chunk)
        if self._size <= MAX_BYTES:
            self._chunks.append(chunk)

    def cut(self) -> None:
        """Nobody reads on."""
        self.over(is_complete=False)

    def over(self, *, is_complete: bool = True, error: BaseException | None = None) -> None:
        """The answer has ended, or will not; safe twice."""
        with self._ending:
            if self._is_over:
                return
            self._is_over = True
        exchange = self._exchange(is_complete=is_complete, error=error)
        tracing.end_model_call(self._span, exchange)
        self._recorder.end(self, exchange)

    def _exchange(self, *, is_complete: bool, error: BaseException | None) -> Exchange:
        request, response = self._request, self._response
        url = str(request.url)
        secrets = secrets_in(url, request.headers)
        body, found = without_secrets(self._body or b"", secrets)
        answer, more = without_secrets(self._decoded(), secrets)
        words = f"{type(error).__name__}: {error}".encode() if error is not None else b""
        told, again = without_secrets(words, secrets)
        version = getattr(self._library, "__version__", "")
        return Exchange(
            library=f"{self._library.__name__} {version}".strip(),
            method=request.method,
            url=plain_url(url),
            request=body if len(body) <= MAX_BYTES else b"",
            request_cut=self._request_cut(body),
            response=answer if self._size <= MAX_BYTES else b"",
            response_cut=self._response_cut(),
            request_headers=told_headers(request.headers.items()),
            response_headers=told_headers(response.headers.items()) if response else {},
            status=response.status_code if response is not None else None,
            is_complete=is_complete or has_ended(answer),
            error=told.decode("utf-8", "replace"),
            started=self._started,
            ended=self._recorder.stamp(),
            duration_ms=self._since_ms(self._recorder.now_s()),
            first_byte_ms=None
            if self._first_byte_s is None
            else self._since_ms(self._first_byte_s),
            secrets=found + more + again,
        )

    def _since_ms(self, at_s: float) -> int:
        return max(round((at_s - self._began_s) * 1000), 0)

    def _request_cut(self, body: bytes) -> tuple[str, int] | None:
        if self._body is None:
            return "", 0
        return None if len(body) <= MAX_BYTES else (digest(body), len(body))

    def _response_cut(self) -> tuple[str, int] | None:
        if self._size <= MAX_BYTES:
            return None
        return DIGEST_PREFIX + self._hash.hexdigest(), self._size

    def _decoded(self) -> bytes:
        """The answer as its reader gets it; what cannot be decoded is left as it came."""
        raw = b"".join(self._chunks)
        coding = self._response.headers.get("content-encoding", "") if self._response else ""
        if not coding or self._size > MAX_BYTES:
            return raw
        if coding.strip().lower() in {"gzip", "deflate"}:
            with suppress(zlib.error):
                return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(raw, MAX_BYTES)
            return raw
        with suppress(Exception):  # whatever the library's decoders raise
            headers = {"content-encoding": coding}
            decoded: bytes = self._library.Response(200, headers=headers, content=raw).content
            return decoded[:MAX_BYTES]
        return raw
