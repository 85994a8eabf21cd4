"""Whose turn it is: ranks wait, and words are believed within bounds."""

import pytest

from antiphon.core.families.jobs.ops import CancelBody, JobCancel
from antiphon.core.families.jobs.state import State
from antiphon.core.policy import rendezvous_turns
from antiphon.core.policy.claim_delay import LONGEST_S
from antiphon.core.policy.rendezvous_turns import (
    LOAN_S,
    MAX_HEEDED,
    PATIENCE,
    SOON_S,
    Changed,
    MessageStamp,
    Step,
)
from tests.core.drawn import (
    KIND,
    ME,
    ONE,
    TWO,
    WINDOW_S,
    Worker,
    a_call,
    a_job,
    an_offer,
    at,
    shown,
)
from tests.core.ledger import T0

# --- whose turn it is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rank, chance, due_s", [(0, 0.9, 0.0), (1, 0.0, 0.5), (1, 1.0, 0.625), (3, 0.0, 1.5)]
)
def test_the_first_rank_comes_at_once_and_each_further_one_a_window_later(rank, chance, due_s):
    worker, call = Worker(), a_call()
    worker.places[call.job_id] = (rank, rank)
    worker.turns.met(call, call.op, at(10.0, chance))
    if due_s:
        assert worker.pick(10.0) == pytest.approx(due_s)
        assert worker.pick(10.0 + due_s - 0.01) == pytest.approx(0.01)
    assert worker.pick(10.0 + due_s) == call.job_id


def test_nothing_waiting_means_no_time_to_look_again():
    worker = Worker()
    assert worker.pick(0.0) is None
    worker.met(a_call(priority="low"))
    assert worker.pick(0.0) is None, "another priority has a queue of its own"


def test_of_those_that_are_due_the_best_place_comes_first_then_the_oldest_call():
    worker = Worker()
    calls = [a_call(word, seq) for word, seq in (("1", 3), ("2", 1), ("3", 2))]
    for call, place in zip(calls, (0, 1, 1), strict=True):
        worker.places[call.job_id] = (0, place)
        worker.met(call)
    order = [worker.hand_out(1.0).record.seq for _ in calls]
    assert order == [3, 1, 2]


def test_what_was_due_for_long_comes_before_what_the_worker_stands_better_for():
    worker, old, new = Worker(), a_call("1", 1), a_call("2", 2)
    worker.places = {old.job_id: (0, 5), new.job_id: (0, 1)}
    worker.met(old)
    late_s = PATIENCE * WINDOW_S
    worker.met(new, late_s)
    assert worker.pick(late_s) == new.job_id
    assert worker.pick(late_s + 0.01) == old.job_id


def test_ranks_follow_the_company_until_the_turn_has_come():
    worker, call = Worker(), a_call()
    worker.met(call, rank=2)
    assert worker.pick(0.0) == pytest.approx(2 * WINDOW_S)
    worker.places[call.job_id] = (0, 0)
    assert worker.pick(0.0) == pytest.approx(2 * WINDOW_S), "nobody said that anything changed"
    worker.revision += 1
    assert worker.pick(0.0) == call.job_id
    worker.places[call.job_id] = (9, 9)
    worker.revision += 1
    assert worker.pick(0.0) == call.job_id, "whoever is due stays due"


def test_whom_the_log_would_refuse_holds_nobody_up():
    worker, call = Worker(), a_call()
    worker.met(call, rank=1)
    assert worker.pick(0.0, is_barred=True) == pytest.approx(WINDOW_S)
    assert worker.pick(WINDOW_S, is_barred=True) == LONGEST_S
    assert worker.pick(WINDOW_S) == call.job_id


@pytest.mark.parametrize(
    "delay_s, is_silent, pick, looks",
    [
        (None, False, None, None),
        (0.0, False, "job", None),
        (SOON_S, False, SOON_S, None),
        (SOON_S + 0.1, False, None, 20.0 + SOON_S + 0.1),
        (0.0, True, None, None),
        (9.0, True, None, None),
    ],
)
def test_what_becomes_of_a_delivery_that_was_settled(delay_s, is_silent, pick, looks):
    worker, call = Worker(is_silent=is_silent), a_call()
    worker.met(call)
    given = worker.hand_out(0.0)
    assert given.deliveries == 1
    assert worker.pick(1.0) is None, "it is in the worker's hands"
    worker.turns.settle(given, delay_s, at(20.0))
    assert worker.pick(20.0) == (call.job_id if pick == "job" else pick)
    assert worker.looks == looks


# --- what is found on the log -----------------------------------------------------------------


OTHER = "f" * 64
A_CANCEL = shown(CancelBody(kind=KIND, job=OTHER), op_type=JobCancel)
FOUND = [
    ("a first call", a_call(), Step.NOTHING, True),
    ("another kind", a_call(kind="other"), Step.NOTHING, False),
    ("labels that it lacks", a_call(requires=("gpu",)), Step.NOTHING, False),
    ("a label that it has", a_call(requires=("eu",)), Step.NOTHING, True),
    ("called before", a_call(prev=3), Step.READ, False),
    ("an offer", an_offer(OTHER), Step.READ, False),
    ("no call", A_CANCEL, Step.NOTHING, False),
]


