"""Signatures: DSSE's encoding, strict Ed25519, and both forms of the block (spec §4)."""

from base64 import b64encode

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from antiphon.core.record import codec, signing
from antiphon.core.record.ids import did_of, public_key_of
from antiphon.core.record.signing import Block, is_block_valid, is_signed, pae, sign
from antiphon.errors import Malformed
from tests.core.authors import ALICE, BOB, leaf, sign_batch
from tests.core.strategies import BRISK, THOROUGH

MESH = "a" * 16
ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19
SIG = b64encode(bytes(64))


@pytest.mark.parametrize(
    "payload_type, payload, encoded",
    [
        # The DSSE protocol's own example.
        ("http://example.com/HelloWorld", b"hello world",
         b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"),
        ("", b"", b"DSSEv1 0  0 "),
        ("t", b"\x00\xff\n ", b"DSSEv1 1 t 4 \x00\xff\n "),
        (signing.OP_TYPE, b"{}", b"DSSEv1 32 application/vnd.antiphon.op+json 2 {}"),
    ],
)  # fmt: skip
def test_the_encoding_is_dsse_version_1(payload_type, payload, encoded):
    assert pae(payload_type, payload) == encoded


def test_lengths_count_bytes_so_that_two_pairs_never_share_an_encoding():
    assert pae("a b", b"c") != pae("a", b"b c")
    assert pae("a", b"1 b 1 c") != pae("a 7 1 b", b"c")


def test_a_signature_is_ed25519_over_the_encoding():
    signature = sign(ALICE.secret, "t", b"payload")
    message = b"DSSEv1 1 t 7 payload"
    assert bindings.crypto_sign_open(signature + message, public_key_of(ALICE.did)) == message
    assert is_signed(ALICE.did, "t", b"payload", signature)


@pytest.mark.parametrize(
    "did, payload_type, payload",
    [(BOB.did, "t", b"payload"), (ALICE.did, "u", b"payload"), (ALICE.did, "t", b"payloae"),
     (ALICE.did, "t", b""), (ALICE.did, "", b"payload")],
)  # fmt: skip
def test_a_signature_holds_for_one_author_one_type_and_one_payload(did, payload_type, payload):
    signature = sign(ALICE.secret, "t", b"payload")
    assert not is_signed(did, payload_type, payload, signature)


@BRISK
@given(st.integers(0, 64 * 8 - 1))
def test_a_flipped_bit_anywhere_in_the_signature_is_noticed(bit):
    signature = bytearray(sign(ALICE.secret, "t", b"payload"))
    signature[bit // 8] ^= 1 << bit % 8
    assert not is_signed(ALICE.did, "t", b"payload", bytes(signature))


def test_a_signature_with_the_group_order_added_is_refused():
    signature = sign(ALICE.secret, "t", b"payload")
    scalar = int.from_bytes(signature[32:], "little")
    for times in (1, 2, 7):
        second = signature[:32] + (scalar + times * ORDER).to_bytes(32, "little")
        assert not is_signed(ALICE.did, "t", b"payload", second)


@pytest.mark.parametrize("length", [0, 1, 63, 65, 128])
def test_a_signature_of_another_length_is_refused(length):
    signature = (sign(ALICE.secret, "t", b"payload") * 2)[:length]
    assert not is_signed(ALICE.did, "t", b"payload", signature)


def test_a_long_signature_cannot_smuggle_a_statement_out_of_another_one():
    # Alice signs, for another purpose, a message that ends in the encoding of what she never said.
    smuggled = pae("order", b"pay mallory")
    message = b"quote: " + smuggled
    whole = pae("quote", message)
    forged = sign(ALICE.secret, "quote", message) + whole[: -len(smuggled)]
    assert not is_signed(ALICE.did, "order", b"pay mallory", forged)


# --- keys ------------------------------------------------------------------------------------

# The y coordinates of the eight points whose order divides 8 (curve25519's torsion).
ORDER_8_A = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
ORDER_8_B = FIELD - ORDER_8_A
SMALL_ORDER = {
    "identity": 1,
    "order 2": FIELD - 1,
    "order 4": 0,
    "order 4, other sign": 0 | 1 << 255,
    "order 8 a": ORDER_8_A,
    "order 8 a, other sign": ORDER_8_A | 1 << 255,
    "order 8 b": ORDER_8_B,
    "order 8 b, other sign": ORDER_8_B | 1 << 255,
}
NOT_CANONICAL = {
    "identity with a sign": 1 | 1 << 255,
    "order 2 with a sign": FIELD - 1 | 1 << 255,
    "0 written as p": FIELD,
    "0 written as p, other sign": FIELD | 1 << 255,
    "1 written as p + 1": FIELD + 1,
    "1 written as p + 1, with a sign": FIELD + 1 | 1 << 255,
    "2^255 - 1": 2**255 - 1,
    "all ones": 2**256 - 1,
}
NO_POINT = {"y = 2": 2, "y = 7": 7}


@pytest.mark.parametrize(
    "encoded",
    [*SMALL_ORDER.values(), *NOT_CANONICAL.values(), *NO_POINT.values()],
    ids=[*SMALL_ORDER, *NOT_CANONICAL, *NO_POINT],
)
def test_a_weak_or_misspelt_key_is_nobody(encoded):
    did = did_of(encoded.to_bytes(32, "little"))
    with pytest.raises(Malformed) as refusal:
        public_key_of(did)
    assert refusal.value.reason == "author"
    with pytest.raises(Malformed):
        is_signed(did, "t", b"payload", bytes(64))


def test_the_listed_points_really_have_small_order():
    d = -121665 * pow(121666, -1, FIELD) % FIELD
    for encoded in SMALL_ORDER.values():
        y = encoded % 2**255
        x2 = (y * y - 1) * pow(d * y * y + 1, -1, FIELD) % FIELD
        # Three doublings lead to the neutral element; x² suffices to double.
        for _ in range(3):
            y2 = y * y % FIELD
            product = d * x2 * y2 % FIELD
            top = (y2 + x2) % FIELD
            new_x2 = 4 * x2 * y2 * pow(1 + product, -2, FIELD) % FIELD
            y = top * pow(1 - product, -1, FIELD) % FIELD
            x2 = new_x2
        assert (x2, y) == (0, 1)


def test_a_key_with_a_small_order_part_is_nobody():
    good = public_key_of(ALICE.did)
    mixed = bindings.crypto_core_ed25519_add(good, (FIELD - 1).to_bytes(32, "little"))
    with pytest.raises(Malformed):
        public_key_of(did_of(mixed))


# --- the block -------------------------------------------------------------------------------


def test_a_record_is_the_op_a_line_feed_and_the_block():
    block = ALICE.sign(b"{}")
    assert signing.frame(b"{}", block) == b'{}\n{"sig":"' + b64encode(block.sig) + b'"}'
    assert signing.unframe(signing.frame(b"{}", block)) == (b"{}", block)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b"{}\n", b"{}\n{}", b'{}\n{"sig":""}', b'{}\n{"sig":"' + SIG[:-4] + b'"}',
     b'{}\n{"sig":"' + SIG + b'AA=="}', b'{}\n{"sig":"' + SIG + b'\\n"}',
     b'{}\n{"sig":"' + SIG[:-2] + b'"}', b'{}\n{"sig":"' + SIG[:-3] + b'B=="}',
     b'{}\n{"sig":"' + b"0" * 128 + b'"}', b'{}\n{"sig":"' + b"-" + SIG[1:] + b'"}',
     b'{}\n{"alg":"none","sig":"' + SIG + b'"}',
     b'{}\n{"at":0,"sig":"' + SIG + b'"}',
     b'{}\n{"of":4097,"sig":"' + SIG + b'"}',
     b'{}\n{"of":2,"path":["00"],"sig":"' + SIG + b'"}',
     b'{}\n{"of":2,"path":"' + b64encode(bytes(13 * 32)) + b'","sig":"' + SIG + b'"}'],
)  # fmt: skip
def test_what_is_no_record_is_malformed(payload):
    with pytest.raises(Malformed):
        signing.unframe(payload)


