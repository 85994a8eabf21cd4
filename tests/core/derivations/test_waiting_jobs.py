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


def take(waiting, now_ms, room={}.get, *, most=100, most_cost=NO_LIMIT, resting=()):
    """The numbers of the jobs that are handed out; without `room` no label has a limit."""
    taken = waiting.take(now_ms, room, most=most, most_cost=most_cost, resting=resting)
    return [int(name, 16) for _, name in taken]


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
        found = [
            made[int(name, 16)]
            for _, name in waiting.take(now_ms, free.get, most=100, most_cost=NO_LIMIT)
        ]
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
    order = [take(waiting, 0, lambda _: 1) for _ in range(4)]
    assert order == [[at] for at in (2, 1, 3, 0)]
    assert take(waiting, 0, lambda _: 1) == []


def test_what_names_an_unknown_job_is_handed_out_at_once_to_be_cancelled():
    waiting = WaitingJobs()
    waiting.add(job(5, after=[4]), {}.get)
    assert take(waiting, 0, lambda _: 0) == [5]


def test_a_job_that_waits_no_longer_is_not_handed_out():
    waiting = WaitingJobs()
    waiting.add(job(1), {}.get)
    waiting.remove(key(1))
    assert take(waiting, 0, lambda _: 1) == []


def test_whoever_has_thousands_of_jobs_waiting_leaves_others_their_turn():
    waiting = WaitingJobs()
    for at in range(1_000):
        waiting.add(job(at), {}.get, "greedy")
    waiting.add(job(1_000), {}.get, "modest")
    waiting.add(job(1_001), {}.get, "another")
    assert take(waiting, 0, most=4) == [0, 1000, 1001, 1]
    assert take(waiting, 0, most=2) == [2, 3]


def test_a_turn_is_as_long_as_what_it_costs_to_look_up():
    waiting, done = WaitingJobs(), {key(at): State.SUCCEEDED for at in range(10)}
    for at in range(20, 30):
        waiting.add(job(at, after=range(10)), done.get, "wide")
    for at in range(30, 60):
        waiting.add(job(at), {}.get, "narrow")
    taken = take(waiting, 0, most_cost=33)
    assert sum(at < 30 for at in taken) == 2
    assert sum(at >= 30 for at in taken) == 11


def test_one_job_is_handed_out_however_much_it_costs():
    waiting, done = WaitingJobs(), {key(at): State.SUCCEEDED for at in range(10)}
    waiting.add(job(20, after=range(10)), done.get)
    assert take(waiting, 0, most_cost=1) == [20]


def test_who_was_not_served_in_one_round_is_first_in_the_next():
    waiting = WaitingJobs()
    for at in range(30):
        waiting.add(job(at), {}.get, f"party {at % 10}")
    rounds = [take(waiting, 0, most=5) for _ in range(6)]
    assert [sorted(at % 10 for at in one) for one in rounds] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
    ] * 3


def test_who_rests_has_no_turn_and_loses_nothing():
    waiting = WaitingJobs()
    for at in range(4):
        waiting.add(job(at), {}.get, "greedy" if at % 2 else "modest")
    assert take(waiting, 0, resting={"greedy"}) == [0, 2]
    assert (waiting.served, waiting.parties) == ({"modest": 2}, ("greedy",))
    assert take(waiting, 0) == [1, 3]
    assert waiting.parties == ()


def test_what_is_to_be_cancelled_waits_for_the_turn_of_its_party_too():
    waiting = WaitingJobs()
    for at in range(100):
        waiting.add(job(at, after=[1_000]), {}.get, "greedy")
    waiting.add(job(500), {}.get, "modest")
    assert take(waiting, 0, most=2) == [0, 500]


def test_labels_without_a_limit_give_nobody_more_turns():
    waiting = WaitingJobs()
    for at in range(100):
        waiting.add(job(at, label=f"label{at}"), {}.get, "greedy")
    waiting.add(job(500), {}.get, "modest")
    assert take(waiting, 0, most=2) == [0, 500]


def test_a_limit_that_is_set_later_holds_what_was_only_waiting_for_its_turn():
    waiting = WaitingJobs()
    for at in range(3):
        waiting.add(job(at, label="a"), {}.get)
    assert take(waiting, 0, most=1) == [0]
    waiting.limits_changed()
    assert take(waiting, 0, {"a": 1}.get) == [1]
    assert take(waiting, 0, {"a": 0}.get) == []
    assert waiting.labels == {"a"}
    waiting.limits_changed()
    assert take(waiting, 0) == [2]


def test_the_room_under_a_limit_is_what_is_offered_and_has_not_ended():
    limit = Limit(label="a", at_once=2)
    use = LimitUse((limit,))
    for at, state in enumerate([State.PENDING, State.RUNNING, State.WAITING, State.FAILED]):
        use.see(job(at, state=state, label="a"))
    assert use.room(limit, 0) == 0
    use.see(job(1, state=State.SUCCEEDED, label="a"))
    use.see(job(1, state=State.SUCCEEDED, label="a"))
    assert use.room(limit, 0) == 1
    assert use.room(limit_of(Rules(limits=(limit,)), "b"), 0) > 1_000, "no limit of that name"


def test_a_rate_counts_what_was_offered_within_its_period():
    limit = Limit(label="a", rate=2, per_ms=1_000)
    use = LimitUse((limit,))
    assert use.next_ms(limit, 0) is None
    use.offered("a", [100, 600])
    assert use.room(limit, 1_099) == 0
    assert use.next_ms(limit, 700) == 1_100
    assert use.room(limit, 1_100) == 1
    use.offered("a", [1_100])
    assert use.next_ms(limit, 1_200) == 1_600


def test_nothing_is_kept_of_labels_without_a_limit_nor_of_more_times_than_a_rate_needs():
    """Whoever submits jobs may name a new label each time."""
    limits = Limit(label="a", at_once=2), Limit(label="b", rate=3, per_ms=1_000)
    use, empty = LimitUse(limits), LimitUse(limits)
    for at in range(200):
        for label in (f"junk{at}", "a", "b"):
            use.see(job(at, state=State.PENDING, label=label))
            use.offered(label, [at])
            use.see(job(at, state=State.SUCCEEDED, label=label))
    assert use.open("junk7") == 0
    assert (use.room(limits[0], 200), use.room(limits[1], 200)) == (2, 0)
    kept, before = ({name: len(one) for name, one in vars(each).items()} for each in (use, empty))
    assert kept == before
    assert sum(map(len, use._offered.values())) == 3
