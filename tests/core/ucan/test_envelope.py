"""Payloads and envelopes: written one way, read strictly, signed by whoever holds the key."""

import libipld
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from antiphon.core.ucan import Policy, SignatureCache, issue, open_envelope, seal_envelope
from antiphon.core.ucan.envelope import TAG, VARSIG_HEADER, to_be_signed
from antiphon.core.ucan.payload import MAX_TIME, decode_payload, encode_payload
from antiphon.core.ucan.signatures import is_signed
from antiphon.errors import Malformed
from tests.core.ucan.principals import ALICE, BOB, BRISK, MALLORY, NOW, claims, delegate, forge
from tests.core.ucan.test_dag_cbor import PLAIN
from tests.core.ucan.test_policy import STATEMENTS

DELEGATION = delegate(ALICE, BOB, pol=[["like", ".kind", "render.*"]], meta={"alias": "gpu"})
FIELDS = libipld.decode_dag_cbor(encode_payload(DELEGATION.payload))
DIDS = st.sampled_from([ALICE.did, BOB.did, MALLORY.did])
TIMES = st.integers(-MAX_TIME, MAX_TIME)
COMMANDS = st.lists(st.text("abz_é", min_size=1, max_size=3)).map(lambda s: "/" + "/".join(s))

PAYLOADS = st.builds(
    claims,
    st.sampled_from([ALICE, BOB]),
    st.sampled_from([ALICE, BOB, MALLORY]),
    sub=st.none() | st.just(UNSET) | DIDS,
    cmd=COMMANDS,
    pol=st.lists(STATEMENTS, max_size=4),
    nonce=st.binary(min_size=12, max_size=40),
    exp=st.none() | TIMES,
    nbf=st.just(UNSET) | st.none() | TIMES,
    meta=st.just(UNSET) | st.dictionaries(st.text(max_size=5), PLAIN, max_size=3),
)


@BRISK
@given(PAYLOADS)
def test_any_payload_comes_back_and_encodes_to_the_same_bytes(payload):
    try:
        raw = encode_payload(payload)
    except Malformed:  # NaN or infinity in a literal, or bytes that look like a link
        return
    again = decode_payload(raw)
    assert encode_payload(again) == raw
    for name in ("iss", "aud", "sub", "cmd", "nonce", "exp", "nbf"):
        assert getattr(again, name) == getattr(payload, name)
    signer = ALICE if payload.iss == ALICE.did else BOB
    delegation = issue(payload, signer.sign)
    assert delegation.signed == to_be_signed(payload)
    assert open_envelope(delegation.raw) == delegation
    assert is_signed(delegation)


def test_an_envelope_is_what_the_specification_draws():
    signature, signed = libipld.decode_dag_cbor(DELEGATION.raw)
    assert signature == DELEGATION.signature
    assert signed == {"h": VARSIG_HEADER, TAG: FIELDS}
    assert libipld.encode_dag_cbor(signed) == DELEGATION.signed
    assert libipld.encode_dag_cbor([signature, signed]) == DELEGATION.raw


def test_a_nonce_that_looks_like_a_link_stays_bytes():
    nonce = b"\x01\x71\x12\x08" + b"x" * 8
    assert libipld.encode_dag_cbor(nonce).startswith(b"\xd8\x2a")
    delegation = delegate(ALICE, BOB, nonce=nonce)
    assert open_envelope(delegation.raw).payload.nonce == nonce
    assert is_signed(delegation)


ODD = {
    "no issuer": {"iss": ...},
    "no audience": {"aud": ...},
    "no command": {"cmd": ...},
    "no policy": {"pol": ...},
    "no nonce": {"nonce": ...},
    "no expiry": {"exp": ...},
    "a field too many": {"prf": []},
    "an issuer that is null": {"iss": None},
    "an issuer of another kind": {"iss": "did:web:example.com"},
    "an audience that is a number": {"aud": 1},
    "a subject that is empty": {"sub": ""},
    "a subject that is bytes": {"sub": b"did"},
    "a command that is none": {"cmd": "job"},
    "a command that is bytes": {"cmd": b"/job"},
    "a policy that is null": {"pol": None},
    "a policy that is a map": {"pol": {}},
    "a policy with an unknown operator": {"pol": [["~", ".a", 1]]},
    "a nonce that is text": {"nonce": "twelve bytes"},
    "a nonce that is null": {"nonce": None},
    "a nonce that is empty": {"nonce": b""},
    "a nonce that is long": {"nonce": bytes(257)},
    "an expiry that is a float": {"exp": 1.5},
    "an expiry that is true": {"exp": True},
    "an expiry beyond 53 bits": {"exp": 2**53},
    "a start that is text": {"nbf": "now"},
    "a start beyond 53 bits": {"nbf": -(2**53)},
    "metadata that is null": {"meta": None},
    "metadata that is a list": {"meta": []},
}


@pytest.mark.parametrize("changes", ODD.values(), ids=ODD.keys())
def test_odd_payloads_are_refused(changes):
    fields = {key: value for key, value in (FIELDS | changes).items() if value is not ...}
    with pytest.raises(Malformed):
        decode_payload(libipld.encode_dag_cbor(fields))


def test_a_payload_that_does_not_come_back_is_refused_whatever_the_decoder_thinks(monkeypatch):
    raw = encode_payload(DELEGATION.payload)
    swapped = raw[:1] + encode_pair("cmd") + encode_pair("aud") + after_two_pairs(raw)
    assert len(swapped) == len(raw)
    monkeypatch.setattr("antiphon.core.ucan.dag_cbor.decode", lambda _: dict(FIELDS))
    assert decode_payload(raw).cmd == "/job"
    with pytest.raises(Malformed, match="canonical"):
        decode_payload(swapped)


