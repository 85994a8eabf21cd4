"""Principals, content ids and commands: each has one spelling."""

import hashlib

import libipld
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from antiphon.core.ucan.command import TOP, covers, parse_command
from antiphon.core.ucan.did import did_of, public_key_of
from antiphon.core.ucan.envelope import cid_of
from antiphon.errors import Malformed
from tests.core.ucan.principals import ALICE, BRISK

# --- did:key ---------------------------------------------------------------------------------


@BRISK
@given(st.binary(min_size=32, max_size=32))
def test_every_key_has_one_did_and_reads_back(seed):
    public, _ = bindings.crypto_sign_seed_keypair(seed)
    did = did_of(public)
    assert did.startswith("did:key:z6Mk")
    assert public_key_of(did) == public


FIELD = 2**255 - 19
ORDER_8_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
WEAK = sorted(
    (y | sign << 255).to_bytes(32, "little")
    for y in (0, 1, FIELD - 1, ORDER_8_Y, FIELD - ORDER_8_Y, FIELD, FIELD + 1)
    for sign in (0, 1)
)
ORDER_2 = (FIELD - 1).to_bytes(32, "little")
PART_OF_SMALL_ORDER = bindings.crypto_core_ed25519_add(public_key_of(ALICE.did), ORDER_2)
NO_POINT = (2).to_bytes(32, "little")


@pytest.mark.parametrize("key", [*WEAK, PART_OF_SMALL_ORDER, NO_POINT], ids=bytes.hex)
def test_weak_keys_are_refused(key):
    with pytest.raises(Malformed, match="weak"):
        public_key_of(did_of(key))


@pytest.mark.parametrize(
    "did",
    [
        "",
        "did:key:",
        "did:web:example.com",
        "did:key:m7QEu",
        ALICE.did + "1",
        ALICE.did[:-1],
        ALICE.did + "#fragment",
        ALICE.did.replace("z6Mk", "z06Mk"),
        ALICE.did.replace("did:key:z", "did:key:z1"),
        ALICE.did.upper(),
        "did:key:" + libipld.encode_multibase("z", b"\xec\x01" + bytes(range(32))),
        "did:key:" + libipld.encode_multibase("z", b"\xed\x01" + bytes(range(31))),
        "did:key:" + libipld.encode_multibase("b", b"\xed\x01" + bytes(range(32))),
        "did:key:zé",
        "did:key:z" + "1" * 10_000,
    ],
)
def test_other_principals_are_refused(did):
    with pytest.raises(Malformed):
        public_key_of(did)


def test_a_key_of_the_wrong_length_has_no_did():
    with pytest.raises(Malformed):
        did_of(bytes(31))


# --- CIDs ------------------------------------------------------------------------------------

CID = cid_of(b"something")


def test_a_cid_is_the_hash_of_the_bytes_in_base32():
    inside = libipld.decode_cid(CID)
    assert CID.startswith("bafyrei")
    assert inside["hash"]["digest"] == hashlib.sha256(b"something").digest()


# --- commands --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["/", "/crud", "/crud/create", "/foo/bar/baz", "/ほげ/ふが"])
def test_the_specifications_commands_are_commands(command):
    assert parse_command(command) == command


@pytest.mark.parametrize(
    "text", ["", "crud", "/crud/", "//", "/crud//create", "/Crud", "/É", "/ǅ", "/" + "a" * 256]
)
def test_others_are_not(text):
    with pytest.raises(Malformed):
        parse_command(text)


@pytest.mark.parametrize(
    "command, other, answer",
    [
        ("/", "/", True),
        ("/", "/job/claim", True),
        ("/job", "/job", True),
        ("/job", "/job/claim", True),
        ("/job", "/job/claim/now", True),
        ("/job/claim", "/job", False),
        ("/job", "/jobs", False),
        ("/job", "/artifact", False),
        ("/crypto", "/cryptocurrency", False),
        ("/job", "/", False),
    ],
)
def test_a_command_covers_itself_and_what_is_below(command, other, answer):
    assert covers(command, other) is answer


PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4)


@BRISK
@given(PATHS, PATHS)
def test_covering_is_being_a_prefix_of_segments(one, other):
    command, below = "/" + "/".join(one), "/" + "/".join(other)
    assert covers(command, below) == (other[: len(one)] == one)
    assert covers(TOP, command)