@THOROUGH
@given(st.binary(max_size=60))
def test_cutting_a_record_in_two_fails_only_as_malformed(payload):
    try:
        signing.unframe(payload)
    except Malformed:
        return
    raise AssertionError("no signature is that short")


@pytest.mark.parametrize("extra", [{"at": 1}, {"path": bytes(32)}])
def test_the_single_form_takes_neither_index_nor_path(extra):
    block = ALICE.sign(b"{}")
    assert is_block_valid(ALICE.did, MESH, b"{}", block)
    assert not is_block_valid(ALICE.did, MESH, b"{}", msgspec.structs.replace(block, **extra))


@pytest.mark.parametrize("size", range(1, 21))
def test_every_member_of_a_batch_verifies_alone_and_in_no_other_place(size):
    many = [f'{{"op":{at}}}'.encode() for at in range(size)]
    blocks = sign_batch(ALICE, MESH, many)
    for at, (op_bytes, block) in enumerate(zip(many, blocks, strict=True)):
        assert is_block_valid(ALICE.did, MESH, op_bytes, block)
        assert not is_block_valid(BOB.did, MESH, op_bytes, block)
        assert not is_block_valid(ALICE.did, "b" * 16, op_bytes, block)
        assert not is_block_valid(ALICE.did, MESH, op_bytes + b" ", block)
        for other in range(size + 2):
            if other != at:
                moved = msgspec.structs.replace(block, at=other)
                assert not is_block_valid(ALICE.did, MESH, op_bytes, moved)
                if other < size:
                    assert not is_block_valid(ALICE.did, MESH, many[other], block)
        for of in range(size + 3):
            if of != size:
                resized = msgspec.structs.replace(block, of=of)
                assert not is_block_valid(ALICE.did, MESH, op_bytes, resized)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_a_path_with_an_element_more_less_or_swapped_is_refused(size):
    many = [f'{{"op":{at}}}'.encode() for at in range(size)]
    for op_bytes, block in zip(many, sign_batch(ALICE, MESH, many), strict=True):
        path = block.path
        wrong = [path + bytes(32), bytes(32) + path, path + bytes(1), path + bytes(31)]
        if path:
            wrong += [path[:-32], path[32:], path[:-1], path[1:], path + path[-32:]]
        if len(path) > 32:
            wrong.append(path[32:64] + path[:32] + path[64:])
        for elements in wrong:
            changed = msgspec.structs.replace(block, path=elements)
            assert not is_block_valid(ALICE.did, MESH, op_bytes, changed)


