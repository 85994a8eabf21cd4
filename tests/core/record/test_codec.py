"""Canonical bytes: one spelling for each value, and no other accepted (spec §4)."""

import json

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobSchedule, ScheduleBody
from antiphon.core.manifest import Manifest
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from antiphon.errors import Malformed
from tests.core.authors import ALICE
from tests.core.strategies import (
    BRISK,
    THOROUGH,
    any_op,
    bodies,
    manifests,
    ops_of,
    plain_values,
    texts,
)

CLAIM = JobClaim(
    v=1,
    mesh="a" * 16,
    author=ALICE.did,
    hlc=(1_763_158_000_123, 0),
    prev=4711,
    deps=((4690, "blake3:" + "0" * 64),),
    auth=(),
    body=ClaimBody(kind="render", job="1" * 64, lease_ms=30_000),
)


# --- writing ---------------------------------------------------------------------------------


@THOROUGH
@given(plain_values)
def test_every_plain_value_of_the_profile_is_written_as_rfc_8785_writes_it(value):
    assert codec.encode_checked(value) == codec.encode(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("code", [*range(0x80), 0x2028, 0xFFFF, 0x10000, 0x1D11E, 0x10FFFF])
def test_every_awkward_character_is_written_as_rfc_8785_writes_it(code):
    assert codec.encode(chr(code)) == rfc8785.dumps(chr(code))


@pytest.mark.parametrize("kind", bodies, ids=lambda kind: kind.type_name())
def test_every_op_is_written_as_rfc_8785_writes_it(kind):
    @BRISK
    @given(ops_of(kind))
    def holds(op):
        written = codec.encode(op)
        assert written == rfc8785.dumps(json.loads(written))
        assert written == rfc8785.dumps(msgspec.to_builtins(op))
        assert codec.decode(written, PROTOCOL.decoder) == op

    holds()


@BRISK
@given(manifests)
def test_every_manifest_is_written_as_rfc_8785_writes_it(manifest):
    written = codec.encode(manifest)
    assert written == rfc8785.dumps(msgspec.to_builtins(manifest))
    assert codec.decode(written, msgspec.json.Decoder(Manifest)) == manifest


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value, reason",
    [
        (1.5, "type"),
        (1.0, "type"),
        (float("nan"), "type"),
        ([0.0], "type"),
        (b"bytes", "type"),
        ({1, 2}, "type"),
        (2**53, "integer"),
        (-(2**53), "integer"),
        ({"a": [2**64]}, "integer"),
        ({"é": 1}, "key"),
        ({1: 1}, "key"),
        ({"a": {"\ud800": 1}}, "key"),
        ("\ud800", "text"),
        (["a", "x\udfff"], "text"),
        (nested(17), "depth"),
        ({"a": {"b": nested(15)}}, "depth"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_lies_outside_the_profile_is_refused(value, reason):
    with pytest.raises(Malformed) as refusal:
        codec.encode_checked(value)
    assert refusal.value.reason == reason


def test_what_is_nested_without_end_is_refused_before_the_stack_is_full():
    with pytest.raises(Malformed) as refusal:
        codec.encode_checked(nested(100_000))
    assert refusal.value.reason == "depth"


@pytest.mark.parametrize("value", [2**53 - 1, -(2**53 - 1), nested(16), True, None, {"": ""}])
def test_the_edges_of_the_profile_are_inside(value):
    assert codec.encode_checked(value) == rfc8785.dumps(value)


# --- reading ---------------------------------------------------------------------------------


def respelt():
    """Other ways to write the same claim; a JSON reader would take most of them for equal."""
    good = codec.encode(CLAIM).decode()
    swapped = good.replace(
        '"mesh":"aaaaaaaaaaaaaaaa","prev":4711', '"prev":4711,"mesh":"' + "a" * 16 + '"'
    )
    return {
        "white space": good.replace('"v":1', '"v": 1'),
        "leading space": " " + good,
        "trailing newline": good + "\n",
        "trailing data": good + "{}",
        "trailing NUL": good + "\0",
        "byte order mark": "\ufeff" + good,
        "reordered keys": swapped,
        "duplicate key": good.replace('"v":1', '"v":1,"v":1'),
        "duplicate key, other value first": good.replace('"prev":4711', '"prev":1,"prev":4711'),
        "escaped letter": good.replace("render", "r\\u0065nder"),
        "escaped slash": good.replace("render", "ren\\/der"),
        "escaped key": good.replace('"prev"', '"\\u0070rev"'),
        "explicit default": good.replace('"job"', '"begin":false,"job"'),
        "explicit null default": good.replace('"job"', '"fence":null,"job"'),
        "a float for an integer": good.replace("4711", "4711.0"),
        "an exponent": good.replace("30000", "3e4"),
        "negative zero": good.replace(",0],", ",-0],"),
        "a leading zero": good.replace("4711", "04711"),
        "a plus": good.replace("4711", "+4711"),
        "an integer as text": good.replace("4711", '"4711"'),
        "an unknown field": good.replace('"v":1', '"v":1,"w":1'),
        "an unknown field in the body": good.replace('"lease_ms":30000', '"lease_ms":30000,"x":1'),
        "a missing field": good.replace('"v":1', "").replace(",}", "}"),
        "no delegations, said": good.replace('{"author"', '{"auth":[],"author"'),
        "an integer beyond 53 bits": good.replace("4711", str(2**53)),
        "a negative integer": good.replace("4711", "-1"),
        "an upper-case digest": good.replace("0" * 64, "A" * 64),
        "a kind that is none": good.replace("render", "Render"),
        "a line feed after a kind": good.replace("render", "render\\n"),
        "another version": good.replace('"v":1', '"v":2'),
        "another type": good.replace("job.claim", "job.steal"),
        "a list": f"[{good}]",
        "nothing": "",
        "null": "null",
        "half": good[: len(good) // 2],
    }


@pytest.mark.parametrize("spelling", respelt().values(), ids=respelt().keys())
def test_a_second_spelling_is_refused(spelling):
    assert spelling.encode() != codec.encode(CLAIM)
    with pytest.raises(Malformed):
        codec.decode(spelling.encode(), PROTOCOL.decoder)


def test_the_first_spelling_is_read():
    assert codec.decode(codec.encode(CLAIM), PROTOCOL.decoder) == CLAIM


@pytest.mark.parametrize(
    "spelling, reason",
    [("white space", "canonical"), ("duplicate key", "canonical"), ("reordered keys", "canonical"),
     ("escaped letter", "canonical"), ("explicit default", "canonical"), ("half", "malformed")],
)  # fmt: skip
def test_the_refusal_says_whether_form_or_content_is_wrong(spelling, reason):
    with pytest.raises(Malformed) as refusal:
        codec.decode(respelt()[spelling].encode(), PROTOCOL.decoder)
    assert refusal.value.reason == reason


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 200_000,
        b'{"a":' * 50_000,
        b'{"body":' * 30_000 + b"1" + b"}" * 30_000,
        b"9" * 200_000,
        b'"' + b"\\u0000" * 40_000 + b'"',
        b"\xff" * 1000,
        b'"\xed\xa0\x80"',
        b'{"v":"\\ud800"}',
    ],
    ids=["lists", "objects", "closed objects", "digits", "escapes", "no text", "surrogate",
         "escaped surrogate"],
)  # fmt: skip
def test_a_bomb_is_malformed_and_nothing_else(bomb):
    for decoder in (PROTOCOL.decoder, msgspec.json.Decoder(dict[str, object])):
        with pytest.raises(Malformed):
            codec.decode(bomb, decoder)


def test_an_op_of_exactly_the_largest_size_is_read_and_one_byte_more_is_not():
    def cancel(padding):
        body = ScheduleBody(
            kind="k", manifest=Manifest(command=("x" * padding,), args=(), timeout=0)
        )
        return codec.encode(
            JobSchedule(
                v=1, mesh="a" * 16, author=ALICE.did, hlc=(0, 0), prev=0, deps=(), auth=(),
                body=body,
            )
        )  # fmt: skip

    room = codec.MAX_OP_BYTES - len(cancel(0))
    assert codec.decode(cancel(room), PROTOCOL.decoder)
    with pytest.raises(Malformed) as refusal:
        codec.decode(cancel(room + 1), PROTOCOL.decoder)
    assert refusal.value.reason == "size"


@THOROUGH
@given(st.binary(max_size=200) | texts.map(str.encode) | plain_values.map(rfc8785.dumps))
def test_arbitrary_bytes_are_read_exactly_or_refused_as_malformed(data):
    try:
        op = codec.decode(data, PROTOCOL.decoder)
    except Malformed:
        return
    assert codec.encode(op) == data


@THOROUGH
@given(any_op, st.data())
def test_bytes_that_were_changed_anywhere_are_refused_or_another_op(op, data):
    good = codec.encode(op)
    at = data.draw(st.integers(0, len(good) - 1))
    put = data.draw(st.binary(max_size=3))
    cut = data.draw(st.integers(0, 3))
    changed = good[:at] + put + good[at + cut :]
    try:
        read = codec.decode(changed, PROTOCOL.decoder)
    except Malformed:
        return
    assert (read == op) == (changed == good)


# --- other people's JSON ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, text",
    [
        (1.0, "1"),
        (1e21, "1e+21"),
        (0.1, "0.1"),
        (5e-324, "5e-324"),
        ({"é": 1}, '{"é":1}'),
        ({"b": 1, "a": [None, True]}, '{"a":[null,true],"b":1}'),
    ],
)
def test_a_result_with_floats_has_one_canonical_text(value, text):
    assert codec.canonical_json(value) == text


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, {1: 2}, b"", object(), "\ud800", nested(100_000)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_result_that_is_no_json_is_refused_with_a_hint(value):
    with pytest.raises(Malformed) as refusal:
        codec.canonical_json(value)
    assert refusal.value.reason == "json"
    assert refusal.value.hint


@THOROUGH
@given(st.binary(max_size=100) | st.text(max_size=50) | plain_values.map(json.dumps))
def test_foreign_json_is_read_or_refused_as_malformed(data):
    try:
        value = codec.parse_json(data)
    except Malformed:
        return
    assert codec.parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("bomb", ["[" * 200_000, "9" * 10_000, "1e99999", "\x00", ""])
def test_foreign_bombs_are_refused_as_malformed(bomb):
    with pytest.raises(Malformed) as refusal:
        codec.parse_json(bomb)
    assert refusal.value.reason == "json"


@BRISK
@given(plain_values)
def test_foreign_json_comes_back_as_it_was(value):
    assert codec.parse_json(codec.canonical_json(value)) == value
