"""The order of an inbox: threads, priorities, senders' turns, shares, and what is dead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.messages import inbox, register
from antiphon.core.messages.inbox import Inbox
from antiphon.core.messages.register import Note

HOUR_MS = 3_600_000
ONE = register.session_name(1_000, "a")
TWO = register.session_name(2_000, "b")


class Box:
    """An inbox with registers behind it, as a gate would change them."""

    def __init__(self):
        self.inbox = Inbox()
        self.now = 1
        self.revision = 0
        self.notes = {}

    def write(self, id_, note):
        self.revision += 1
        self.notes[id_] = (self.revision, note)
        self.inbox.apply(id_, self.revision, note)

    def put(self, id_, *, thread="", priority=0, party="p", ttl_ms=HOUR_MS, size=1):
        self.write(
            id_,
            Note(
                sender=party,
                party=party,
                thread=thread,
                priority=priority,
                size=size,
                put_ms=self.now,
                expires_ms=self.now + ttl_ms,
            ),
        )

    def lease(self, id_, session=ONE, lease_ms=1_000):
        revision, note = self.notes[id_]
        self.write(
            id_,
            register.leased(note, revision, session=session, now_ms=self.now, lease_ms=lease_ms),
        )

    def read(self, limit=100, session=ONE, thread="", lease_ms=1_000):
        """Take and lease; the ids."""
        picks = self.inbox.take(session, self.now, limit, thread=thread)
        for pick in picks:
            if pick.dead:
                self.ack(pick.entry.id)
            else:
                self.lease(pick.entry.id, session, lease_ms)
        return [pick.entry.id for pick in picks if not pick.dead]

    def ack(self, id_):
        revision, note = self.notes[id_]
        self.write(id_, register.finished(note, revision))

    def nack(self, id_, delay_ms=0):
        _, note = self.notes[id_]
        self.write(id_, register.given_back(note, now_ms=self.now, delay_ms=delay_ms))

    def extend(self, id_, lease_ms):
        _, note = self.notes[id_]
        self.write(id_, register.extended(note, now_ms=self.now, lease_ms=lease_ms))


@pytest.fixture
def box():
    return Box()


def test_messages_of_a_thread_come_one_at_a_time_and_in_order(box):
    for id_ in ("a", "b", "c"):
        box.put(id_, thread="t")
    assert box.read() == ["a"]
    assert box.read() == []
    box.ack("a")
    assert box.read() == ["b"]
    box.put("d", thread="t")
    assert box.read() == []


def test_what_was_given_back_holds_up_its_own_thread_only(box):
    box.put("a", thread="t")
    box.put("b", thread="t")
    box.put("x", thread="other")
    box.put("y")
    assert box.read() == ["a", "x", "y"]
    box.nack("a", delay_ms=500)
    assert box.read() == []
    assert box.inbox.due_ms(ONE, box.now) == box.now + 500
    box.now += 500
    assert box.read() == ["a"]
    box.ack("a")
    assert box.read() == ["b"]


def test_a_lease_ends_at_its_time(box):
    box.put("a")
    assert box.read() == ["a"]
    box.now += 999
    assert box.read() == []
    box.now += 1
    assert box.read() == ["a"]
    assert box.notes["a"][1].attempts == 2


def test_a_reader_that_is_opened_again_does_not_wait_for_its_own_leases(box):
    box.put("a", thread="t")
    box.put("b", thread="t")
    assert box.read(session=ONE, lease_ms=HOUR_MS) == ["a"]
    assert box.read(session=TWO, lease_ms=HOUR_MS) == ["a"]
    assert box.read(session=ONE) == []  # the older session gets nothing that the newer one has


def test_an_older_session_passes_over_what_was_offered_to_the_newer_one(box):
    box.put("a")
    box.put("b")
    assert box.read(session=ONE, lease_ms=HOUR_MS) == ["a", "b"]
    assert box.read(session=TWO, limit=1) == ["a"]
    box.put("c")
    assert box.read(session=ONE) == ["c"]
    assert box.inbox.due_ms(ONE, box.now) > box.now  # what is there is not for this session
    assert box.inbox.due_ms(TWO, box.now) == 0
    assert box.read(session=TWO) == ["b", "c"]


def test_a_clock_that_was_set_back_does_not_keep_a_reader_from_its_messages(box):
    box.put("a")
    assert box.read(session=TWO) == ["a"]
    box.put("b", thread="t")
    assert box.read(session=ONE) == ["b"]
    assert box.read(session=ONE) == []
    box.now += 2_000
    assert box.read(session=ONE) == ["a", "b"]


def test_what_is_no_session_is_older_than_all():
    for name in ("", "x", "²", "9" * 60, "-5.a"):
        assert not register.is_newer(name, ONE)
        assert register.is_newer(ONE, name)


def test_the_higher_priority_comes_first_but_not_only(box):
    for number in range(40):
        box.put(f"u{number:02}", priority=3, party="loud")
    box.put("plain", party="quiet")
    order = box.read()
    assert order[:2] == ["u00", "u01"]
    assert order.index("plain") < 16


def test_senders_take_turns(box):
    for number in range(1_000):
        box.put(f"f{number}", party="flood")
    assert box.read(limit=3) == ["f0", "f1", "f2"]
    box.put("other", party="calm")
    assert box.read(limit=1) == ["other"]  # those who were served before come after it
    box.put("again", party="calm")
    assert "again" in box.read(limit=2)


def test_the_share_of_a_party_and_the_whole_inbox_are_bounded(box):
    for number in range(inbox.MAX_OF_PARTY):
        box.put(f"f{number}", party="flood")
    assert "this sender" in box.inbox.fullness("flood", 1)
    assert box.inbox.fullness("calm", 1) == ""
    assert "MiB" in box.inbox.fullness("calm", inbox.MAX_BYTES)
    box.ack("f0")
    assert box.inbox.fullness("flood", 1) == ""


def test_shares_are_counted_in_bytes_too(box):
    large = inbox.MAX_BYTES_OF_PARTY // 4
    for number in range(4):
        assert box.inbox.fullness("flood", large) == ""
        box.put(f"f{number}", party="flood", size=large)
    assert "MiB of this sender" in box.inbox.fullness("flood", 1)
    assert box.inbox.fullness("calm", inbox.MAX_BYTES_OF_PARTY) == ""
    box.ack("f0")
    assert box.inbox.fullness("flood", large) == ""


def test_a_message_whose_time_is_over_is_dead_also_behind_others(box):
    box.put("a", thread="t", ttl_ms=HOUR_MS)
    box.put("b", thread="t", ttl_ms=10)
    box.put("c", thread="t")
    assert box.read() == ["a"]
    box.now += 20
    (pick,) = box.inbox.take(ONE, box.now, 10)
    assert (pick.entry.id, pick.dead) == ("b", register.EXPIRED)
    box.ack("b")
    assert box.read() == []
    box.ack("a")
    assert box.read() == ["c"]


def test_a_message_that_is_being_handled_does_not_die(box):
    box.put("a", ttl_ms=10)
    assert box.read() == ["a"]
    box.now += 20
    assert box.inbox.take(ONE, box.now, 10) == []
    box.now += 2_000
    assert [pick.dead for pick in box.inbox.take(ONE, box.now, 10)] == [register.EXPIRED]


def test_too_many_attempts_are_the_end(box):
    box.put("a")
    for _ in range(register.MAX_ATTEMPTS):
        assert box.read() == ["a"]
        box.nack("a")
    assert [pick.dead for pick in box.inbox.take(ONE, box.now, 10)] == [register.ATTEMPTS]


def test_a_thread_can_be_read_alone(box):
    box.put("a", thread="one")
    box.put("b", thread="two")
    assert box.read(thread="two") == ["b"]
    assert box.read(thread="two") == []
    assert box.read() == ["a"]


def test_whoever_waits_for_one_thread_is_not_woken_by_another(box):
    box.put("a", thread="one")
    assert box.inbox.due_ms(ONE, box.now) == 0
    assert box.inbox.due_ms(ONE, box.now, thread="two") is None
    assert box.read(thread="one", lease_ms=500) == ["a"]
    assert box.inbox.due_ms(ONE, box.now, thread="one") == box.now + 500
    box.put("b", thread="two")
    assert box.inbox.due_ms(ONE, box.now, thread="two") == 0
    box.inbox.take(ONE, box.now, 1, thread="two")
    assert box.inbox.due_ms(ONE, box.now, thread="two") is None  # somebody is taking it


def cycles(box):
    """What can be done to messages again and again, without there being more of them."""

    def extended():
        box.extend("held", HOUR_MS - box.revision)

    def given_back():
        box.read(thread="free")
        box.nack("free")

    def taken_and_put_back():
        for pick in box.inbox.take(ONE, box.now, 8):
            box.inbox.put_back(pick.entry.id)

    def ended_behind_others():
        for thread in ("held", "free", "new"):
            box.put("x", thread=thread)
            box.ack("x")

    found = (extended, given_back, taken_and_put_back, ended_behind_others)
    return {one.__name__: one for one in found}


def places(inbox):
    """Those in all lists of what comes when, with those that no longer count."""
    lists = [waiting.heap for waiting in inbox._threads.values()]
    lists += [inbox._later._heap, inbox._ends._heap]
    return sum(map(len, lists)) + sum(turns.places for turns in inbox._turns)


@pytest.mark.parametrize("name", list(cycles(None)))
def test_nothing_grows_with_what_is_done_to_a_message(box, name):
    box.put("held", thread="held")
    assert box.read(lease_ms=HOUR_MS) == ["held"]
    box.put("free", thread="free")
    step = cycles(box)[name]
    for _ in range(50):
        step()
    few = places(box.inbox)
    for _ in range(500):
        step()
    assert places(box.inbox) <= few + 20


def test_what_is_over_is_named_in_portions_and_before_others_wait(box):
    for number in range(2 * inbox.MAX_LOOKED_AT):
        box.put(f"d{number}", ttl_ms=10)
    box.now += 20
    box.put("live")
    found = []
    while "live" not in found:
        assert box.inbox.due_ms(ONE, box.now) <= box.now
        picks = box.inbox.take(ONE, box.now, 1)
        assert 0 < len(picks) <= inbox.MAX_LOOKED_AT
        found += [pick.entry.id for pick in picks]
        for pick in picks:
            box.ack(pick.entry.id)
    assert len(found) == len(set(found)) == 2 * inbox.MAX_LOOKED_AT + 1


def test_a_list_of_threads_has_a_bound(box, monkeypatch):
    monkeypatch.setattr(inbox, "MAX_THREADS_SHOWN", 3)
    for number in range(9):
        box.put(f"m{number}", thread=f"t{number % 5}", party=f"p{number}")
    assert [one.thread for one in box.inbox.threads()] == ["t0", "t1", "t2"]
    assert [one.messages for one in box.inbox.threads()] == [2, 2, 2]


def test_what_is_known_already_changes_nothing(box):
    box.put("a", thread="t")
    revision, note = box.notes["a"]
    assert box.read() == ["a"]
    box.inbox.apply("a", revision, note)
    assert box.read() == []
    box.ack("a")
    box.inbox.apply("a", revision, note)
    assert box.read() == []
    assert box.inbox.entries == {}
    assert box.inbox.size == 0


def test_what_was_taken_and_not_handed_out_can_be_taken_again(box):
    box.put("a", thread="t")
    box.put("b", thread="t")
    (pick,) = box.inbox.take(ONE, box.now, 10)
    assert box.inbox.take(ONE, box.now, 10) == []
    box.put("c", thread="t")  # what is put meanwhile does not free the thread
    assert box.inbox.take(ONE, box.now, 10) == []
    box.inbox.put_back(pick.entry.id)
    assert box.read() == ["a"]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from(["", "s", "t"]),
            st.integers(0, 3),
            st.sampled_from(["p", "q"]),
        ),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.just("end"), st.booleans(), st.integers(0, 5)),
        st.tuples(st.just("time"), st.integers(1, 1_500)),
        st.tuples(st.just("open")),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=150)
def test_nothing_is_lost_or_reordered_whatever_happens(steps):  # noqa: C901 - a table of steps
    box, ended, sessions = Box(), {}, 1
    session = ONE
    held: list[str] = []
    put: list[str] = []
    threads: dict[str, list[str]] = {"s": [], "t": []}
    for step in steps:
        match step:
            case ("put", thread, priority, party):
                id_ = f"m{len(put)}"
                put.append(id_)
                threads.get(thread, []).append(id_)
                box.put(id_, thread=thread, priority=priority, party=party)
            case ("read", limit):
                for id_ in box.read(limit=limit, session=session):
                    thread = box.notes[id_][1].thread
                    assert id_ not in ended
                    if thread:  # everything before it in its thread has ended
                        earlier = threads[thread][: threads[thread].index(id_)]
                        assert all(one in ended for one in earlier)
                    held.append(id_)
            case ("end", is_ack, at) if held:
                id_ = held.pop(at % len(held))
                if id_ not in ended:
                    box.ack(id_) if is_ack else box.nack(id_, delay_ms=at * 100)
                    if is_ack:
                        ended[id_] = True
            case ("time", passed):
                box.now += passed
            case ("open",):
                sessions += 1
                session = register.session_name(1_000 * sessions, "a")
    for _ in range(len(put) + 1):  # in the end everything that was put is handed out
        box.now += 10_000
        for id_ in box.read(session=session):
            box.ack(id_)
            ended[id_] = True
    dead = {id_ for id_, (_, note) in box.notes.items() if note.attempts >= register.MAX_ATTEMPTS}
    assert set(put) - set(ended) <= dead
    assert (box.inbox.entries, box.inbox.size, box.inbox.by_party) == ({}, 0, {})
