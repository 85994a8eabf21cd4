"""Calls in the shapes of OpenAI's API, which many other servers speak too."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.core.inference.call_parts import (
    CallParts,
    Retrieved,
    count_of,
    mapping,
    objects,
    text_of,
)
from antiphon.core.inference.snapshot import Answer, Api, ToolCall
from antiphon.decoding import UNREADABLE

_RETRIEVED: Final = frozenset({"file", "input_file", "file_search_call", "web_search_call"})
_OUTPUT_OF_TOOLS: Final = frozenset({"function_call_output", "computer_call_output"})


def _arguments(value: Any) -> Any:
    """The arguments of a tool's call: JSON within a text."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except UNREADABLE:
        return value


def _tool(name: Any, call_id: Any, arguments: Any) -> ToolCall:
    return ToolCall(name=text_of(name), id=text_of(call_id), arguments=_arguments(arguments))


def _rest(asked: dict[str, Any], *taken: str) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name not in {"model", *taken}}


# --- chat -----------------------------------------------------------------------------------------


def read_chat(
    asked: dict[str, Any], answered: dict[str, Any] | None, events: list[dict[str, Any]]
) -> CallParts:
    """`/chat/completions`."""
    retrieved = Retrieved()
    prompt = [_message(one, retrieved) for one in objects(asked.get("messages"))]
    whole = answered if answered is not None else _assembled(events)
    choices, usage = objects(whole.get("choices")), mapping(whole.get("usage"))
    return CallParts(
        api="openai.chat",
        model=text_of(asked.get("model")),
        prompt=prompt,
        context=tuple(retrieved.found),
        parameters=_rest(asked, "messages"),
        version=text_of(whole.get("model")),
        fingerprint=text_of(whole.get("system_fingerprint")),
        answers=[_choice(one) for one in choices] if "choices" in whole else None,
        usage=usage or None,
        input_tokens=count_of(usage.get("prompt_tokens")),
        output_tokens=count_of(usage.get("completion_tokens")),
    )


def _message(message: dict[str, Any], retrieved: Retrieved) -> dict[str, Any]:
    """A message, with what came from tools and files taken out."""
    content = message.get("content")
    if text_of(message.get("role")) in {"tool", "function"}:
        return {**message, "content": retrieved.place(content)}
    if isinstance(content, list):
        return {**message, "content": [_block(one, retrieved) for one in content]}
    return message


def _block(block: Any, retrieved: Retrieved) -> Any:
    return retrieved.place(block) if text_of(mapping(block).get("type")) in _RETRIEVED else block


def _choice(choice: dict[str, Any]) -> Answer:
    message = mapping(choice.get("message"))
    known = {"role", "content", "tool_calls"}
    other = {name: value for name, value in message.items() if name not in known and value}
    called = [
        _tool(
            mapping(one.get("function")).get("name"),
            one.get("id"),
            mapping(one.get("function")).get("arguments"),
        )
        for one in objects(message.get("tool_calls"))
    ]
    return Answer(
        text=text_of(message.get("content")),
        tool_calls=tuple(called),
        stop=text_of(choice.get("finish_reason")),
        other=(other,) if other else (),
    )


def _assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer that the pieces of a stream come to."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for name in ("model", "system_fingerprint", "usage", "error"):
            if event.get(name):
                whole[name] = event[name]
        for piece in objects(event.get("choices")):
            index = count_of(piece.get("index")) or 0
            choice = choices.setdefault(index, {"message": {}})
            if piece.get("finish_reason"):
                choice["finish_reason"] = piece["finish_reason"]
            _add(choice["message"], mapping(piece.get("delta")))
    if choices:
        whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            _add_tools(message.setdefault("tool_calls", []), objects(value))
        elif isinstance(value, str) and name != "role":
            message[name] = text_of(message.get(name)) + value
        elif value is not None:
            message[name] = value


