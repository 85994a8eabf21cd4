"""Tickets: once, not for ever, and not for whoever guesses."""

import base64
import threading

import msgspec
import pytest

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import digest
from antiphon.errors import Malformed, Rejected, Unreadable
from antiphon.runtime.gate.tickets import (
    KEPT_MS,
    MAX_TICKET_CHARS,
    PREFIX,
    PRUNE_EVERY_S,
    Invitation,
    Ticket,
    TicketRegistry,
    read_ticket,
    write_ticket,
)

TICKET = Ticket(
    mesh="x2trbqd4x3ujftog",
    engine="nats://farm.example:4222",
    pin="9a" * 32,
    secret="5ec4e7ff" * 4,
    account="ac" * 32,
    signature="51" * 64,
    issued_s=1_100,
    expires_s=2_000,
)
MINE = ("did:key:zMine", "UMINE", "UREFRESH")
THEIRS = ("did:key:zTheirs", "UTHEIRS", "UREFRESHTOO")


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


def redeem(book, ticket=TICKET.id, secret=TICKET.secret, now_s=1_000, keys=MINE, alias="box"):
    return book.redeem(book.find(ticket, secret, keys, now_s=now_s), keys, alias)


def test_a_ticket_survives_being_wrapped_by_mail_and_terminal():
    text = write_ticket(TICKET)
    wrapped = "\n  ".join(text[at : at + 60] for at in range(0, len(text), 60)) + "\n"
    assert read_ticket(wrapped) == TICKET


def test_no_secret_shows_in_a_repr():
    assert TICKET.secret not in repr(TICKET)
    assert TICKET.login_key.hex() not in repr(TICKET)


def test_the_gate_s_half_does_not_say_how_to_log_in():
    """Its name and its digest are other bytes than the key that is made from the secret."""
    assert TICKET.id not in TICKET.login_key.hex()
    assert TICKET.id not in TICKET.secret
    other = msgspec.structs.replace(TICKET, secret="5ec4e8" + TICKET.secret[6:])
    assert other.id != TICKET.id
    assert other.login_key != TICKET.login_key


def test_a_ticket_has_300_characters_at_most():
    for host in ("ip-10-0-12-34.eu-central-1.compute.internal", "10.0.0.1", "h" * 44):
        text = write_ticket(msgspec.structs.replace(TICKET, engine=f"nats://{host}:4222"))
        assert len(text) <= 300
    longest = f"nats://{'h' * 63}.{'h' * 63}.{'h' * 63}.{'h' * 61}:65535"
    assert read_ticket(write_ticket(msgspec.structs.replace(TICKET, engine=longest)))


def test_a_ticket_of_the_greatest_length_is_read_and_a_longer_one_is_refused():
    room = (MAX_TICKET_CHARS - len(PREFIX)) * 3 // 4 - len(packed_without_engine())
    longest, longer = (
        msgspec.structs.replace(TICKET, engine="nats://" + "h" * size) for size in (room, room + 1)
    )
    text = write_ticket(longest)
    assert (len(text), read_ticket(text)) == (MAX_TICKET_CHARS, longest)
    with pytest.raises(Unreadable):
        write_ticket(longer)


def packed_without_engine() -> bytes:
    text = write_ticket(msgspec.structs.replace(TICKET, engine="nats://")).removeprefix(PREFIX)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_text_that_is_something_else_is_told_from_a_spoilt_ticket():
    text = write_ticket(TICKET)
    for other in ("", "hello", text.removeprefix(PREFIX), f"my {text}"):
        with pytest.raises(Malformed, match="does not begin with 'antiphon-ticket-'"):
            read_ticket(other)
    with pytest.raises(Malformed, match="a part is missing or was changed"):
        read_ticket(text[:-9])


@pytest.mark.parametrize("engine", ["tls://farm:4222", "nats://[::1]:4222"])
def test_any_address_can_be_in_a_ticket(engine):
    ticket = msgspec.structs.replace(TICKET, engine=engine)
    assert read_ticket(write_ticket(ticket)) == ticket


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-9],
        lambda text: text[:40] + "x" + text[41:],
        lambda text: text + "AAAA",
        lambda text: text[:40] + "é" + text[41:],
        lambda _: "",
        lambda _: "antiphon-ticket-",
        lambda text: text + "A" * 10_000,
    ],
)
def test_a_spoilt_ticket_is_no_ticket(spoil):
    with pytest.raises(Malformed, match="not a ticket"):
        read_ticket(spoil(write_ticket(TICKET)))


def test_a_ticket_lets_one_machine_in(book):
    assert redeem(book).terms == Terms(can=("claim",), alias="box")
    for keys in (THEIRS, (*MINE[:2], "UOTHER"), (MINE[0], "UOTHER", MINE[2])):
        with pytest.raises(Rejected, match="already used"):
            redeem(book, keys=keys)


def test_the_same_keys_get_the_same_again_until_the_ticket_expires(book, tmp_path):
    """A gate that was killed right behind the redemption knows afterwards whose the ticket is."""
    used = redeem(book)
    for registry in (book, TicketRegistry(tmp_path)):
        again = redeem(registry, alias="another name")
        assert again == used
        assert again.nonce(12) == invitation().nonce(12)
        with pytest.raises(Rejected, match="already used"):
            redeem(registry, keys=THEIRS)
    with pytest.raises(Rejected, match="expired"):
        redeem(book, now_s=2_001)


def test_a_gate_that_was_killed_before_it_removed_the_open_half_knows_that_it_is_used(
    book, monkeypatch
):
    from pathlib import Path

    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    redeem(book)
    assert (book._open / TICKET.id).exists()
    with pytest.raises(Rejected, match="already used"):
        redeem(book, keys=THEIRS)


def test_two_tickets_give_two_delegations():
    assert invitation().nonce(12) != invitation(id="f" * 16).nonce(12)


def test_of_two_rivals_one_gets_in(book):
    outcomes = []
    found = {keys: book.find(TICKET.id, TICKET.secret, keys, now_s=1_000) for keys in rivals_of(8)}

    def try_it(keys):
        try:
            book.redeem(found[keys], keys, "box")
            outcomes.append("in")
        except Rejected:
            outcomes.append("out")

    rivals = [threading.Thread(target=try_it, args=[keys]) for keys in found]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert sorted(outcomes) == ["in"] + ["out"] * 7


def rivals_of(count):
    return [(f"did:key:z{number}", f"U{number}", f"R{number}") for number in range(count)]


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


@pytest.mark.parametrize("is_used", [False, True])
def test_a_ticket_is_remembered_for_a_month_and_then_forgotten(book, is_used):
    if is_used:
        redeem(book)
    (kept,) = (path for path in book._open.parent.glob("*/*") if path.is_file())
    stored_s, month_s = int(kept.stat().st_mtime), KEPT_MS // 1000
    with pytest.raises(Rejected, match="expired"):
        redeem(book, now_s=stored_s + month_s - PRUNE_EVERY_S)
    assert kept.exists()
    with pytest.raises(Rejected, match="no such ticket"):
        redeem(book, now_s=stored_s + month_s + PRUNE_EVERY_S)
    assert not kept.exists()


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
