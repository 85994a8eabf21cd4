"""Signed notes (C2SP signed-note): a text with lines of Ed25519 signatures below it.

    <the text, of one or more lines>
    <an empty line>
    — <key name> <base64 of: 4 bytes that name the key, then the signature>

The text itself is signed, without DSSE's encoding. So that no signature of ours is valid for
another purpose, keys sign only checkpoints this way, which begin with their log's name.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256
from typing import Final

from msgspec import Struct
from nacl import bindings
from nacl.exceptions import BadSignatureError

from antiphon.core.record.ids import did_of, public_key_of
from antiphon.errors import Malformed

MAX_NOTE_BYTES: Final = 64 * 1024
MAX_SIGNATURES: Final = 64
_DASH: Final = "\u2014 "
_ED25519: Final = b"\x01"
_ID_BYTES: Final = 4
_PUBLIC_KEY_BYTES: Final = 32


class NoteKey(Struct, frozen=True):
    """A public key under the name that it signs notes with."""

    name: str
    did: str

    @property
    def id(self) -> bytes:
        """The four bytes that name it in a signature."""
        of = self.name.encode() + b"\n" + _ED25519 + public_key_of(self.did)
        return sha256(of).digest()[:_ID_BYTES]

    @property
    def vkey(self) -> str:
        """The key as other tools want it: name, id and key in one line."""
        material = base64.b64encode(_ED25519 + public_key_of(self.did)).decode()
        return f"{self.name}+{self.id.hex()}+{material}"

    @classmethod
    def of_vkey(cls, line: str) -> NoteKey:
        """The key in such a line, or `Malformed`."""
        name, _, rest = line.partition("+")
        _, _, material = rest.partition("+")
        raw = _base64(material)
        if len(raw) != 1 + _PUBLIC_KEY_BYTES or raw[:1] != _ED25519:
            raise Malformed("this is not the key of a signed note", reason="note")
        key = cls(name, did_of(raw[1:]))
        if not name or key.vkey != line:
            raise Malformed("this is not the key of a signed note", reason="note")
        return key


class Note(Struct, frozen=True):
    """A note as it was read: nothing is checked yet."""

    text: str
    """Ends with a line feed."""
    signatures: tuple[tuple[str, bytes], ...]
    """Of each, the key's name, and key id and signature."""

    def is_signed_by(self, key: NoteKey) -> bool:
        """Whether this key signed it, and no signature in its name is wrong."""
        mine = [
            signed[_ID_BYTES:]
            for name, signed in self.signatures
            if name == key.name and signed[:_ID_BYTES] == key.id
        ]
        return bool(mine) and all(_is_valid(one, self.text.encode(), key) for one in mine)


def written(text: str, *signed: tuple[NoteKey, bytes]) -> bytes:
    """A note: its text, and below it the signatures of these keys."""
    lines = [
        f"{_DASH}{key.name} {base64.b64encode(key.id + signature).decode()}\n"
        for key, signature in signed
    ]
    return f"{text}\n{''.join(lines)}".encode()


def read(data: bytes) -> Note:
    """A note from its bytes, or `Malformed`."""
    if len(data) > MAX_NOTE_BYTES:
        raise Malformed("this is too long for a signed note", reason="note")
    try:
        whole = data.decode()
    except UnicodeDecodeError as problem:
        raise Malformed("a signed note is UTF-8", reason="note") from problem
    if any(ord(one) < ord(" ") and one != "\n" for one in whole):
        raise Malformed("a signed note has no control characters", reason="note")
    text, blank, below = whole.rpartition("\n\n")
    lines = below.split("\n")
    if not blank or lines.pop() or not 1 <= len(lines) <= MAX_SIGNATURES:
        raise Malformed("there are no signatures below the text", reason="note")
    return Note(text + "\n", tuple(map(_signature, lines)))


def _signature(line: str) -> tuple[str, bytes]:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    signed = _base64(encoded)
    if not line.startswith(_DASH) or not name or not space or len(signed) <= _ID_BYTES:
        raise Malformed("a line below the text is not a signature", reason="note")
    return name, signed


def _is_valid(signature: bytes, text: bytes, key: NoteKey) -> bool:
    try:
        bindings.crypto_sign_open(signature + text, public_key_of(key.did))
    except (BadSignatureError, ValueError):
        return False
    return True


def _base64(text: str) -> bytes:
    """The bytes of the one encoding that they have, or `Malformed`."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise Malformed("a signed note has standard base64", reason="note") from problem
    if base64.b64encode(raw).decode() != text:
        raise Malformed("a signed note has standard base64", reason="note")
    return raw