@pytest.mark.parametrize("call, step, waits", [one[1:] for one in FOUND], ids=[o[0] for o in FOUND])
def test_what_a_record_leads_to(call, step, waits):
    worker = Worker(labels=("eu",))
    assert worker.met(call) is step
    assert worker.pick(0.0) == (call.job_id if waits else None)
    assert worker.turns.changes() == (Changed.WAITING if waits else Changed.NOTHING)


def test_bytes_that_are_no_op_lead_to_nothing():
    call = a_call()
    assert Worker().turns.met(call, None, at(0.0)) is Step.NOTHING


def test_a_job_is_read_about_where_more_is_known_and_never_while_it_is_out():
    worker, call = Worker(), a_call()
    assert worker.met(call, is_known=True) is Step.READ
    worker.met(call)
    worker.hand_out(0.0)
    assert worker.met(call, is_known=True) is Step.NOTHING
    worker.found(call, a_job(call))
    assert worker.pick(5.0) is None


@pytest.mark.parametrize(
    "state, fields, pick, looks",
    [
        (State.PENDING, {}, "job", None),
        (State.PENDING, {"retry_after_ms": T0 + 1_000}, 1.0, None),
        (State.PENDING, {"retry_after_ms": T0 + 1_001}, None, 1.001 + SOON_S / 2),
        (State.PENDING, {"cooling": ((ME, T0 + 9_000),)}, None, 9.0 + SOON_S / 2),
        (State.PENDING, {"cooling": (("did:key:one", T0 + 9_000),)}, "job", None),
        (State.CLAIMED, {"deadline_ms": T0 + 5_000}, None, 5.0 + SOON_S / 2),
        (State.RUNNING, {"deadline_ms": T0 - 5_000}, None, 1.0 + SOON_S / 2),
        (State.WAITING, {}, None, None),
        (State.SUCCEEDED, {}, None, None),
        (State.FAILED, {}, None, None),
        (State.ABORTED, {}, None, None),
    ],
)
@pytest.mark.parametrize("is_silent", [False, True])
def test_what_a_lane_that_was_read_leads_to(state, fields, pick, looks, is_silent):
    worker, call = Worker(is_silent=is_silent), a_call()
    worker.found(call, a_job(call, state, **fields), chance=0.5)
    assert worker.pick(0.0) == (call.job_id if pick == "job" else pick)
    assert worker.looks == (None if is_silent or looks is None else pytest.approx(looks))


def test_the_log_has_the_last_word():
    worker, call = Worker(), a_call()
    worker.met(call)
    worker.found(call, a_job(call, State.SUCCEEDED))
    assert (worker.pick(9.0), worker.looks) == (None, None)
    worker.turns.hear_ended(call.job_id, 7, ONE, at(0.0))
    worker.found(call, a_job(call))
    assert worker.pick(9.0) == call.job_id
    worker.found(call, a_job(call), requires=("gpu",))
    assert worker.pick(9.0) is None, "it lacks the label"
    worker.found(call, None)
    assert worker.pick(9.0) is None


def test_what_lies_aside_is_looked_up_when_its_time_has_come():
    worker = Worker()
    worker.turns.look_at(7, "a" * 64, 5.0)
    worker.turns.look_at(8, "b" * 64, 3.0)
    assert (worker.looks, worker.turns.due(2.9)) == (3.0, [])
    assert worker.turns.due(3.0) == ["b" * 64]
    assert worker.turns.take_up("b" * 64) == 8
    assert worker.turns.take_up("b" * 64) is None
    assert worker.looks == 5.0


# --- what others say --------------------------------------------------------------------------


def test_a_first_call_that_somebody_took_is_left_alone_for_the_length_of_a_loan():
    worker, call = Worker(), a_call()
    worker.met(call)
    worker.turns.hear_taken(call.job_id, 7, ONE, at(1.0, chance=1.0))
    assert (worker.pick(2.0), worker.looks) == (None, 1.0 + LOAN_S * 1.25)
    assert worker.met(call) is Step.NOTHING, "a late record of the same call"
    worker.turns.hear_taken(call.job_id, 7, ONE, at(9.0))
    assert worker.looks == 9.0 + LOAN_S, "it holds it still"
    worker.turns.hear_taken(call.job_id, 7, TWO, at(20.0))
    assert worker.looks == 9.0 + LOAN_S, "a later claim does not count"
    assert worker.turns.take_up(call.job_id) == 7


