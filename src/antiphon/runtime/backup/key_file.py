"""A host's keys in one file, encrypted with a passphrase (Argon2id, then XSalsa20-Poly1305).

Kept apart from the backup: whoever has both, and the passphrase, is the mesh's owner.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct
from nacl import pwhash
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox
from nacl.utils import random

from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt, Misconfigured

FORM: Final = 1
OPS: Final = pwhash.argon2id.OPSLIMIT_MODERATE
MEMORY_BYTES: Final = pwhash.argon2id.MEMLIMIT_MODERATE
MOST_OPS: Final = 64
MOST_MEMORY_BYTES: Final = 2 * 1024**3
"""What a file may ask of the machine that opens it."""
LEAST_LETTERS: Final = 8


class _Sealed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    form: Literal[1]
    kdf: Literal["argon2id"]
    ops: Annotated[int, Meta(ge=1, le=MOST_OPS)]
    memory_bytes: Annotated[
        int, Meta(ge=pwhash.argon2id.MEMLIMIT_MIN, le=MOST_MEMORY_BYTES, multiple_of=1024)
    ]
    """Argon2 counts whole KiB: others would be read as these."""
    salt: Annotated[bytes, Meta(min_length=16, max_length=16)]
    box: bytes


class KeyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a host."""

    mesh: str
    made_ms: int
    files: dict[str, bytes]
    """By their paths in the state directory."""

    def __repr__(self) -> str:
        return f"KeyFile(mesh={self.mesh!r}, {len(self.files)} files)"


def seal(keys: KeyFile, passphrase: str) -> bytes:
    """The file that only this passphrase opens."""
    if len(passphrase) < LEAST_LETTERS:
        raise Misconfigured(
            f"a passphrase has at least {LEAST_LETTERS} characters", hint="choose a longer one"
        )
    salt = random(pwhash.argon2id.SALTBYTES)
    box = SecretBox(_key(passphrase, salt, OPS, MEMORY_BYTES))
    sealed = _Sealed(
        form=FORM,
        kdf="argon2id",
        ops=OPS,
        memory_bytes=MEMORY_BYTES,
        salt=salt,
        box=bytes(box.encrypt(msgspec.msgpack.encode(keys))),
    )
    return msgspec.json.encode(sealed)


def unseal(data: bytes, passphrase: str) -> KeyFile:
    """What `seal` was given; `Corrupt` if the passphrase is another one, or a byte."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
    except UNREADABLE as problem:
        raise Corrupt(f"this is not a file of keys: {problem}") from problem
    if msgspec.json.encode(sealed) != data:
        raise Corrupt("this file of keys is damaged")
    key = _key(passphrase, sealed.salt, sealed.ops, sealed.memory_bytes)
    try:
        return msgspec.msgpack.decode(SecretBox(key).decrypt(sealed.box), type=KeyFile)
    except (*UNREADABLE, CryptoError, ValueError) as problem:
        raise Corrupt(
            "the passphrase does not open this file of keys, or the file is damaged",
            hint="try another passphrase",
        ) from problem


def _key(passphrase: str, salt: bytes, ops: int, memory_bytes: int) -> bytes:
    return pwhash.argon2id.kdf(
        SecretBox.KEY_SIZE, passphrase.encode(), salt, opslimit=ops, memlimit=memory_bytes
    )
