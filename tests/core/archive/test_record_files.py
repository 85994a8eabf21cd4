"""Record files: read as they were written, in parts, and damage is noticed."""

import gzip
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.archive import record_files
from antiphon.core.archive.record_files import Erased
from antiphon.errors import Corrupt

PATH = record_files.path_of(1, 3)
ERASED = Erased(by="did:key:z6Mk", at_ms=1_763_158_000_000)
some_bodies = st.lists(st.binary(max_size=200) | st.just(ERASED), max_size=9)


def in_parts(data: bytes, size: int) -> list:
    unpacker = record_files.Unpacker(PATH)
    found = []
    for at in range(0, len(data), size):
        found += unpacker.add(data[at : at + size])
    unpacker.end()
    return found


def packed(data: bytes) -> bytes:
    """As gzip without a time does it."""
    return gzip.compress(data, mtime=0)[:8] + b"\x00\xff" + gzip.compress(data, mtime=0)[10:]


@given(some_bodies, st.integers(1, 99))
def test_records_come_back_in_order_however_the_file_is_read(bodies, size):
    data = record_files.compressed(bodies)
    assert in_parts(data, size) == bodies


def test_any_gzip_reads_it():
    data = record_files.compressed([b"first", b"second"])
    assert gzip.decompress(data) == b"\0\0\0\x05first\0\0\0\x06second"


def test_the_same_records_are_the_same_file():
    one, other = (record_files.compressed([b"a" * 999]) for _ in range(2))
    assert one == other


def test_a_large_file_is_read_in_small_parts():
    """What compresses well is still unpacked piece by piece."""
    data = record_files.compressed([bytes(900_000)] * 8)
    assert len(data) < 20_000
    read = record_files.bodies(data, PATH)
    assert [len(one) for one in read] == [900_000] * 8


@given(some_bodies.filter(bool), st.data())
def test_every_changed_byte_is_noticed_or_changes_nothing(bodies, data):
    good = record_files.compressed(bodies)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytes([*good[:at], good[at] ^ data.draw(st.integers(1, 255)), *good[at + 1 :]])
    with suppress(Corrupt):
        assert list(record_files.bodies(bad, PATH)) == bodies, "bits that fill up a byte"
    with pytest.raises(Corrupt):
        list(record_files.bodies(good[:-1], PATH))
    with pytest.raises(Corrupt):
        list(record_files.bodies(good + b"x", PATH))


def test_what_an_erased_record_leaves_has_one_form():
    loose = b'{"by":"x", "at_ms":1}'
    framed = (len(loose) | 1 << 31).to_bytes(4, "big") + loose
    with pytest.raises(Corrupt, match="who erased"):
        list(record_files.bodies(packed(framed), PATH))


def test_a_length_beyond_any_record_is_refused_before_it_is_read():
    with pytest.raises(Corrupt, match="bytes"):
        list(record_files.bodies(packed(b"\x7f\xff\xff\xff" + b"x" * 99), PATH))
