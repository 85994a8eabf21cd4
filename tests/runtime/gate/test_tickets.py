"""Tickets: once, not for ever, and not for whoever guesses."""

import ssl
import threading

import pytest

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import digest
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.gate.tickets import (
    Invitation,
    Ticket,
    TicketRegistry,
    read_ticket,
    write_ticket,
)

TICKET = Ticket(
    mesh="m" * 8,
    name="render farm",
    engine="nats://farm.example:4222",
    ca=ssl.DER_cert_to_PEM_cert(b"one") + ssl.DER_cert_to_PEM_cert(bytes(range(200))),
    owner="did:key:zOwner",
    id="0123456789abcdef",
    secret="5ec4e7" * 8,
    user_seed="SUSEED",
    jwt="eyJ0eXAiOiJKV1QifQ.eyJuYXRzIjp7fX0.c2lnbmVk",
    expires_s=2_000,
)


def invitation(**changes) -> Invitation:
    fields = {
        "id": TICKET.id,
        "secret_digest": digest(TICKET.secret.encode()),
        "user": "UUSER",
        "terms": Terms(can=("claim",)),
        "expires_s": 2_000,
    }
    return Invitation(**{**fields, **changes})


@pytest.fixture
def book(tmp_path):
    book = TicketRegistry(tmp_path)
    book.add(invitation())
    return book


def redeem(book, ticket=TICKET.id, secret=TICKET.secret, now_s=1_000):
    return book.redeem(ticket, secret, now_s=now_s)


def test_a_ticket_survives_being_wrapped_by_mail_and_terminal():
    text = write_ticket(TICKET)
    wrapped = "\n  ".join(text[at : at + 60] for at in range(0, len(text), 60)) + "\n"
    assert read_ticket(wrapped) == TICKET


def test_no_secret_shows_in_a_repr():
    assert TICKET.secret not in repr(TICKET)
    assert TICKET.user_seed not in repr(TICKET)


@pytest.mark.parametrize("spoil", [lambda t: t[:-9], lambda t: t[:40] + "x" + t[41:], lambda _: ""])
def test_a_spoilt_ticket_is_no_ticket(spoil):
    with pytest.raises(Malformed, match="not a ticket"):
        read_ticket(spoil(write_ticket(TICKET)))


def test_a_bomb_is_not_unpacked():
    import base64
    import zlib

    bomb = base64.urlsafe_b64encode(zlib.compress(b" " * 10_000_000)).decode()
    with pytest.raises(Malformed):
        read_ticket("antiphon-ticket-" + bomb)


def test_a_ticket_works_once(book):
    assert redeem(book).terms == Terms(can=("claim",))
    with pytest.raises(Rejected, match="already used"):
        redeem(book)


def test_a_used_ticket_stays_used_after_a_restart(book, tmp_path):
    redeem(book)
    with pytest.raises(Rejected, match="already used"):
        redeem(TicketRegistry(tmp_path))


def test_of_two_rivals_one_gets_in(book):
    outcomes = []

    def try_it():
        try:
            redeem(book)
            outcomes.append("in")
        except Rejected:
            outcomes.append("out")

    rivals = [threading.Thread(target=try_it) for _ in range(8)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert sorted(outcomes) == ["in"] + ["out"] * 7


def test_what_vanishes_while_the_book_is_tidied_hurts_nobody(book, monkeypatch):
    from pathlib import Path

    really_stat = Path.stat

    def stat(path, **options):
        if path.name == "gone":
            raise FileNotFoundError(path)
        return really_stat(path, **options)

    (book._open / "gone").write_text("")
    monkeypatch.setattr(Path, "stat", stat)
    assert redeem(book)


def test_late_unknown_and_wrong_tickets_are_refused_and_a_wrong_secret_uses_nothing_up(book):
    with pytest.raises(Rejected, match="expired"):
        redeem(book, now_s=2_001)
    with pytest.raises(Rejected, match="no such ticket"):
        redeem(book, ticket="f" * 16)
    with pytest.raises(Rejected, match="no such ticket"):
        redeem(book, ticket="../../etc/passwd")
    with pytest.raises(Rejected, match="no such ticket"):
        redeem(book, secret="guess")
    assert redeem(book)
