"""Which waiting jobs are handed out, against a model that looks at everything each time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.authority.rules import Limit, Rules
from antiphon.core.derivations.limit_use import LimitUse, limit_of
from antiphon.core.derivations.waiting_jobs import WaitingJobs
from antiphon.core.families.jobs.state import Job, State
from tests.examples import examples

KIND = "test.work"
ENDS = st.sampled_from([State.SUCCEEDED, State.SUCCEEDED, State.FAILED, State.ABORTED])
NO_LIMIT = 1 << 30


def job(at, *, state=State.WAITING, after=(), label="", priority="normal", **fields):
    return Job(
        kind=KIND, id=f"{at:064x}", state=state, scheduler="", scheduled_seq=at + 1,
        scheduled_ms=0, hlc=(0, 0), hlc_author="", priority=priority, start_by_ms=0,
        start_window_ms=0, attempts_max=1, lease_ms=1, lease_ms_max=1, waiting_seq=at + 1,
        concurrency=label, after=tuple((KIND, f"{one:064x}") for one in after), **fields,
    )  # fmt: skip


def key(at):
    return KIND, f"{at:064x}"


@st.composite
def graphs(draw):
    """Jobs in the order of the log; each waits for some before it."""
    made = []
    for at in range(draw(st.integers(1, 14))):
        after = draw(st.sets(st.integers(0, at - 1), max_size=4)) if at else set()
        made.append(
            job(
                at,
                after=sorted(after),
                label=draw(st.sampled_from(["", "a", "b"])),
                priority=draw(st.sampled_from(["high", "normal", "low"])),
                after_any_outcome=draw(st.booleans()),
                not_before_ms=draw(st.sampled_from([0, 0, 50])),
            )
        )
    return made


@settings(max_examples=examples(200))
@given(graphs(), st.data())
def test_a_job_is_handed_out_once_and_only_when_nothing_holds_it_back(made, data):
    states = {key(at): State.WAITING for at in range(len(made))}
    room = {"a": 1, "b": 2}
    waiting, now_ms, taken = WaitingJobs(), 0, []
    for one in made:
        waiting.add(one, states.get)
        waiting.add(one, states.get)
    while any(not state.is_terminal for state in states.values()):
        held = [one for one in made if states[one.kind, one.id] is State.PENDING]
        free = {
            label: most - sum(one.concurrency == label for one in held)
            for label, most in room.items()
        }
        found = waiting.take(now_ms, free.__getitem__, most=100)
        for one in found:
            ends = [states[each] for each in one.after]
            is_lost = not one.after_any_outcome and any(
                end in {State.FAILED, State.ABORTED} for end in ends
            )
            states[one.kind, one.id] = State.ABORTED if is_lost else State.PENDING
            if is_lost:
                waiting.ended((one.kind, one.id), State.ABORTED)
                continue
            assert all(end.is_terminal for end in ends)
            assert one.not_before_ms <= now_ms
            free[one.concurrency] = free.get(one.concurrency, NO_LIMIT) - 1
            assert free[one.concurrency] >= 0
        taken += found
        pending = [name for name, state in states.items() if state is State.PENDING]
        if pending:
            name = data.draw(st.sampled_from(pending))
            states[name] = data.draw(ENDS)
            waiting.ended(name, states[name])
        elif not found:
            assert now_ms == 0, "nothing is held back for ever"
            assert waiting.next_ms == 50
            now_ms = 50
    assert sorted(one.id for one in taken) == [one.id for one in made]
    assert len(waiting) == 0


def test_of_one_label_the_more_urgent_and_then_the_older_come_first():
    waiting = WaitingJobs()
    for at, priority in enumerate(["low", "normal", "high", "normal"]):
        waiting.add(job(at, label="a", priority=priority), {}.get)
    order = [waiting.take(0, lambda _: 1, most=10)[0].id for _ in range(4)]
    assert order == [f"{at:064x}" for at in (2, 1, 3, 0)]
    assert waiting.take(0, lambda _: 1, most=10) == []


def test_what_names_an_unknown_job_is_handed_out_at_once_to_be_cancelled():
    waiting = WaitingJobs()
    waiting.add(job(5, after=[4]), {}.get)
    assert [one.id for one in waiting.take(0, lambda _: 0, most=10)] == [f"{5:064x}"]


def test_a_job_that_waits_no_longer_is_not_handed_out():
    waiting = WaitingJobs()
    waiting.add(job(1), {}.get)
    waiting.remove(key(1))
    assert waiting.take(0, lambda _: 1, most=10) == []


def test_the_room_under_a_limit_is_what_is_offered_and_has_not_ended():
    use, limit = LimitUse(), Limit(label="a", at_once=2)
    for at, state in enumerate([State.PENDING, State.RUNNING, State.WAITING, State.FAILED]):
        use.see(job(at, state=state, label="a"))
    assert use.room(limit, 0) == 0
    use.see(job(1, state=State.SUCCEEDED, label="a"))
    use.see(job(1, state=State.SUCCEEDED, label="a"))
    assert use.room(limit, 0) == 1
    assert use.room(limit_of(Rules(limits=(limit,)), "b"), 0) > 1_000, "no limit of that name"


def test_a_rate_counts_what_was_offered_within_its_period():
    use, limit = LimitUse(), Limit(label="a", rate=2, per_ms=1_000)
    assert use.next_ms(limit, 0) is None
    use.offered("a", [100, 600])
    assert use.room(limit, 1_099) == 0
    assert use.next_ms(limit, 700) == 1_100
    assert use.room(limit, 1_100) == 1
    use.offered("a", [1_100])
    assert use.next_ms(limit, 1_200) == 1_600