def _add_tools(calls: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
    for piece in pieces:
        index = count_of(piece.get("index"))
        if index is None or index > len(calls):
            index = len(calls)
        if index == len(calls):
            calls.append({"id": "", "function": {"name": "", "arguments": ""}})
        call, function = calls[index], mapping(piece.get("function"))
        call["id"] = call["id"] or text_of(piece.get("id"))
        for name in ("name", "arguments"):
            call["function"][name] += text_of(function.get(name))


# --- responses ------------------------------------------------------------------------------------


def read_responses(
    asked: dict[str, Any], answered: dict[str, Any] | None, events: list[dict[str, Any]]
) -> CallParts:
    """`/responses`."""
    retrieved = Retrieved()
    given = asked.get("input")
    if isinstance(given, list):
        given = [_item(one, retrieved) for one in given]
    prompt = {"input": given}
    if asked.get("instructions"):
        prompt["instructions"] = asked["instructions"]
    whole = answered if answered is not None else _last_response(events)
    usage = mapping(whole.get("usage"))
    return CallParts(
        api="openai.responses",
        model=text_of(asked.get("model")),
        prompt=prompt,
        context=tuple(retrieved.found),
        parameters=_rest(asked, "input", "instructions"),
        version=text_of(whole.get("model")),
        answers=[_response(whole)] if "output" in whole else None,
        usage=usage or None,
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
    )


def _item(item: Any, retrieved: Retrieved) -> Any:
    found = mapping(item)
    kind = text_of(found.get("type"))
    if kind in _OUTPUT_OF_TOOLS:
        return {**found, "output": retrieved.place(found.get("output"))}
    if kind in _RETRIEVED:
        return retrieved.place(item)
    if isinstance(found.get("content"), list):
        return {**found, "content": [_block(one, retrieved) for one in found["content"]]}
    return item


def _last_response(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest state of a streamed response; of one that was cut off, with its text so far."""
    whole: dict[str, Any] = {}
    text = ""
    for event in events:
        whole = mapping(event.get("response")) or whole
        if event.get("type") == "response.output_text.delta":
            text += text_of(event.get("delta"))
    if text and not whole.get("output"):
        part = {"type": "output_text", "text": text}
        return {**whole, "output": [{"type": "message", "content": [part]}]}
    return whole


def _response(whole: dict[str, Any]) -> Answer:
    texts: list[str] = []
    called: list[ToolCall] = []
    other: list[Any] = []
    for item in objects(whole.get("output")):
        if item.get("type") == "function_call":
            called.append(_tool(item.get("name"), item.get("call_id"), item.get("arguments")))
        elif item.get("type") == "message":
            for part in objects(item.get("content")):
                if part.get("type") == "output_text":
                    texts.append(text_of(part.get("text")))
                else:
                    other.append(part)
        else:
            other.append(item)
    reason = mapping(whole.get("incomplete_details")).get("reason")
    return Answer(
        text="".join(texts),
        tool_calls=tuple(called),
        stop=text_of(reason) or text_of(whole.get("status")),
        other=tuple(other),
    )


# --- completions and embeddings -------------------------------------------------------------------


def read_completions(
    asked: dict[str, Any], answered: dict[str, Any] | None, events: list[dict[str, Any]]
) -> CallParts:
    """`/completions`, the older form."""
    if answered is None:
        texts: dict[int, str] = {}
        answered = {}
        for event in events:
            answered = {**answered, **event}
            for piece in objects(event.get("choices")):
                index = count_of(piece.get("index")) or 0
                texts[index] = texts.get(index, "") + text_of(piece.get("text"))
        if texts:
            answered["choices"] = [{"text": texts[index]} for index in sorted(texts)]
    answers = [
        Answer(text=text_of(one.get("text")), stop=text_of(one.get("finish_reason")))
        for one in objects(answered.get("choices"))
    ]
    return _simple("openai.completions", "prompt", asked, answered, answers)


def read_embeddings(
    asked: dict[str, Any], answered: dict[str, Any] | None, _: list[dict[str, Any]]
) -> CallParts:
    """`/embeddings`; the vectors are kept as they came."""
    found = mapping(answered)
    answers = [Answer(other=(one.get("embedding"),)) for one in objects(found.get("data"))]
    return _simple("openai.embeddings", "input", asked, found, answers)


def _simple(
    api: Api, prompt: str, asked: dict[str, Any], whole: dict[str, Any], answers: list[Answer]
) -> CallParts:
    usage = mapping(whole.get("usage"))
    return CallParts(
        api=api,
        model=text_of(asked.get("model")),
        prompt=asked.get(prompt),
        parameters=_rest(asked, prompt),
        version=text_of(whole.get("model")),
        fingerprint=text_of(whole.get("system_fingerprint")),
        answers=answers or None,
        usage=usage or None,
        input_tokens=count_of(usage.get("prompt_tokens")),
        output_tokens=count_of(usage.get("completion_tokens")),
    )
