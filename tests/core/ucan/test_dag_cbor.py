"""One value, one way to write it."""

from contextlib import suppress

import libipld
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ucan import dag_cbor
from antiphon.errors import Malformed
from tests.core.ucan.principals import BRISK

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number or 0.0)
    | st.text(max_size=300)
    | st.binary(max_size=12),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=30), inner),
    max_leaves=20,
)


@BRISK
@given(PLAIN)
def test_values_come_back_as_they_were(value):
    try:
        data = dag_cbor.encode(value)
    except Malformed:  # bytes that look like a CID, and nothing else
        assert b"\xd8\x2a" in libipld.encode_dag_cbor(value)
        return
    again = dag_cbor.decode(data)
    assert repr(again) == repr(sorted_keys(value))
    assert dag_cbor.encode(again) == data


def sorted_keys(value):
    if isinstance(value, dict):
        order = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: sorted_keys(value[key]) for key in order}
    return [sorted_keys(each) for each in value] if isinstance(value, list) else value


@BRISK
@given(PLAIN, st.data())
def test_bytes_that_are_read_are_canonical(value, data):
    """Whatever one byte is changed to: what is still accepted encodes to the very same bytes."""
    try:
        raw = bytearray(dag_cbor.encode(value))
    except Malformed:
        return
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = dag_cbor.decode(bytes(raw))
    except Malformed:
        return
    written = libipld.encode_dag_cbor(again)
    assert written == bytes(raw) or b"\xd8\x2a" in written


@BRISK
@given(st.binary(max_size=60))
def test_noise_is_read_or_refused(raw):
    with suppress(Malformed):
        dag_cbor.decode(raw)


REFUSED = {
    "nothing": "",
    "a longer head": "1801",
    "a longer head of two bytes": "190001",
    "a longer head of four bytes": "1a00000001",
    "a longer head of eight bytes": "1b0000000000000001",
    "a longer head of text": "780161",
    "unsorted keys": "a2616201616102",
    "keys sorted as text, not by length": "a262616101616202",
    "a key twice": "a2616101616102",
    "a key that is a number": "a10102",
    "an indefinite list": "9f01ff",
    "an indefinite map": "bf616101ff",
    "indefinite text": "7f6161ff",
    "indefinite bytes": "5f4161ff",
    "a float of 16 bits": "f93e00",
    "a float of 32 bits": "fa3fc00000",
    "not a number": "fb7ff8000000000000",
    "infinity": "fb7ff0000000000000",
    "a negative zero": "fb8000000000000000",
    "half a float": "fb7ff0",
    "undefined": "f7",
    "a simple value": "e0",
    "a stray break": "ff",
    "a tag": "c000",
    "a link": "d82a582500017112200101010101010101010101010101010101010101010101010101010101010101",
    "something after the end": "0101",
    "text that is not UTF-8": "6180",
    "text that ends too early": "6261",
    "a list that ends too early": "8201",
    "a list of very many": "9bffffffffffffffff",
    "a map of very many": "bbffffffffffffffff",
    "bytes of very many": "5bffffffffffffffff",
    "half a head": "1900",
    "very deep": "81" * 50 + "00",
    "deeper than any stack": "81" * 10_000 + "00",
    "too many items": "991001" + "00" * 0x1001,
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_anything_else_is_refused(raw):
    with pytest.raises(Malformed):
        dag_cbor.decode(bytes.fromhex(raw))


def test_depth_and_size_are_bounded_to_the_item():
    dag_cbor.decode(b"\x81" * dag_cbor.MAX_DEPTH + b"\x00")
    with pytest.raises(Malformed):
        dag_cbor.decode(b"\x81" * (dag_cbor.MAX_DEPTH + 1) + b"\x00")
    full = dag_cbor.MAX_BYTES - 3
    dag_cbor.decode(b"\x79" + full.to_bytes(2, "big") + b"a" * full)
    with pytest.raises(Malformed):
        dag_cbor.decode(b"\x79" + (full + 1).to_bytes(2, "big") + b"a" * (full + 1))


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**64, -(2**64) - 1, {1: 2}, {"a": {1}}, (1, 2), "\ud800", print],
    ids=repr,
)
def test_values_outside_the_data_model_are_not_written(value):
    with pytest.raises(Malformed):
        dag_cbor.encode(value)


def test_values_that_contain_themselves_are_not_written():
    knot = []
    knot.append(knot)
    with pytest.raises(Malformed):
        dag_cbor.encode(knot)


LIKE_A_CID = bytes.fromhex("01710000")


def test_bytes_that_look_like_a_cid_are_read_as_bytes_and_written_only_by_hand():
    raw = b"\x44" + LIKE_A_CID
    assert dag_cbor.decode(raw) == LIKE_A_CID
    assert dag_cbor.encode_bytes(LIKE_A_CID) == raw
    with pytest.raises(Malformed, match="link"):
        dag_cbor.encode({"a": LIKE_A_CID})


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 4000])
def test_heads_made_by_hand_are_libiplds(size):
    assert dag_cbor.encode_bytes(bytes(size)) == libipld.encode_dag_cbor(bytes(size))
