"""The NATS client protocol, as much of it as the hot path needs.

Owns cutting the incoming byte stream into messages, building outgoing frames, and reading the
headers that the *server* wrote. nats-py keeps the handshake, TLS, authentication and
reconnecting; its own parser and header handling cost more than the rest of a request together,
and lower-case the server's error texts.

Invariant: whatever a publisher put into a message's headers, `read_record` returns only what
the server appended behind them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from nats.errors import ProtocolError

from antiphon.engines.nats.connection.stamps import parse_rfc3339_ns
from antiphon.errors import Corrupt, Rejected
from antiphon.ports import Record

Handler: TypeAlias = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply, payload and raw header block of every message."""

_log = logging.getLogger(__name__)

MAX_CONTROL_LINE_BYTES = 64 * 1024
_CRLF = b"\r\n"
_MESSAGES = b"HM"
"""HMSG and MSG."""
_H = _MESSAGES[0]
_SUBJECT = re.compile(r"[!-)+-=?-~]+", re.ASCII)  # no blank, no `*`, no `>`
_FILTER = re.compile(r"[!-~]+", re.ASCII)
_TOKEN = re.compile(r"[!-~]+", re.ASCII)
_NO_CHARACTER = re.compile("[\udc80-\udcff]")
_STATUS_AT = len(b"NATS/1.0 ")
_TRAILER = re.compile(
    rb"\r\nNats-Subject: ([^\r]+)\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: ([^\r]+)\r\n"
    rb"(?:Nats-Num-Pending: \d+\r\n)?(?:Nats-Last-Sequence: \d+\r\n)?\r\n\Z"
)
_TRAILER_START = b"\r\nNats-Subject: "
_PLACE = b"\r\nNats-Sequence: "
_SEQUENCE_DIGITS = 18
_MESSAGE_ID = b"\r\nNats-Msg-Id: "
_EXPECTED_LAST = b"\r\nNats-Expected-Last-Subject-Sequence: "
_EXPECTED_ANY = b"nats-expected-last-subject-sequence"


# --- outgoing ---------------------------------------------------------------------------------


def check_subject(subject: str) -> bytes:
    """A literal subject as bytes; refuses whatever could break out of its protocol line."""
    if _SUBJECT.fullmatch(subject) is None:
        raise Rejected(f"{subject!r} is not a subject to publish on", reason="subject")
    return subject.encode()


def check_filter(subject: str) -> str:
    """A subject that may hold wildcards."""
    if _FILTER.fullmatch(subject) is None:
        raise Rejected(f"{subject!r} is not a subject filter", reason="subject")
    return subject


def check_message_id(text: str) -> bytes:
    """A header value of printable ASCII without blanks."""
    if _TOKEN.fullmatch(text) is None:
        raise Rejected(f"{text!r} cannot be a message id", reason="token")
    return text.encode()


def pub(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    """A PUB frame."""
    if reply:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


def hpub(subject: bytes, payload: bytes, header: bytes, reply: bytes) -> bytes:
    """An HPUB frame; `header` is a whole block, `NATS/1.0` line and empty line included."""
    size = len(header)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
        subject,
        reply,
        size,
        size + len(payload),
        header,
        payload,
    )


# --- headers ----------------------------------------------------------------------------------


def status_of(header: bytes) -> int:
    """The inline status (`NATS/1.0 404 …`) of a reply, or 0 if it is an ordinary message."""
    # A stored record may begin like a status; only a record carries its place behind that.
    if header[8:9] == b" " and _PLACE not in header:
        code = header[_STATUS_AT : _STATUS_AT + 3]
        if code.isdigit():
            return int(code)
    return 0


def status_text(header: bytes) -> str:
    """The text after the status."""
    return header[_STATUS_AT : header.find(_CRLF)].decode("utf-8", "replace")


def header_int(header: bytes, name: bytes) -> int:
    """The last value of an integer header in a block that the server wrote; 0 if absent."""
    at = header.rfind(b"\r\n" + name + b": ")
    if at < 0:
        return 0
    start = at + len(name) + 4
    text = header[start : header.find(_CRLF, start)]
    return int(text) if text.isdigit() else 0


