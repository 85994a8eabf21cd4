"""Calls in the shape of Anthropic's API: `/v1/messages`."""

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
from antiphon.core.inference.snapshot import Answer, ToolCall
from antiphon.decoding import UNREADABLE

_RETRIEVED: Final = frozenset(
    {"document", "search_result", "web_search_tool_result", "web_fetch_tool_result"}
)
_TOOLS: Final = frozenset({"tool_use", "server_tool_use"})


def read_messages(
    asked: dict[str, Any], answered: dict[str, Any] | None, events: list[dict[str, Any]]
) -> CallParts:
    """A message and its answer."""
    retrieved = Retrieved()
    messages = [_message(one, retrieved) for one in objects(asked.get("messages"))]
    prompt: dict[str, Any] = {"messages": messages}
    if "system" in asked:
        prompt["system"] = _content(asked["system"], retrieved)
    whole = answered if answered is not None else _assembled(events)
    usage = mapping(whole.get("usage"))
    taken = {"model", "messages", "system"}
    return CallParts(
        api="anthropic.messages",
        model=text_of(asked.get("model")),
        prompt=prompt,
        context=tuple(retrieved.found),
        parameters={name: value for name, value in asked.items() if name not in taken},
        version=text_of(whole.get("model")),
        answers=[_answer(whole)] if "content" in whole else None,
        usage=usage or None,
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
    )


def _message(message: dict[str, Any], retrieved: Retrieved) -> dict[str, Any]:
    return {**message, "content": _content(message.get("content"), retrieved)}


def _content(content: Any, retrieved: Retrieved) -> Any:
    return [_block(one, retrieved) for one in content] if isinstance(content, list) else content


def _block(block: Any, retrieved: Retrieved) -> Any:
    found = mapping(block)
    if found.get("type") == "tool_result":
        return {**found, "content": retrieved.place(found.get("content"))}
    return retrieved.place(block) if text_of(found.get("type")) in _RETRIEVED else block


def _answer(whole: dict[str, Any]) -> Answer:
    texts: list[str] = []
    called: list[ToolCall] = []
    other: list[Any] = []
    for block in objects(whole.get("content")):
        if block.get("type") == "text":
            texts.append(text_of(block.get("text")))
        elif text_of(block.get("type")) in _TOOLS:
            name, call_id = text_of(block.get("name")), text_of(block.get("id"))
            called.append(ToolCall(name=name, id=call_id, arguments=block.get("input")))
        else:
            other.append(block)
    return Answer(
        text="".join(texts),
        tool_calls=tuple(called),
        stop=text_of(whole.get("stop_reason")),
        other=tuple(other),
    )


def _assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events of a stream come to."""
    whole: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        index = count_of(event.get("index")) or 0
        match event.get("type"):
            case "message_start":
                whole.update(mapping(event.get("message")))
            case "content_block_start":
                blocks[index] = dict(mapping(event.get("content_block")))
            case "content_block_delta":
                _add(blocks.setdefault(index, {"type": "text"}), mapping(event.get("delta")))
            case "message_delta":
                whole.update(mapping(event.get("delta")))
                usage = {**mapping(whole.get("usage")), **mapping(event.get("usage"))}
                whole["usage"] = usage
            case "error":
                whole["error"] = event.get("error")
    if blocks:
        whole["content"] = [_closed(blocks[index]) for index in sorted(blocks)]
    return whole


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "partial_json":
            block["partial_json"] = block.get("partial_json", "") + text_of(value)
        elif isinstance(value, str) and name != "type":
            block[name] = text_of(block.get(name)) + value


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    """A block of which no more pieces come: the input of a tool was sent as text."""
    text = block.pop("partial_json", "")
    if not text:
        return block
    try:
        return {**block, "input": msgspec.json.decode(text)}
    except UNREADABLE:
        return {**block, "input": text}
