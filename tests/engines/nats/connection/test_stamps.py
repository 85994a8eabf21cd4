"""Commit stamps: one integer for one record, whichever way the engine tells it."""

import calendar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engines.nats.connection.stamps import parse_ack_subject, parse_rfc3339_ns
from antiphon.errors import Corrupt
from antiphon.testing.engine_suite.harness import new_mesh
from tests.engines.nats.harness import connect
from tests.local_server import shared_server

WHOLE_S = calendar.timegm((2025, 11, 15, 0, 37, 12))


@pytest.mark.parametrize("digits", range(10))
def test_a_fraction_may_have_any_number_of_digits(digits):
    fraction = "123456789"[:digits]
    text = f"2025-11-15T00:37:12{'.' if digits else ''}{fraction}Z"
    expected = WHOLE_S * 1_000_000_000 + int(fraction.ljust(9, "0"))
    assert parse_rfc3339_ns(text.encode()) == expected


@given(st.integers(0, 4_000_000_000), st.integers(0, 999_999_999))
def test_every_stamp_comes_back_exactly(seconds, nanoseconds):
    moment = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*_parts(seconds))
    fraction = f".{nanoseconds:09}".rstrip("0") if nanoseconds else ""
    stamp = parse_rfc3339_ns(f"{moment}{fraction}Z".encode())
    assert stamp == seconds * 1_000_000_000 + nanoseconds


def _parts(seconds):
    import time

    return time.gmtime(seconds)[:6]


@pytest.mark.parametrize(
    "text",
    [b"", b"Z", b"2025-11-15T00:37:12", b"2025-11-15T00:37:12+01:00", b"2025-11-15 00:37:12Z"],
)
def test_other_forms_are_refused(text):
    with pytest.raises(Corrupt):
        parse_rfc3339_ns(text)


@pytest.mark.parametrize(
    "reply",
    [
        b"$JS.ACK.AP_m_LOG.q.3.17.9.1763158000123456789.4",
        b"$JS.ACK.hub.ACCHASH.AP_m_LOG.q.3.17.9.1763158000123456789.4",
        b"$JS.ACK._.ACCHASH.AP_m_LOG.q.3.17.9.1763158000123456789.4.rand",
    ],
)
def test_a_delivery_tells_the_same_in_every_form(reply):
    info = parse_ack_subject(reply)
    assert (info.deliveries, info.seq, info.stamp_ns) == (3, 17, 1763158000123456789)


@pytest.mark.parametrize("reply", [b"", b"$JS.ACK.s.q.1.2.3.x.5", b"_INBOX.a", b"$JS.ACK.s.q.1.2"])
def test_what_is_no_delivery_is_refused(reply):
    with pytest.raises(Corrupt):
        parse_ack_subject(reply)


@pytest.mark.nats
async def test_headers_deliveries_and_the_leader_agree_on_every_record():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        for n in range(64):
            await engine.log.append(
                f"ap.{mesh}.jobs.1.k.{n}", b"x", message_id=f"{n}", expected_last=0
            )
        by_header = (await engine.log.read(0, limit=64)).records
        async with engine.log.work(f"ap.{mesh}.jobs.1.k.*", name="q") as queue:
            queue.grant(64)
            delivered = [(await queue.next()).record for _ in range(64)]
        by_leader = [await engine.log.records.leader_at(n + 1) for n in range(64)]
        async with engine.log.follow(0) as batches:
            followed = await anext(batches)
        assert by_header == delivered == by_leader == followed[:64]
