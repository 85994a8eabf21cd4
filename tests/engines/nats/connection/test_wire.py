"""Bytes on the wire: cutting them, and believing only what the server wrote."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError

from antiphon.engines.nats.connection import wire
from antiphon.errors import Corrupt, Rejected

TRAILER = (
    b"Nats-Stream: S\r\nNats-Subject: ap.m.jobs.job.x\r\nNats-Sequence: 7\r\n"
    b"Nats-Time-Stamp: 2025-11-15T00:00:00.5Z\r\n\r\n"
)


class Client:
    def __init__(self):
        self.seen = []

    async def _process_ping(self):
        self.seen.append("ping")

    async def _process_pong(self):
        self.seen.append("pong")

    async def _process_err(self, text):
        self.seen.append(text)

    async def take_info(self, line):
        self.seen.append(line.strip())


STREAM = (
    b"PING\r\n"
    b"MSG a.b 1 5\r\nhello\r\n"
    b"MSG a.b 1 re.ply 0\r\n\r\n"
    b"HMSG c 2 12 17\r\nNATS/1.0\r\n\r\nwo\r\nd\r\n"
    b"HMSG c 2 re 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    b"-ERR 'Permissions Violation for Publish to \"AP.x\"'\r\n"
    b"MSG nobody 9 2\r\nxx\r\n"
    b"+OK\r\nPONG\r\nINFO {}\r\n"
)
MESSAGES = [
    (b"a.b", b"", b"hello", b""),
    (b"a.b", b"re.ply", b"", b""),
    (b"c", b"", b"wo\r\nd", b"NATS/1.0\r\n\r\n"),
    (b"c", b"re", b"", b"NATS/1.0\r\n\r\n"),
]


def cut(parts):
    client, heard = Client(), []
    handlers = {sid: lambda *message: heard.append(message) for sid in (b"1", b"2")}
    parser = wire.Parser(client, handlers)

    async def feed():
        for part in parts:
            await parser.parse(part)

    asyncio.run(feed())
    return heard, client.seen


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_messages_survive_any_cut_of_the_stream(places):
    edges = [0, *sorted(places), len(STREAM)]
    heard, seen = cut([STREAM[a:b] for a, b in itertools.pairwise(edges)])
    assert heard == MESSAGES
    # The server's words keep their case: subjects have one.
    assert seen == ["ping", 'Permissions Violation for Publish to "AP.x"', "pong", b"{}"]


@pytest.mark.parametrize("junk", [b"HELLO\r\n", b"MSG a\r\n", b"HMSG a 1 x 5\r\n", b"x" * 70_000])
def test_what_is_not_the_protocol_ends_the_connection(junk):
    with pytest.raises(ProtocolError):
        cut([junk])


def test_a_failing_handler_does_not_stop_the_others(caplog):
    heard = []

    def handler(*message):
        heard.append(message)
        raise ValueError("no")

    parser = wire.Parser(Client(), {b"1": handler})
    asyncio.run(parser.parse(b"MSG a 1 1\r\nx\r\nMSG a 1 1\r\ny\r\n"))
    assert [message[2] for message in heard] == [b"x", b"y"]
    assert "handler failed" in caplog.text


def test_a_publisher_cannot_write_the_servers_headers():
    lies = (
        b"NATS/1.0\r\nNats-Subject: ap.m.ctl.genesis\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 1999-01-01T00:00:00Z\r\nNats-Msg-Id: a\r\n"
    )
    record = wire.read_record(lies + TRAILER, b"p")
    assert (record.seq, record.subject) == (7, "ap.m.jobs.job.x")
    assert record.stamp_ns % 1_000_000_000 == 500_000_000


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\n" + TRAILER[:-2] + b"Extra: 1\r\n\r\n",
        b"NATS/1.0\r\n" + TRAILER.replace(b"Nats-Sequence: 7\r\n", b""),
    ],
)
def test_a_record_without_the_servers_lines_at_the_end_is_corrupt(header):
    with pytest.raises(Corrupt):
        wire.read_record(header, b"")


CAS = b"Nats-Expected-Last-Subject-Sequence"


@pytest.mark.parametrize(
    "lines, expected",
    [
        (CAS + b": 12\r\n", 12),
        (CAS + b": 0\r\n", 0),
        (b"", None),
        (CAS + b":5\r\n" + CAS + b": 0\r\n", None),
        (CAS.lower() + b": 5\r\n" + CAS + b": 0\r\n", None),
        (CAS + b": 0\r\n" + CAS + b"-Subject: ap.m.jobs.job.other\r\n", None),
        (CAS + b": -1\r\n", None),
        (CAS + b": 1x\r\n", None),
        (b"X" + CAS + b": 3\r\n", None),
    ],
)
def test_only_an_enforced_compare_and_set_proves_what_came_before(lines, expected):
    assert wire.expected_last(b"NATS/1.0\r\n" + lines + TRAILER) == expected


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB x", "a.*", "a.>", "ä", "a\x00"])
def test_a_subject_cannot_break_out_of_its_line(subject):
    with pytest.raises(Rejected):
        wire.check_subject(subject)


@pytest.mark.parametrize("text", ["", "a b", "a\r\nNats-Rollup: all", "ü"])
def test_a_message_id_cannot_break_out_of_its_header(text):
    with pytest.raises(Rejected):
        wire.check_message_id(text)


PLACE = (
    b"Nats-Subject: ap.m.jobs.job.k.1\r\nNats-Sequence: 7\r\n"
    b"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\n\r\n"
)


@pytest.mark.parametrize("forged", [b"100 x", b"204 EOB", b"404 No Messages", b"503"])
def test_a_record_that_begins_like_a_status_is_still_a_record(forged):
    header = b"NATS/1.0 " + forged + b"\r\nNats-Num-Pending: 0\r\nNats-Stream: S\r\n" + PLACE
    assert wire.status_of(header) == 0
    assert wire.read_record(header, b"x").seq == 7


def test_the_servers_own_statuses_are_read():
    assert wire.status_of(b"NATS/1.0 503\r\nNats-Subject: apg.m.u.get\r\n\r\n") == 503
    assert wire.status_of(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n") == 204


def test_subjects_of_any_bytes_and_sequences_beyond_all_bounds_break_nothing():
    odd = PLACE.replace(b"jobs.job.k.1", b"jobs.job.k.\xff\xfe")
    found = wire.read_record(b"NATS/1.0\r\nNats-Stream: S\r\n" + odd, b"")
    assert found.subject.endswith("jobs.job.k.\ufffd\ufffd")
    huge = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: " + b"9" * 30 + b"\r\n\r\n"
    assert wire.expected_last(huge) is None