def test_a_signer_cannot_have_its_own_overlong_path_accepted():
    # Otherwise one op would have as many valid blocks as its author liked to sign.
    here = leaf(b"{}")
    for pair in (here + bytes(32), bytes(32) + here):
        root = blake3(b"\x01" + pair).hexdigest()
        statement = f'{{"mesh":"{MESH}","root":"{root}","size":1}}'.encode()
        signature = sign(ALICE.secret, signing.BATCH_TYPE, statement)
        block = Block(sig=signature, of=1, path=bytes(32))
        assert not is_block_valid(ALICE.did, MESH, b"{}", block)


def test_an_inner_node_does_not_pass_for_an_op():
    # Without a prefix that keeps leaves and nodes apart, two hashes would be a third op.
    many = [b"one", b"two"]
    block = sign_batch(ALICE, MESH, many)[0]
    left = signing.leaf_hash(block.path)
    short = Block(sig=block.sig, at=0, of=1)
    assert not is_block_valid(ALICE.did, MESH, left, short)
    for op_bytes in many:
        assert not is_block_valid(ALICE.did, MESH, op_bytes, short)


def test_a_batch_of_one_is_not_a_single_signature():
    [block] = sign_batch(ALICE, MESH, [b"{}"])
    assert is_block_valid(ALICE.did, MESH, b"{}", block)
    assert not is_block_valid(ALICE.did, MESH, b"{}", Block(sig=block.sig))
    single = ALICE.sign(b"{}")
    assert not is_block_valid(ALICE.did, MESH, b"{}", Block(sig=single.sig, of=1))


def test_the_block_is_written_without_its_defaults():
    single, [first, second] = ALICE.sign(b"{}"), sign_batch(ALICE, MESH, [b"{}", b"[]"])
    assert list(msgspec.json.decode(codec.encode(single))) == ["sig"]
    assert list(msgspec.json.decode(codec.encode(first))) == ["of", "path", "sig"]
    assert list(msgspec.json.decode(codec.encode(second))) == ["at", "of", "path", "sig"]


@pytest.mark.parametrize("size", [*range(1, 20), 64, 100])
def test_what_is_signed_together_has_the_blocks_of_the_specification(size):
    many = [f'{{"op":{at}}}'.encode() for at in range(size)]
    told = []

    def sign_and_tell(payload_type, payload):
        told.append(payload_type)
        return sign(ALICE.secret, payload_type, payload)

    digests = [blake3(one).digest() for one in many]
    assert signing.sign_together(sign_and_tell, MESH, digests) == sign_batch(ALICE, MESH, many)
    assert told == [signing.BATCH_TYPE]


@pytest.mark.parametrize("size", [0, signing.MAX_BATCH + 1])
def test_nothing_and_too_many_have_no_signature(size):
    with pytest.raises(ValueError, match="ops cannot have one signature"):
        signing.sign_together(lambda *_: bytes(64), MESH, [bytes(32)] * size)


def test_a_root_that_was_verified_vouches_for_nobody_and_nothing_else():
    many = [b'{"op":1}', b'{"op":2}']
    one, two = sign_batch(ALICE, MESH, many)
    assert is_block_valid(ALICE.did, MESH, many[0], one)
    foreign = sign_batch(BOB, MESH, many)[1]
    for author, mesh, op_bytes, block in (
        (BOB.did, MESH, many[1], two),
        (ALICE.did, "b" * 16, many[1], two),
        (ALICE.did, MESH, b'{"op":3}', two),
        (ALICE.did, MESH, many[1], foreign),
        (ALICE.did, MESH, many[1], msgspec.structs.replace(two, sig="0" * 128)),
    ):
        assert not is_block_valid(author, mesh, op_bytes, block)
    assert is_block_valid(ALICE.did, MESH, many[1], two)
