"""SSH keys and the signatures that `git commit -S` makes with them (OpenSSH's `PROTOCOL.sshsig`).

Only `ssh-ed25519`: such a key is a `did:key`, so it can be delegated to like any node. The reader
is strict: one encoding of a signature, no bytes that are not checked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from typing import Final, NoReturn

from nacl import bindings
from nacl.exceptions import BadSignatureError

from antiphon.core.record.ids import did_of, public_key_of
from antiphon.errors import Malformed

KEY_TYPE: Final = "ssh-ed25519"
NAMESPACE: Final = "git"
MAX_SIGNATURE_BYTES: Final = 4_096
_BEGIN: Final = "-----BEGIN SSH SIGNATURE-----"
_END: Final = "-----END SSH SIGNATURE-----"
_MAGIC: Final = b"SSHSIG"
_HASHES: Final = (b"sha256", b"sha512")
_SIGNATURE_BYTES: Final = 64


def did_of_ssh_key(line: str) -> str:
    """The did:key of a line as in `id_ed25519.pub`; `Malformed` if it is another sort of key."""
    words = line.split()
    at = next((at for at, word in enumerate(words) if word == KEY_TYPE), None)
    if at is None or at + 1 == len(words):
        raise Malformed(
            f"this is not the public half of an {KEY_TYPE} key",
            reason="key",
            hint="ssh-keygen -t ed25519 makes a key; its public half is in the file .pub",
        )
    return _did_in(_unpacked(words[at + 1]))


def ssh_key_of(did: str) -> str:
    """A node's key as OpenSSH writes it."""
    blob = _string(KEY_TYPE.encode()) + _string(public_key_of(did))
    return f"{KEY_TYPE} {base64.b64encode(blob).decode()}"


def signer_of(signature: str, message: bytes) -> str:
    """The did:key that signed a message, for Git; `Malformed` if the signature is not valid."""
    lines = signature.strip().splitlines()
    is_armored = len(lines) > 2 and (lines[0], lines[-1]) == (_BEGIN, _END)  # noqa: PLR2004
    if len(signature) > MAX_SIGNATURE_BYTES or not is_armored:
        _refuse("it is not an SSH signature")
    reader = _Reader(_unpacked("".join(lines[1:-1])))
    if reader.take(len(_MAGIC)) != _MAGIC or reader.number() != 1:
        _refuse("it is not an SSH signature of version 1")
    key, namespace, reserved, algorithm = (reader.string() for _ in range(4))
    signed = reader.string()
    reader.end()
    if namespace != NAMESPACE.encode():
        _refuse(f"it was made for {namespace.decode(errors='replace')[:40]!r}, not for git")
    if algorithm not in _HASHES or reserved:
        _refuse("it uses another hash than sha256 or sha512")
    did, proof = _did_in(key), _Reader(signed)
    if proof.string() != KEY_TYPE.encode():
        _refuse("the signature's type is not its key's")
    raw = proof.string()
    proof.end()
    digest = hashlib.new(algorithm.decode(), message).digest()
    covered = _MAGIC + b"".join(map(_string, (namespace, reserved, algorithm, digest)))
    # libsodium splits signature and message by length: a longer signature would be another message.
    if len(raw) != _SIGNATURE_BYTES:
        _refuse("it does not have the length of a signature")
    try:
        bindings.crypto_sign_open(raw + covered, public_key_of(did))
    except BadSignatureError:
        _refuse("it does not fit what was signed")
    return did


def _did_in(blob: bytes) -> str:
    reader = _Reader(blob)
    type_ = reader.string()
    if type_ != KEY_TYPE.encode():
        _refuse(
            f"its key is of the type {type_.decode(errors='replace')[:40]!r};"
            f" only {KEY_TYPE} keys can be delegated to"
        )
    key = reader.string()
    reader.end()
    did = did_of(key)
    public_key_of(did)  # refuses weak keys
    return did


class _Reader:
    """Reads SSH's strings and numbers; `Malformed` if there is less, or more."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            _refuse("it is cut off")
        self._at += size
        return found

    def number(self) -> int:
        (found,) = struct.unpack(">I", self.take(4))
        return int(found)

    def string(self) -> bytes:
        return self.take(min(self.number(), len(self._data) + 1))

    def end(self) -> None:
        if self._at != len(self._data):
            _refuse("it has more bytes than a signature")


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _unpacked(text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found or base64.b64encode(found).decode() != text:
        _refuse("it is not base64")
    return found


def _refuse(why: str) -> NoReturn:
    raise Malformed(f"the SSH signature or key cannot be used: {why}", reason="signature")
