"""Captured exchanges for tests, as a transport would tell them."""

import json

from antiphon.core.inference.exchange import Exchange
from antiphon.runtime.inference.recorder import current

JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream"}
CHAT = "http://models.example/v1/chat/completions"


def exchange(asked=None, answered=None, *, url=CHAT, events=None, **fields):
    """A chat with a model, unless the fields say otherwise."""
    asked = asked or {"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]}
    answered = answered or {
        "model": "gpt-x-1",
        "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1},
    }
    raw = json.dumps(answered).encode()
    if events is not None:
        raw = b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in events)
    known = {
        "library": "httpx2 2",
        "method": "POST",
        "url": url,
        "request": json.dumps(asked).encode(),
        "response": raw,
        "response_headers": JSON if events is None else STREAM,
        "status": 200,
        "is_complete": True,
        "started": "0" * 16,
        "ended": "0" * 16,
    }
    return Exchange(**{**known, **fields})


def calls_a_model(words="hello", **fields):
    """Have the run that this is called in make a model call, without a network."""
    recorder = current()
    if recorder is not None:
        asked = {"model": "gpt-x", "messages": [{"role": "user", "content": words}]}
        stamps = {"started": recorder.stamp(), "ended": recorder.stamp()}
        recorder.add(exchange(asked, **stamps, **fields))
    return recorder is not None