@pytest.mark.req("G8")
@pytest.mark.parametrize(
    "holder, other",
    [
        (MessageStamp(1_000, "did:key:z"), MessageStamp(2_000, "did:key:a")),
        (MessageStamp(1_000, "did:key:a"), MessageStamp(1_000, "did:key:z")),
    ],
    ids=["the earlier", "the lower id"],
)
@pytest.mark.parametrize("is_heard_first", [True, False])
def test_whatever_order_two_claims_are_heard_in_one_is_believed(holder, other, is_heard_first):
    worker = Worker()
    heard = (holder, other) if is_heard_first else (other, holder)
    for now_s, said in enumerate(heard):
        worker.turns.hear_taken("a" * 64, 7, said, at(now_s))
    looks = worker.looks
    worker.turns.hear_returned("a" * 64, 0.0, other, at(2.0))
    worker.turns.hear_ended("a" * 64, 7, other, at(2.0))
    assert worker.looks == looks, "what the other says changes nothing"
    worker.turns.hear_returned("a" * 64, 5.0, holder, at(2.0))
    assert worker.looks == 7.0


@pytest.mark.req("G8")
def test_of_two_that_took_a_job_the_earlier_one_is_believed_to_hold_it():
    worker = Worker()
    worker.turns.hear_taken("a" * 64, 7, TWO, at(0.0))
    worker.turns.hear_taken("a" * 64, 7, ONE, at(1.0))
    worker.turns.hear_returned("a" * 64, 5.0, TWO, at(2.0))
    assert worker.looks == LOAN_S
    worker.turns.hear_returned("a" * 64, 5.0, ONE, at(2.0))
    assert worker.looks == 7.0


def test_a_repeated_call_is_put_off_by_words_once_and_by_one_window():
    worker, call = Worker(), a_call()
    worker.found(call, a_job(call))
    for now_s in (1.0, 1.2, 1.4):
        worker.turns.hear_taken(call.job_id, 7, ONE, at(now_s))
        worker.turns.hear_ended(call.job_id, 7, ONE, at(now_s))
    assert worker.pick(1.0) == pytest.approx(WINDOW_S)
    assert worker.pick(1.0 + WINDOW_S) == call.job_id


def test_what_is_said_to_have_ended_is_not_revived_by_a_late_record_and_not_looked_up():
    worker, call = Worker(), a_call()
    worker.turns.hear_ended(call.job_id, 7, ONE, at(0.0))
    worker.met(call)
    assert worker.pick(1.0) is None
    worker.turns.hear_returned(call.job_id, 0.0, ONE, at(1.0))
    assert worker.turns.due(LOAN_S) == [call.job_id]
    assert worker.turns.take_up(call.job_id) is None


def test_only_who_has_a_job_can_end_it_or_give_it_back_by_word():
    worker = Worker()
    worker.turns.hear_taken("a" * 64, 7, ONE, at(0.0))
    worker.turns.hear_ended("a" * 64, 7, TWO, at(1.0))
    worker.turns.hear_returned("a" * 64, 0.0, TWO, at(1.0))
    assert worker.looks == LOAN_S
    worker.turns.hear_returned("a" * 64, 9_999.0, ONE, at(1.0))
    assert worker.looks == 1.0 + LONGEST_S, "for a while, whatever it says"
    assert worker.turns.take_up("a" * 64) == 7


def test_words_change_nothing_about_what_is_in_hand():
    worker, call = Worker(), a_call()
    worker.met(call)
    worker.hand_out(0.0)
    worker.turns.changes()
    worker.turns.hear_taken(call.job_id, 7, ONE, at(0.0))
    worker.turns.hear_ended(call.job_id, 7, ONE, at(0.0))
    worker.turns.hear_pointer(call.job_id, 7, at(0.0))
    assert (worker.looks, worker.turns.changes()) == (None, Changed.NOTHING)


def test_pointers_are_followed_at_once_and_by_the_silent_some_time_within_a_window():
    loud, silent = Worker(), Worker(is_silent=True)
    for worker in (loud, silent):
        for number in range(2 * MAX_HEEDED):
            worker.turns.hear_pointer(f"{number:064x}", 7, at(1.0, chance=0.5))
    assert len(loud.turns.due(1.0)) == 2 * MAX_HEEDED
    assert silent.turns.due(1.0) == []
    assert len(silent.turns.due(1.0 + WINDOW_S / 2)) == MAX_HEEDED, "anybody may point"


# --- bounds -----------------------------------------------------------------------------------


def test_when_enough_is_waiting_nothing_more_is_read_until_there_is_room(monkeypatch):
    worker, calls = Worker(), [a_call(word) for word in "123"]
    monkeypatch.setattr(rendezvous_turns, "MAX_WAITING", 3)
    for call in calls:
        assert not worker.turns.is_full
        worker.met(call)
    assert worker.turns.is_full
    worker.turns.changes()
    worker.hand_out(0.0)
    assert not worker.turns.is_full
    assert worker.turns.changes() is Changed.ROOM
    monkeypatch.setattr(
        rendezvous_turns, "MAX_WAITING_BYTES", sum(len(one.payload) for one in calls[1:])
    )
    assert worker.turns.is_full


def test_of_too_much_that_lies_aside_the_oldest_is_left_to_the_next_call(monkeypatch):
    monkeypatch.setattr(rendezvous_turns, "MAX_ASIDE", 3)
    worker = Worker()
    for number in (0, 1, 2, 1, 3):
        worker.turns.look_at(number, f"{number:064x}", 1.0)
    assert [worker.turns.take_up(job) for job in worker.turns.due(1.0)] == [2, 1, 3]