def encode_pair(name):
    return libipld.encode_dag_cbor(name) + libipld.encode_dag_cbor(FIELDS[name])


def after_two_pairs(raw):
    return raw[1 + len(encode_pair("aud")) + len(encode_pair("cmd")) :]


@pytest.mark.parametrize("value", [1, [], "text", None, b"bytes"], ids=repr)
def test_a_payload_is_a_map(value):
    with pytest.raises(Malformed):
        decode_payload(libipld.encode_dag_cbor(value))


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "text"},
        {"cmd": "/Job"},
        {"exp": 2**53},
        {"aud": "somebody"},
        {"pol": []},
        {"meta": {"when": object()}},
        {"meta": {"link": bytes.fromhex("01710000")}},
        {"pol": Policy([["==", ".a", float("inf")]])},
        {"meta": {"a": "x" * 20_000}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_odd_payloads_are_not_written(changes):
    with pytest.raises(Malformed):
        to_be_signed(structs.replace(claims(ALICE, BOB), **changes))


def test_an_issuer_uses_a_nonce_worth_its_name():
    with pytest.raises(Malformed, match="nonce"):
        delegate(ALICE, BOB, nonce=b"eleven byte")


def envelope(signature=DELEGATION.signature, **changes):
    signed = {"h": VARSIG_HEADER, TAG: FIELDS} | changes
    signed = {key: value for key, value in signed.items() if value is not ...}
    return libipld.encode_dag_cbor([signature, signed])


WRONG = {
    "nothing": b"",
    "noise": b"\x82\x58\x40",
    "a signature of 63 bytes": envelope(signature=bytes(63)),
    "a signature of 65 bytes": envelope(signature=bytes(65)),
    "a header for P-256": envelope(h=bytes.fromhex("3401ec01802412 71".replace(" ", ""))),
    "a header for DAG-JSON": envelope(h=bytes.fromhex("3401ed01ed0113a902")),
    "no header": envelope(h=...),
    "another version": envelope(**{TAG: ..., "ucan/dlg@1.0.0-rc.2": FIELDS}),
    "an invocation": envelope(**{TAG: ..., "ucan/inv@1.0.0-rc.1": FIELDS}),
    "two payloads": envelope(**{"ucan/dlg@1.0.0-rc.9": FIELDS}),
    "something after the end": DELEGATION.raw + b"\x00",
    "something missing at the end": DELEGATION.raw[:-1],
    "a list of three": b"\x83" + DELEGATION.raw[1:] + b"\x00",
    "an indefinite list": b"\x9f" + DELEGATION.raw[1:] + b"\xff",
    "too long": DELEGATION.raw + bytes(20_000),
}


@pytest.mark.parametrize("raw", WRONG.values(), ids=WRONG.keys())
def test_other_envelopes_are_refused(raw):
    with pytest.raises(Malformed):
        open_envelope(raw)


def test_every_head_is_as_short_as_it_can_be():
    """`exp` written with eight bytes where four do: the same value, and refused."""
    short = b"cexp\x1a" + (NOW + 86_400).to_bytes(4, "big")
    long = b"cexp\x1b" + (NOW + 86_400).to_bytes(8, "big")
    assert short in DELEGATION.raw
    with pytest.raises(Malformed):
        open_envelope(DELEGATION.raw.replace(short, long))


def test_the_cid_covers_the_signature():
    other = seal_envelope(DELEGATION.payload, bytes(64))
    assert other.cid != DELEGATION.cid
    assert other != DELEGATION


@pytest.mark.parametrize("size", [0, 63, 65])
def test_a_signature_of_another_size_is_not_sealed(size):
    with pytest.raises(Malformed):
        seal_envelope(DELEGATION.payload, bytes(size))


# --- signatures ------------------------------------------------------------------------------


def test_only_the_issuers_signature_counts():
    assert is_signed(DELEGATION)
    assert not is_signed(forge(DELEGATION, MALLORY))
    assert not is_signed(forge(DELEGATION, None, exp=None))
    assert not is_signed(seal_envelope(DELEGATION.payload, bytes(64)))


def test_a_signature_moved_by_the_groups_order_is_refused():
    order = 2**252 + 27742317777372353535851937790883648493
    signature = DELEGATION.signature
    s = int.from_bytes(signature[32:], "little") + order
    moved = signature[:32] + s.to_bytes(32, "little")
    assert not is_signed(seal_envelope(DELEGATION.payload, moved))


def test_every_flipped_bit_breaks_the_signature_or_the_form():
    for at in range(len(DELEGATION.raw)):
        raw = bytearray(DELEGATION.raw)
        raw[at] ^= 1 << at % 8
        try:
            changed = open_envelope(bytes(raw))
        except Malformed:
            continue
        assert not is_signed(changed)


def test_the_cache_remembers_answers_within_its_size(monkeypatch):
    asked = []

    def slow(delegation):
        asked.append(delegation.cid)
        return is_signed(delegation)

    monkeypatch.setattr("antiphon.core.ucan.signatures.is_signed", slow)
    good, bad = DELEGATION, forge(DELEGATION)
    cache = SignatureCache(size=2)
    assert [cache(good), cache(bad), cache(good), cache(bad)] == [True, False, True, False]
    assert asked == [good.cid, bad.cid]
    third = delegate(ALICE, BOB)
    assert cache(third)
    assert cache(bad) is False
    assert cache(good)  # forgotten, asked again
    assert asked == [good.cid, bad.cid, third.cid, good.cid]