def read_subject(raw: bytes) -> str:
    """A subject as text; the server lets a publisher put any bytes into one.

    In the leader's answers subjects are JSON, where the server writes U+FFFD for each byte that is
    part of no character. So it must be here: a record's subject is the same however it was read.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _NO_CHARACTER.sub("\ufffd", raw.decode("utf-8", "surrogateescape"))


def read_record(header: bytes, payload: bytes) -> Record:
    """A stored message as a record, from what the server says about it.

    Publishers choose their own headers and could write `Nats-Sequence` themselves. The server
    appends its lines last and together, so only an unbroken run up to the end counts.
    """
    at = header.rfind(_TRAILER_START)
    found = _TRAILER.match(header, at) if at >= 0 else None
    if found is None:
        raise Corrupt(f"the engine sent a record without its place in the log: {header!r}")
    subject, seq, stamp = found.groups()
    return Record(int(seq), parse_rfc3339_ns(stamp), read_subject(subject), payload)


def read_republished(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> Record | None:
    """A record that the server republished as it was stored; None if this is anything else.

    A client that asks the server for something names the reply subject, live ones included. A
    delivery comes with its publisher's headers alone, but shows the record's own subject and
    where to acknowledge it; a read has its true place behind them, and goes where it was sent.
    """
    if reply or header.rfind(_TRAILER_START) < 0:
        return None
    record = read_record(header, payload)
    return record if read_subject(subject) == f"apr{record.subject[2:]}" else None


def expected_last(header: bytes) -> int | None:
    """The sequence that a record's compare-and-set named, if the engine must have enforced it.

    None unless the header is there once, in the one spelling that the engine reads, and
    without the variant that checks another subject: anything else proves nothing.
    """
    at = header.find(_EXPECTED_LAST)
    if at < 0 or header.lower().count(_EXPECTED_ANY) != 1:
        return None
    start = at + len(_EXPECTED_LAST)
    text = header[start : header.find(_CRLF, start)]
    is_sequence = text.isdigit() and len(text) <= _SEQUENCE_DIGITS
    return int(text) if is_sequence else None


def message_id(header: bytes) -> bytes:
    """The message id that the publisher gave."""
    at = header.find(_MESSAGE_ID)
    if at < 0:
        return b""
    start = at + len(_MESSAGE_ID)
    return header[start : header.find(_CRLF, start)]


# --- incoming ---------------------------------------------------------------------------------


class Parser:
    """Cuts the byte stream and hands messages to their subscription's handler.

    Takes the place of nats-py's parser (same two methods). `client` gets everything that is not
    a message. Handlers are plain functions and must not raise.
    """

    def __init__(self, client: Any, handlers: dict[bytes, Handler]) -> None:
        self._client = client
        self._handlers = handlers
        self._parts: list[bytes] = []
        self._held = 0
        self._need = 0

    def reset(self) -> None:
        """Forget half a message: the connection it came from is gone."""
        self._parts = []
        self._held = 0
        self._need = 0

    async def parse(self, data: bytes = b"") -> None:
        """Take in what was read from the socket."""
        if self._parts:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._need:
                return
            data = b"".join(self._parts)
        self.reset()
        rest = await self._cut(data)
        if rest < len(data):
            tail = data[rest:] if rest else data
            if not self._need and len(tail) > MAX_CONTROL_LINE_BYTES:
                raise ProtocolError
            self._parts = [tail]
            self._held = len(tail)

    async def _cut(self, data: bytes) -> int:
        """Handle every whole message in `data`; returns where the rest begins."""
        find, handlers, size = data.find, self._handlers, len(data)
        at = 0
        while True:
            end = find(_CRLF, at)
            if end < 0:
                return at
            kind = data[at]
            if kind not in _MESSAGES:
                await self._control(data[at:end])
                at = end + 2
                continue
            words = data[at:end].split(b" ")  # a subject may hold other blanks
            try:
                stop = end + 2 + int(words[-1])
                start = end + 2 + (int(words[-2]) if kind == _H else 0)
                if stop + 2 > size:
                    self._need = stop + 2 - at
                    return at
                reply = words[3] if len(words) == (6 if kind == _H else 5) else b""
                handler = handlers.get(words[2])
            except (IndexError, ValueError) as error:
                raise ProtocolError from error
            if handler is not None:
                try:
                    handler(words[1], reply, data[start:stop], data[end + 2 : start])
                except Exception:  # noqa: BLE001
                    # It must not end nats-py's read loop, which would never start again.
                    _log.exception("a NATS message handler failed")
            at = stop + 2

    async def _control(self, line: bytes) -> None:
        """Everything but messages is rare and stays with nats-py."""
        client = self._client
        match line[:4].upper():
            case b"PING":
                await client._process_ping()  # noqa: SLF001 - this replaces its parser
            case b"PONG":
                await client._process_pong()  # noqa: SLF001
            case b"-ERR":
                text = line[4:].strip().strip(b"'").decode("utf-8", "replace")
                await client._process_err(text)  # noqa: SLF001
            case b"INFO":
                await client.take_info(line[4:])
            case _ if line[:3].upper() == b"+OK":
                return
            case _:
                raise ProtocolError
