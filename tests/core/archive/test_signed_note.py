"""Signed notes and checkpoints: the published form, and that nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from antiphon.core.archive import checkpoint, signed_note
from antiphon.core.archive.checkpoint import Checkpoint
from antiphon.core.archive.signed_note import NoteKey
from antiphon.core.record.ids import did_of
from antiphon.errors import Malformed

PUBLISHED_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
PUBLISHED_NOTE = (
    "This is an example message.\n\n"
    "\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYj"
    "OBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()
MESH = "abcdefghijklmnop"


def a_key(seed: int = 1) -> SigningKey:
    return SigningKey(bytes([seed]) * 32)


def did(key: SigningKey) -> str:
    return did_of(bytes(key.verify_key))


def a_checkpoint(key: SigningKey, size: int = 5) -> bytes:
    said = Checkpoint(MESH, size, bytes(32))
    return checkpoint.signed(said, did(key), key.sign(said.text.encode()).signature)


def test_the_published_note_is_signed_by_the_published_key():
    key = NoteKey.of_vkey(PUBLISHED_KEY)
    assert key.vkey == PUBLISHED_KEY
    note = signed_note.read(PUBLISHED_NOTE)
    assert note.text == "This is an example message.\n"
    assert note.is_signed_by(key)
    assert not note.is_signed_by(NoteKey("example.com/foo", did(a_key())))
    assert not note.is_signed_by(NoteKey("example.com/bar", key.did))


def test_a_checkpoint_is_read_as_it_was_written():
    key = a_key()
    found, note = checkpoint.read(a_checkpoint(key))
    assert found == Checkpoint(MESH, 5, bytes(32))
    assert note.is_signed_by(NoteKey(f"antiphon/{MESH}", did(key)))
    assert not note.is_signed_by(NoteKey(f"antiphon/{MESH}", did(a_key(2))))


def test_signatures_of_others_beside_ours_are_left_alone():
    key, other = a_key(), a_key(2)
    said = Checkpoint(MESH, 5, bytes(32))
    signatures = [
        (NoteKey(name, did(each)), each.sign(said.text.encode()).signature)
        for name, each in (("witness.example", other), (said.origin, key))
    ]
    _, note = checkpoint.read(signed_note.written(said.text, *signatures))
    assert note.is_signed_by(signatures[0][0])
    assert note.is_signed_by(signatures[1][0])


def test_one_wrong_signature_of_a_known_key_spoils_the_note():
    key, said = a_key(), Checkpoint(MESH, 5, bytes(32))
    mine = NoteKey(said.origin, did(key))
    right = key.sign(said.text.encode()).signature
    _, note = checkpoint.read(signed_note.written(said.text, (mine, right), (mine, bytes(64))))
    assert not note.is_signed_by(mine)


@given(st.data())
def test_no_changed_byte_of_a_checkpoint_goes_unnoticed(data):
    key = a_key()
    good = a_checkpoint(key)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytes([*good[:at], good[at] ^ data.draw(st.integers(1, 255)), *good[at + 1 :]])
    try:
        _, note = checkpoint.read(bad)
    except Malformed:
        return
    assert not note.is_signed_by(NoteKey(f"antiphon/{MESH}", did(key)))


@pytest.mark.parametrize(
    "text",
    [
        f"antiphon/{MESH}\n05\n{'A' * 43}=\n",
        f"antiphon/{MESH}\n-5\n{'A' * 43}=\n",
        f"antiphon/{MESH}\n5\n{'A' * 44}\n",
        f"antiphon/{MESH}\n5\nAAAA\n",
        f"antiphon/{MESH}\n5\n{'A' * 43}=\nmore\n",
        f"antiphon/{MESH}\n5\n",
        f"other/{MESH}\n5\n{'A' * 43}=\n",
        f"antiphon/\n5\n{'A' * 43}=\n",
    ],
)
def test_another_form_is_no_checkpoint(text):
    key = a_key()
    signed = (NoteKey(f"antiphon/{MESH}", did(key)), key.sign(text.encode()).signature)
    with pytest.raises(Malformed):
        checkpoint.read(signed_note.written(text, signed))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text\n",
        b"text\n\n",
        b"text\n\nno dash AAAA\n",
        "text\n\n\u2014 name AAAAAAAA".encode(),
        "text\n\n\u2014 name AAAA\n".encode(),
        "te\txt\n\n\u2014 name AAAAAAAA\n".encode(),
        b"\xff\n\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_signed_note_is_refused(data):
    with pytest.raises(Malformed):
        signed_note.read(data)


@pytest.mark.parametrize("line", ["", "a+b+c", PUBLISHED_KEY[:-4], "x" + PUBLISHED_KEY])
def test_what_is_no_key_is_refused(line):
    with pytest.raises(Malformed):
        NoteKey.of_vkey(line)
