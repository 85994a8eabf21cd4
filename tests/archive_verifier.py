"""A second reader of archives, which shares no code with ours: the standard library and PyNaCl.

    python tests/archive_verifier.py FOLDER VKEY [OLDER_CHECKPOINT]

Written from the published formats (RFC 6962, C2SP signed-note, tlog-checkpoint, tlog-tiles). It
checks the checkpoint's signature; that entries, tiles and root agree; that there is a body for each
entry; and that an older checkpoint is of the same log. It has no BLAKE3 for the records' digests.
"""

import base64
import gzip
import hashlib
import json
import sys
from pathlib import Path

from nacl.signing import VerifyKey


class Wrong(Exception):
    """Something does not agree."""


def need(condition: object, what: str) -> None:
    if not condition:
        raise Wrong(what)


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def root(hashes: list[bytes]) -> bytes:
    """The Merkle tree hash of RFC 6962, section 2.1, from the hashes of the leaves."""
    if not hashes:
        return sha(b"")
    if len(hashes) == 1:
        return hashes[0]
    k = 1
    while k * 2 < len(hashes):
        k *= 2
    return sha(b"\x01" + root(hashes[:k]) + root(hashes[k:]))


def proof(m: int, hashes: list[bytes], whole: bool = True) -> list[bytes]:
    """The consistency proof of section 2.1.2 between the first m leaves and all."""
    if m == len(hashes):
        return [] if whole else [root(hashes)]
    k = 1
    while k * 2 < len(hashes):
        k *= 2
    if m <= k:
        return [*proof(m, hashes[:k], whole), root(hashes[k:])]
    return [*proof(m - k, hashes[k:], False), root(hashes[:k])]


def note(data: bytes, vkey: str) -> list[str]:
    """The lines of a signed note's text, if the key signed it."""
    name, hexed, material = vkey.strip().split("+", 2)
    key = base64.b64decode(material, validate=True)
    need(key[:1] == b"\x01" and len(key) == 33, "the key is not an Ed25519 key")
    key_id = sha(name.encode() + b"\n" + key)[:4]
    need(hexed == key_id.hex(), "the key's id is not its own")
    text, _, below = data.decode().rpartition("\n\n")
    text += "\n"
    need(below.endswith("\n"), "the note does not end with a line")
    found = 0
    for line in below.splitlines():
        dash, signer, encoded = line.split(" ")
        need(dash == "\u2014", "a signature has no dash")
        signed = base64.b64decode(encoded, validate=True)
        need(base64.b64encode(signed).decode() == encoded, "base64 in another form")
        if (signer, signed[:4]) == (name, key_id):
            VerifyKey(key[1:]).verify(text.encode(), signed[4:])
            found += 1
    need(found, "the key did not sign the note")
    return text.splitlines()


def checkpoint(data: bytes, vkey: str) -> tuple[str, int, bytes]:
    """Origin, size and root."""
    origin, size, encoded = note(data, vkey)
    need(
        str(int(size)) == size and origin == vkey.split("+", maxsplit=1)[0],
        "not the log's checkpoint",
    )
    said = base64.b64decode(encoded, validate=True)
    need(base64.b64encode(said).decode() == encoded and len(said) == 32, "the root is no hash")
    return origin, int(size), said


def tile(folder: Path, level: object, number: int, width: int) -> bytes:
    end = f"{number % 1000:03}" + ("" if width == 256 else f".p/{width}")
    while number >= 1000:
        number //= 1000
        end = f"x{number % 1000:03}/{end}"
    return (folder / f"tile/{level}/{end}").read_bytes()


def split(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = int.from_bytes(data[:2], "big")
        need(len(data) >= 2 + length, "an entry is cut off")
        found.append(data[2 : 2 + length])
        data = data[2 + length :]
    return found


def bodies(folder: Path, first: int, last: int) -> int:
    data, count = gzip.decompress((folder / f"record/{first}-{last}.gz").read_bytes()), 0
    while data:
        length = int.from_bytes(data[:4], "big") & 0x7FFF_FFFF
        need(len(data) >= 4 + length, "a record is cut off")
        data, count = data[4 + length :], count + 1
    return count


def verify(folder: Path, vkey: str, older: bytes | None = None) -> tuple[int, bytes]:
    """Check an archive; its size and its root."""
    _, size, said = checkpoint((folder / "checkpoint").read_bytes(), vkey)
    leaves, last = [], 0
    for at in range(0, size, 256):
        width = min(256, size - at)
        entries = split(tile(folder, "entries", at // 256, width))
        need(len(entries) == width, "a bundle has another number of entries")
        leaves += [sha(b"\x00" + entry) for entry in entries]
        need(all(entry[:1] == b"\x01" for entry in entries), "a leaf of an unknown form")
        seqs = [json.loads(entry[1:])[0] for entry in entries]
        need(sorted({last, *seqs}) == [last, *seqs], "entries are not in the order of the log")
        last = seqs[-1]
        need(bodies(folder, seqs[0], last) == width, "a record file lacks records")
    row, level = leaves, 0
    while row:
        for at in range(0, len(row), 256):
            kept = tile(folder, level, at // 256, min(256, len(row) - at))
            need(kept == b"".join(row[at : at + 256]), f"a tile of level {level} is wrong")
        row = [root(row[at : at + 256]) for at in range(0, len(row) - len(row) % 256, 256)]
        level += 1
    need(root(leaves) == said, "the root is not that of the entries")
    if older is not None:
        _, before, was = checkpoint(older, vkey)
        need(before <= size and root(leaves[:before]) == was, "this is another history")
    return size, said


if __name__ == "__main__":
    old = Path(sys.argv[3]).read_bytes() if sys.argv[3:] else None
    found_size, found_root = verify(Path(sys.argv[1]), Path(sys.argv[2]).read_text(), old)
    print(f"{found_size} records, root {found_root.hex()}")
