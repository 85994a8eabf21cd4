"""Names that cannot be chosen (spec §4)."""

import re

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from antiphon.core.record import ids
from antiphon.core.record.op import Digest
from antiphon.errors import Malformed
from tests.core.authors import ALICE
from tests.core.strategies import BRISK

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
WELL_KNOWN = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"


def test_the_did_key_methods_own_example_reads_and_writes_back():
    key = ids.public_key_of(WELL_KNOWN)
    assert key.hex() == "2e6fcce36701dc791488e0d0b1745cc1e33a4c1c9fcc41c63bd343dbbe0970e6"
    assert ids.did_of(key) == WELL_KNOWN


@BRISK
@given(st.binary(min_size=32, max_size=32))
def test_every_key_has_one_name_and_reads_back(seed):
    public, _ = bindings.crypto_sign_seed_keypair(seed)
    did = ids.did_of(public)
    assert did.startswith("did:key:z6Mk")
    assert len(did) == 56
    assert ids.public_key_of(did) == public


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice",
        "did:key:",
        "did:key:z",
        WELL_KNOWN[:-1],
        WELL_KNOWN + "1",
        WELL_KNOWN + "1" * 1000,
        WELL_KNOWN + "\n",
        " " + WELL_KNOWN,
        WELL_KNOWN.replace("did:key:z", "did:key:m"),
        WELL_KNOWN.replace("did:key:z", "did:key:z1"),  # a leading zero byte
        WELL_KNOWN.replace("did:key:", "did:web:"),
        WELL_KNOWN.replace("did:key:", "DID:KEY:"),
        WELL_KNOWN.replace("6", "0"),  # the letters that base58 leaves out
        WELL_KNOWN.replace("L", "l"),
        WELL_KNOWN.replace("L", "I"),
        WELL_KNOWN.replace("L", "O"),
        WELL_KNOWN.replace("L", "é"),
        WELL_KNOWN + "#" + WELL_KNOWN[8:],
        "did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc",  # X25519
        "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",  # secp256k1
    ],
)
def test_what_is_no_ed25519_did_key_is_refused(text):
    with pytest.raises(Malformed) as refusal:
        ids.public_key_of(text)
    assert refusal.value.reason == "author"


@BRISK
@given(st.text(max_size=60) | st.text(BASE58, max_size=47).map("did:key:z6Mk".__add__))
def test_any_text_is_a_key_or_malformed(text):
    try:
        key = ids.public_key_of(text)
    except Malformed:
        return
    assert ids.did_of(key) == text


def test_a_digest_is_blake3_with_its_prefix():
    empty = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert ids.digest(b"") == empty
    assert msgspec.convert(empty, Digest) == empty


@pytest.mark.parametrize(
    "text",
    ["", "0" * 64, "blake3:" + "0" * 63, "blake3:" + "0" * 65, "blake3:" + "A" * 64,
     "blake3:" + "g" * 64, "sha256:" + "0" * 64, "blake3:" + "0" * 64 + "\n", "blake3:" + "٠" * 64],
)  # fmt: skip
def test_what_is_no_digest_is_told_apart(text):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Digest)


@BRISK
@given(st.binary(max_size=50))
def test_a_mesh_is_named_by_sixteen_letters_of_its_genesis(genesis):
    name = ids.mesh_id(genesis)
    assert re.fullmatch(r"[a-z2-7]{16}", name)
    bits = int.from_bytes(blake3(genesis).digest()[:10], "big")
    alphabet = "abcdefghijklmnopqrstuvwxyz234567"
    assert name == "".join(alphabet[bits >> shift & 31] for shift in range(75, -1, -5))


def test_a_short_form_shows_where_names_differ():
    assert ids.short_node(ALICE.did) == ALICE.did[-8:]
