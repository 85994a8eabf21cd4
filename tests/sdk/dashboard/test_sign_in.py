"""Signing in to the dashboard: links that work once, for a while."""

import pytest

from antiphon.sdk.dashboard import sign_in
from antiphon.sdk.dashboard.sign_in import Session, SignIn


@pytest.fixture
def told():
    return []


@pytest.fixture
def door(told):
    made = SignIn()
    made.tell = told.append
    return made


def test_a_link_signs_in_once_and_the_next_one_is_told(door, told):
    first = door.link()
    session = door.enter(first)
    assert door.is_signed_in(session)
    assert door.enter(first) is None
    (following,) = told
    assert door.is_signed_in(door.enter(following))


def test_a_link_that_was_not_used_in_time_does_not_work_and_a_new_one_is_told(
    door, told, monkeypatch
):
    late = door.link()
    monkeypatch.setattr(sign_in, "LINK_S", 0)
    monkeypatch.setattr(sign_in, "LINK_AGAIN_S", 0)
    assert door.enter(late) is None
    monkeypatch.undo()
    assert door.is_signed_in(door.enter(told[0]))


def test_an_old_link_cannot_fill_the_terminal(door, told):
    old = door.link()
    door.enter(old)
    for _ in range(10):
        assert door.enter(old) is None
    assert len(told) == 1


def test_what_is_no_link_tells_nothing(door, told):
    assert door.enter("guessed") is None
    assert not door.is_signed_in(Session("", ""))
    assert told == []


def test_a_session_ends(door, monkeypatch):
    session = door.enter(door.link())
    monkeypatch.setattr(sign_in, "SESSION_S", 0)
    assert not door.is_signed_in(session)


def test_neither_the_cookie_nor_the_address_of_a_session_is_of_use_alone(door):
    mine, other = door.enter(door.link()), door.enter(door.link())
    assert mine.room != other.room
    assert not door.is_signed_in(Session(mine.secret, other.room))
    assert not door.is_signed_in(Session(mine.secret, ""))
