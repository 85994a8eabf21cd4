"""A local server that speaks the protocols of OpenAI and Anthropic, to test agents without a model.

    with ModelServer() as server:
        client = openai.OpenAI(base_url=server.openai_url, api_key="none")

Its answers follow from the question: it repeats the last words of the user, or if it is given tools
and no result of one yet, it calls the first tool with those words. It answers whole and as a
stream. A model whose name begins with `missing` does not exist; the error repeats the key, as some
real servers do. It listens on the loopback interface alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

NOT_FOUND: Final = 404
OK: Final = 200
CALL_ID: Final = "call_1"


class ModelServer:
    """The server; use it in a `with` block, or call `start`."""

    def __init__(self) -> None:
        """It answers as soon as it is started."""
        self.requests: list[dict[str, Any]] = []
        """What it was asked, oldest first: `path`, `headers` and `body`."""
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its address: the base of Anthropic's API."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def openai_url(self) -> str:
        """The base of OpenAI's API."""
        return f"{self.url}/v1"

    def start(self) -> Self:
        """Begin to answer, until `stop` or the end of the program."""
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that goes away in the middle of a request is nobody's problem."""


def _handler_of(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # the base class wants this name
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            server.requests.append(
                {"path": self.path, "headers": dict(self.headers.items()), "body": body}
            )
            if str(body.get("model", "")).startswith("missing"):
                key = self.headers.get("authorization") or self.headers.get("x-api-key", "")
                problem = {"message": f"no such model; the key was {key}", "type": "not_found"}
                self._send(NOT_FOUND, {"type": "error", "error": problem})
                return
            answer = _ANSWERS.get(self.path.partition("?")[0])
            if answer is None:
                self._send(OK, {"path": self.path, "received": body})
                return
            whole, events = answer(body)
            if body.get("stream"):
                self._stream(events)
            else:
                self._send(OK, whole)

        def _send(self, status: int, content: dict[str, Any]) -> None:
            raw = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("x-request-id", f"req-{len(server.requests)}")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def _stream(self, events: Iterator[tuple[str, dict[str, Any]]]) -> None:
            self.send_response(OK)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for name, event in events:
                head = f"event: {name}\n" if name else ""
                self._chunk(f"{head}data: {json.dumps(event)}\n\n".encode())
            self._chunk(b"" if self.path.endswith("/messages") else b"data: [DONE]\n\n")
            if not self.path.endswith("/messages"):
                self._chunk(b"")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


# --- what it answers ------------------------------------------------------------------------------


def _words(content: Any) -> str:
    """The text of a message."""
    if isinstance(content, list):
        texts = [one.get("text", "") for one in content if isinstance(one, dict)]
        return " ".join(filter(None, texts))
    return str(content or "")


def _said(messages: Any) -> str:
    """The last words of the user."""
    if isinstance(messages, str):
        return messages
    own = [one for one in messages if one.get("role") == "user" and _words(one.get("content"))]
    return _words(own[-1]["content"]) if own else ""


def _has_result(messages: Any) -> bool:
    """Whether a tool has answered."""
    return '"tool_call_id"' in (text := json.dumps(messages)) or any(
        word in text for word in ('"tool_result"', '"function_call_output"')
    )


def _tool(body: dict[str, Any], messages: Any) -> str:
    """The name of the tool to call; empty: none."""
    tools = body.get("tools") or []
    if not tools or _has_result(messages):
        return ""
    first = tools[0]
    return str(first.get("function", first).get("name", ""))


def _tokens(asked: Any, answer: str) -> tuple[int, int]:
    return len(json.dumps(asked)) // 4 + 1, len(answer) // 4 + 1


Answered = tuple[dict[str, Any], Iterator[tuple[str, dict[str, Any]]]]


def _chat(body: dict[str, Any]) -> Answered:
    messages = body.get("messages", [])
    text, tool = f"echo: {_said(messages)}", _tool(body, messages)
    asked, answered = _tokens(messages, text)
    usage = {"prompt_tokens": asked, "completion_tokens": answered}
    usage["total_tokens"] = asked + answered
    about = {"id": "chatcmpl-1", "created": 1, "model": f"{body.get('model')}-2026-01-01"}
    arguments = json.dumps({"query": _said(messages)})
    called = [
        {"id": CALL_ID, "type": "function", "function": {"name": tool, "arguments": arguments}}
    ]
    message: dict[str, Any] = {"role": "assistant", "content": None if tool else text}
    if tool:
        message["tool_calls"] = called
    reason = "tool_calls" if tool else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
    whole["system_fingerprint"] = "fp_1"

    def events() -> Iterator[tuple[str, dict[str, Any]]]:
        piece = {**about, "object": "chat.completion.chunk", "system_fingerprint": "fp_1"}

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {**piece, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield "", chunk({"role": "assistant"})
        if tool:
            begun = {"index": 0, "id": CALL_ID, "type": "function"}
            yield (
                "",
                chunk({"tool_calls": [{**begun, "function": {"name": tool, "arguments": ""}}]}),
            )
            for part in _pieces(arguments):
                yield "", chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
        else:
            for part in _pieces(text):
                yield "", chunk({"content": part})
        yield "", chunk({}, reason)
        yield "", {**piece, "choices": [], "usage": usage}

    return whole, events()


def _responses(body: dict[str, Any]) -> Answered:
    given = body.get("input", "")
    text, tool = f"echo: {_said(given)}", _tool(body, given)
    asked, answered = _tokens(given, text)
    arguments = json.dumps({"query": _said(given)})
    item: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    if tool:
        item = {"type": "function_call", "id": "fc_1", "call_id": CALL_ID, "name": tool}
        item |= {"arguments": arguments, "status": "completed"}
    usage = {"input_tokens": asked, "output_tokens": answered, "total_tokens": asked + answered}
    whole = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": f"{body.get('model')}-2026-01-01",
        "output": [item],
        "usage": usage,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }

    def events() -> Iterator[tuple[str, dict[str, Any]]]:
        begun = {**whole, "status": "in_progress", "output": []}
        yield "response.created", {"type": "response.created", "response": begun}
        for part in _pieces(text) if not tool else ():
            delta = {"type": "response.output_text.delta", "delta": part, "item_id": "msg_1"}
            yield "response.output_text.delta", delta | {"output_index": 0, "content_index": 0}
        yield "response.completed", {"type": "response.completed", "response": whole}

    return whole, events()


def _messages(body: dict[str, Any]) -> Answered:
    messages = body.get("messages", [])
    text, tool = f"echo: {_said(messages)}", _tool(body, messages)
    asked, answered = _tokens(messages, text)
    given = {"query": _said(messages)}
    block: dict[str, Any] = {"type": "text", "text": text}
    if tool:
        block = {"type": "tool_use", "id": CALL_ID, "name": tool, "input": given}
    reason = "tool_use" if tool else "end_turn"
    about = {"id": "msg_1", "type": "message", "role": "assistant"}
    about["model"] = f"{body.get('model')}-2026-01-01"
    usage = {"input_tokens": asked, "output_tokens": answered}
    whole: dict[str, Any] = {**about, "content": [block], "stop_reason": reason}
    whole |= {"stop_sequence": None}
    whole["usage"] = usage

    def events() -> Iterator[tuple[str, dict[str, Any]]]:
        first = {**whole, "content": [], "stop_reason": None}
        first["usage"] = {"input_tokens": asked, "output_tokens": 0}
        yield "message_start", {"type": "message_start", "message": first}
        empty = {**block, "input": {}} if tool else {**block, "text": ""}
        yield "content_block_start", _at(0, "content_block_start", content_block=empty)
        for part in _pieces(json.dumps(given) if tool else text):
            delta = {"type": "text_delta", "text": part}
            if tool:
                delta = {"type": "input_json_delta", "partial_json": part}
            yield "content_block_delta", _at(0, "content_block_delta", delta=delta)
        yield "content_block_stop", _at(0, "content_block_stop")
        end = {"stop_reason": reason, "stop_sequence": None}
        spent = {"output_tokens": answered}
        yield "message_delta", {"type": "message_delta", "delta": end, "usage": spent}
        yield "message_stop", {"type": "message_stop"}

    return whole, events()


def _at(index: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"type": name, "index": index, **fields}


def _embeddings(body: dict[str, Any]) -> Answered:
    given = body.get("input", "")
    texts = [given] if isinstance(given, str) else list(given)
    data = [
        {"object": "embedding", "index": index, "embedding": [float(len(text)), 0.5]}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return {"object": "list", "model": body.get("model"), "data": data, "usage": usage}, iter(())


def _pieces(text: str) -> list[str]:
    """A text in three."""
    size = max(len(text) // 3, 1)
    return [text[at : at + size] for at in range(0, len(text), size)]


_ANSWERS: Final = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/v1/messages": _messages,
    "/v1/embeddings": _embeddings,
}
