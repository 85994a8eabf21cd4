"""The transports of httpx and httpx2, which tell the recorder of their context about every call.

`install` wraps the two transports of each library that is installed, once in a process. Every
client has one of them, also those that the clients of OpenAI and Anthropic make by themselves. What
has no body asks no model, and is not captured. Outside of an audited run a wrapped transport costs
one look at a context variable.

aiohttp goes around them, so within an audited run it is refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any, Final

from antiphon.errors import Misconfigured
from antiphon.runtime.inference.open_call import MAX_BYTES, OpenCall
from antiphon.runtime.inference.recorder import (
    RecordedBy,
    Recorder,
    carry_into_threads,
    current,
)

LIBRARIES: Final = ("httpx", "httpx2")
WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
_installing: Final = threading.Lock()
_installed: Final[list[str]] = []


def captured_by(recorder: Recorder) -> RecordedBy:
    """Tell a recorder about every call of this context while the block runs."""
    install()
    return RecordedBy(recorder)


def install() -> None:
    """Wrap the transports of this process; safe twice."""
    with _installing:
        if _installed:
            return
        for name in LIBRARIES:
            if importlib.util.find_spec(name) is not None:
                library = importlib.import_module(name)
                _wrap_sync(library)
                _wrap_async(library)
        if importlib.util.find_spec("aiohttp") is not None:
            _refuse(importlib.import_module("aiohttp"))
        carry_into_threads()
        _installed.append(__name__)


def _recorder_for(request: Any) -> Recorder | None:
    recorder = current()
    if recorder is None or recorder.is_closed or request.method in WITHOUT_BODY:
        return None
    return recorder


def _fits(request: Any) -> bool:
    """Whether a body that is a stream may be read into memory."""
    length = request.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= MAX_BYTES


def _wrap_sync(library: ModuleType) -> None:
    transport: Any = library.HTTPTransport
    really: Callable[[Any, Any], Any] = transport.handle_request

    class Told(library.SyncByteStream):  # type: ignore[name-defined,misc]  # known at run time
        """The answer's stream, which is told as it is read."""

        def __init__(self, stream: Any, call: OpenCall) -> None:
            self._stream, self._call = stream, call

        def __iter__(self) -> Iterator[bytes]:
            try:
                for chunk in self._stream:
                    self._call.took(chunk)
                    yield chunk
            except Exception as problem:
                self._call.over(is_complete=False, error=problem)
                raise
            self._call.over()

        def close(self) -> None:
            self._call.cut()
            self._stream.close()

    def handle_request(self: Any, request: Any) -> Any:
        recorder = _recorder_for(request)
        if recorder is None:
            return really(self, request)
        call = OpenCall(library, recorder, request)
        try:
            is_known = hasattr(request, "_content") or _fits(request)
            call.asked(request.read() if is_known else None)
            response = really(self, request)
        except BaseException as problem:
            call.over(is_complete=False, error=problem)
            raise
        call.answered(response)
        response.stream = Told(response.stream, call)
        return response

    transport.handle_request = handle_request


def _wrap_async(library: ModuleType) -> None:
    transport: Any = library.AsyncHTTPTransport
    really: Callable[[Any, Any], Any] = transport.handle_async_request

    class Told(library.AsyncByteStream):  # type: ignore[name-defined,misc]  # as above
        """The answer's stream, which is told as it is read."""

        def __init__(self, stream: Any, call: OpenCall) -> None:
            self._stream, self._call = stream, call

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for chunk in self._stream:
                    self._call.took(chunk)
                    yield chunk
            except Exception as problem:
                self._call.over(is_complete=False, error=problem)
                raise
            self._call.over()

        async def aclose(self) -> None:
            self._call.cut()
            await self._stream.aclose()

    async def handle_async_request(self: Any, request: Any) -> Any:
        recorder = _recorder_for(request)
        if recorder is None:
            return await really(self, request)
        call = OpenCall(library, recorder, request)
        try:
            is_known = hasattr(request, "_content") or _fits(request)
            call.asked(await request.aread() if is_known else None)
            response = await really(self, request)
        except BaseException as problem:
            call.over(is_complete=False, error=problem)
            raise
        call.answered(response)
        response.stream = Told(response.stream, call)
        return response

    transport.handle_async_request = handle_async_request


def _refuse(aiohttp: ModuleType) -> None:
    connector: Any = aiohttp.BaseConnector
    really: Callable[..., Any] = connector.connect

    async def connect(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = current()
        if recorder is not None and not recorder.is_closed:
            raise Misconfigured(
                "aiohttp cannot be captured, and the model calls of this job are audited",
                hint="use the client without its aiohttp extra: it speaks httpx then",
            )
        return await really(self, *args, **kwargs)

    connector.connect = connect
