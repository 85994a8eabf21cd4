"""Exchanges become snapshots: what is understood, what is not, and what is redacted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.inference import snapshot
from antiphon.core.inference.call_reader import parts_of, snapshot_of
from antiphon.core.inference.snapshot import Content, Source
from antiphon.core.record.ids import digest
from antiphon.errors import Malformed
from tests.core.published_schemas import fits, published
from tests.runtime.inference.exchanges import exchange

SOURCE = Source(
    mesh="m", kind="agent.ask", job="0" * 64, fence="0" * 16, worker="did:key:z1", call=3
)
ANTHROPIC = "http://models.example/v1/messages"
RESPONSES = "http://models.example/v1/responses"
SCHEMA = published("inference-snapshot")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "index", "delta", "message", "usage", "choices",
                 "tool_calls", "function", "text", "output", "response", "content_block"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip
fields = st.sampled_from(["model", "messages", "input", "prompt", "system", "stream"])
paths = st.sampled_from(
    ["/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/messages",
     "/other"]
)  # fmt: skip


@given(
    st.dictionaries(fields, values, min_size=1),
    st.dictionaries(st.sampled_from(["choices", "output", "content", "usage", "model"]), values),
    st.none() | st.lists(st.dictionaries(st.sampled_from(["type", "delta", "choices"]), values)),
    paths,
    st.lists(st.sampled_from(["prompt", "context", "output"]), unique=True),
)
def test_whatever_is_asked_and_answered_becomes_a_snapshot(asked, answered, events, path, redact):
    one = exchange(asked, answered or {"x": 1}, events=events, url=f"http://h{path}")
    made = snapshot_of(one, SOURCE, tuple(redact))
    raw = snapshot.encode(made)
    assert snapshot.decode(raw) == made
    assert raw.startswith(snapshot.SNAPSHOT_BEGINS)
    assert fits(json.loads(raw), SCHEMA)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_bytes_of_any_kind_become_a_snapshot(asked, answered):
    made = snapshot_of(exchange(request=asked, response=answered), SOURCE)
    assert made.backend.api == "raw"
    assert snapshot.decode(snapshot.encode(made)) == made


def test_a_server_that_speaks_a_known_protocol_elsewhere_is_read():
    asked = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    assert parts_of(exchange(asked, url="http://h/api/chat")).api == "openai.chat"
    theirs = exchange(
        asked, url="http://h/complete", request_headers={"anthropic-version": "2023-06-01"}
    )
    assert parts_of(theirs).api == "anthropic.messages"
    assert parts_of(exchange({"text": "a"}, url="http://h/api/chat")) is None


def test_an_error_is_kept_as_it_came():
    one = exchange(answered={"error": {"message": "no"}}, status=400)
    made = snapshot_of(one, SOURCE)
    assert made.backend.api == "openai.chat"
    assert made.answers == []
    assert made.output.value == {"error": {"message": "no"}}
    assert made.telemetry.status == 400


def test_a_stream_that_was_cut_off_has_what_came():
    events = [{"model": "m-1", "choices": [{"index": 0, "delta": {"content": "he"}}]}]
    begun = exchange(events=events, is_complete=False)
    cut = replace(begun, response=begun.response + b'data: {"choices": [{"ind')
    made = snapshot_of(cut, SOURCE)
    assert [one.text for one in made.answers] == ["he"]
    assert (made.telemetry.is_complete, made.telemetry.is_stream) == (False, True)


def test_a_cut_response_has_the_text_so_far():
    events = [
        {"type": "response.created", "response": {"model": "m-1", "output": []}},
        {"type": "response.output_text.delta", "delta": "he"},
    ]
    asked = {"model": "m", "input": "hello"}
    made = snapshot_of(exchange(asked, url=RESPONSES, events=events), SOURCE)
    assert [one.text for one in made.answers] == ["he"]
    assert made.model.version == "m-1"


def test_several_tools_called_in_one_stream_are_kept_apart():
    def piece(index, **function):
        return {"choices": [{"delta": {"tool_calls": [{"index": index, "function": function}]}}]}

    events = [
        piece(0, name="a", arguments='{"x"'),
        piece(1, name="b", arguments=""),
        piece(0, arguments=": 1}"),
        piece(1, arguments="not json"),
    ]
    (answer,) = snapshot_of(exchange(events=events), SOURCE).answers
    assert [(one.name, one.arguments) for one in answer.tool_calls] == [
        ("a", {"x": 1}),
        ("b", "not json"),
    ]


def test_blocks_of_other_kinds_are_kept_beside_the_text():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    answered = {"content": [thinking, {"type": "text", "text": "yes"}], "stop_reason": "end_turn"}
    (answer,) = snapshot_of(exchange(answered=answered, url=ANTHROPIC), SOURCE).answers
    assert (answer.text, answer.other) == ("yes", (thinking,))


@pytest.mark.parametrize("part", ["prompt", "context", "output"])
def test_a_redacted_part_is_a_digest_and_its_size(part):
    messages = [
        {"role": "user", "content": "my number is 7"},
        {"role": "tool", "tool_call_id": "1", "content": "the file on 7"},
    ]
    answered = {"choices": [{"message": {"content": "it is 7"}}]}
    one = exchange({"model": "m", "messages": messages}, answered)
    whole, less = snapshot_of(one, SOURCE), snapshot_of(one, SOURCE, (part,))
    assert less.redacted == (part,)
    words = {"prompt": "my number", "context": "the file", "output": "it is"}
    told = snapshot.encode(less).decode()
    assert [name for name, text in words.items() if text not in told] == [part]
    found = getattr(whole, part)
    found = found[0] if part == "context" else found
    raw = json.dumps(found.value, separators=(",", ":")).encode()
    redacted = getattr(less, part)
    redacted = redacted[0] if part == "context" else redacted
    assert redacted == Content(redacted="policy", hash=digest(raw), size=len(raw))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"version":1}', b"\xff", b"[" * 100_000])
def test_what_is_no_snapshot_is_refused(raw):
    with pytest.raises(Malformed, match="snapshot"):
        snapshot.decode(raw)


def test_a_snapshot_in_another_order_is_refused():
    made = snapshot_of(exchange(), SOURCE)
    mixed = json.dumps(json.loads(snapshot.encode(made)), sort_keys=True).encode()
    with pytest.raises(Malformed, match="begin"):
        snapshot.decode(mixed)
