"""A signed message counts for what it was signed for alone, and no bytes break whoever reads it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.bus.signed_message import MessageType, Refused
from antiphon.core.record.signing import is_signed
from antiphon.errors import Rejected
from antiphon.runtime.identity.key_files import SeedKeyring

NOW_MS = 1_700_000_000_000
MINE, OTHER = SeedKeyring(bytes(range(32))), SeedKeyring(bytes(32))


class Body(msgspec.Struct, frozen=True):
    note: str
    share: float = 0.0


NOTES = MessageType("note", Body, max_bytes=1000, max_age_ms=10_000)
OTHERS = MessageType("other", Body, max_bytes=1000, max_age_ms=10_000)
TIMELESS = MessageType("note", Body, max_bytes=1000)
NESTED = b"[" * 100_000


def by(key, name=""):
    return (name or key.did, key.sign)


def signed(body=Body("hello", 0.1), *signers, kind=NOTES, **changes):  # noqa: B008 - frozen
    where = {"mesh": "m", "subject": "work.a", "at_ms": NOW_MS, **changes}
    return kind.sign(body, *(signers or (by(MINE),)), **where)


def forged(body):
    """What somebody signs who looks at nothing."""
    text = b'{"mesh":"m","subject":"work.a","signers":["%b"],"at_ms":%d,"body":%b}' % (
        MINE.did.encode(), NOW_MS, body,
    )  # fmt: skip
    return b'{"message":%b,"sigs":["%b"]}' % (
        text, MINE.sign(NOTES.payload_type, text).hex().encode(),
    )  # fmt: skip


def opened(payload, kind=NOTES, **changes):
    return kind.open(payload, **{"mesh": "m", "subject": "work.a", "now_ms": NOW_MS, **changes})


def test_a_message_has_its_author_its_time_and_its_body_floats_included():
    message = opened(signed())
    assert message.body == Body("hello", 0.1)
    assert (message.author, message.at_ms) == (MINE.did, NOW_MS)


@pytest.mark.parametrize(
    "payload, why",
    [
        (signed(kind=OTHERS), Refused.SIGNATURE),
        (signed(mesh="elsewhere"), Refused.MESH),
        (signed(subject="work.b"), Refused.SUBJECT),
        (signed(at_ms=NOW_MS - 10_001), Refused.STALE),
        (signed(at_ms=NOW_MS + 10_001), Refused.STALE),
        (signed(at_ms=0), Refused.STALE),
        (signed(Body("x"), by(OTHER, MINE.did)), Refused.SIGNATURE),
        (signed(Body("x"), by(MINE, "no key")), Refused.SIGNATURE),
        (signed(Body("x"), by(MINE), by(OTHER)), Refused.SIGNATURE),
        (forged(b'{"share":1}'), Refused.MALFORMED),
        (forged(b'{"note":"\xff"}'), Refused.MALFORMED),
        (signed(Body("x" * 500), kind=MessageType("note", Body, max_bytes=2000)) + b" " * 500,
         Refused.TOO_LARGE),
    ],
)  # fmt: skip
def test_it_counts_for_its_purpose_its_place_and_its_time_alone(payload, why):
    assert opened(payload) is why


def test_what_is_forged_by_hand_is_read_where_it_is_right():
    assert opened(forged(b'{"note":"x","share":1}')).body == Body("x", 1.0)


def test_without_a_bound_on_age_no_clock_is_asked():
    assert opened(signed(at_ms=0), TIMELESS).body == Body("hello", 0.1)
    assert b"at_ms" not in signed(at_ms=0)


def test_everybody_who_must_sign_has_signed():
    def is_ours(name, payload_type, payload, signature):
        return name == "ours" and signature == OTHER.sign(payload_type, payload)

    both = signed(Body("x"), by(MINE), by(OTHER, "ours"))
    checks = (is_signed, is_ours)
    assert opened(both, checks=checks).signers == (MINE.did, "ours")
    assert opened(both, checks=(is_ours, is_signed)) is Refused.SIGNATURE
    assert opened(both) is Refused.SIGNATURE
    assert opened(signed(), checks=checks) is Refused.SIGNATURE
    assert opened(signed(Body("x"), by(MINE), by(MINE, "ours")), checks=checks) is Refused.SIGNATURE


def test_what_nobody_would_open_is_not_sent():
    with pytest.raises(Rejected, match="too large") as caught:
        signed(Body("x" * 1000))
    assert caught.value.reason == "too_large"


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.text(max_size=5) | st.integers(), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["message", "sigs", "mesh", "signers", "body"]), inner),
).map(msgspec.json.encode))  # fmt: skip
def test_no_bytes_make_it_raise(payload):
    assert isinstance(opened(payload), Refused)


@pytest.mark.parametrize(
    "payload",
    [NESTED, b'{"message":' + NESTED, b'{"message":{"body":' + NESTED, b'{"x":' + NESTED, b""],
)
def test_deep_nesting_is_malformed(payload):
    generous = MessageType("note", Body, max_bytes=10**6)
    assert opened(payload, generous) is Refused.MALFORMED


@given(st.data())
def test_no_changed_byte_passes(data):
    payload = bytearray(signed())
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= 1 << data.draw(st.integers(0, 7))
    assert isinstance(opened(bytes(payload)), Refused)


def test_an_envelope_has_nothing_else_in_it():
    payload = msgspec.json.decode(signed())
    assert opened(msgspec.json.encode(payload)) != Refused.MALFORMED
    assert opened(msgspec.json.encode({**payload, "x": 1})) is Refused.MALFORMED
    assert (
        opened(msgspec.json.encode({**payload, "sigs": payload["sigs"] * 4})) is Refused.MALFORMED
    )
    upper = [one.upper() for one in payload["sigs"]]
    assert opened(msgspec.json.encode({**payload, "sigs": upper})) is Refused.MALFORMED
    payload["message"]["x"] = 1
    assert opened(msgspec.json.encode(payload)) is Refused.MALFORMED
